#include "comm/staged_communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/transfers.h"

namespace bv {
namespace {

constexpr size_t staging_bytes = 1 << 20;

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Backend& backend, std::unique_ptr<Communicator> host_comm)
      : Communicator(host_comm->rank(), host_comm->size()),
        backend_(backend),
        host_comm_(std::move(host_comm)),
        stream_(backend.communication_stream()),
        forked_(backend.create_event()),
        joined_(backend.create_event()),
        staging_(host_memory(staging_bytes)) {}
  ~StagedCommunicator() override {
    for (void* memory : host_memory_) backend_.release_host(memory);
  }

  bool in_call_order() const override { return true; }
  void all_reduce(float* data, size_t count, Stream stream) override {
    const Turn turn(*this, stream);
    sum(data, count);
  }
  void all_reduce(double* data, size_t count, Stream stream) override {
    const Turn turn(*this, stream);
    sum(data, count);
  }
  void all_gather(float* data, size_t count, Stream stream) override {
    const Turn turn(*this, stream);
    const auto ranks = size_t(size());
    float* const rows = reinterpret_cast<float*>(staging_);
    for (size_t done = 0; done < count;) {
      const size_t n = std::min(staging_bytes / sizeof(float) / ranks, count - done);
      const auto own = size_t(rank());
      backend_.to_host(rows + own * n, data + own * count + done, n * sizeof(float), stream_);
      backend_.call_on_host(stream_, [=, this] { host_comm_->all_gather(rows, n, nullptr); });
      for (size_t r = 0; r < ranks; ++r)
        backend_.to_device(data + r * count + done, rows + r * n, n * sizeof(float), stream_);
      done += n;
    }
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    const Turn turn(*this, stream);
    staged(static_cast<std::byte*>(data), bytes, [this, root](std::byte* part, size_t n) {
      host_comm_->broadcast(part, n, root, nullptr);
    });
  }
  void reduce_scatter(float* data, size_t count, Stream stream) override {
    const Turn turn(*this, stream);
    const auto ranks = size_t(size()), own = size_t(rank());
    float* const rows = reinterpret_cast<float*>(staging_);
    for (size_t done = 0; done < count;) {
      const size_t n = std::min(staging_bytes / sizeof(float) / ranks, count - done);
      for (size_t r = 0; r < ranks; ++r)
        backend_.to_host(rows + r * n, data + r * count + done, n * sizeof(float), stream_);
      backend_.call_on_host(stream_, [=, this] { host_comm_->reduce_scatter(rows, n, nullptr); });
      backend_.to_device(data + own * count + done, rows + own * n, n * sizeof(float), stream_);
      done += n;
    }
  }
  // Stages whole messages: two peers may divide their messages into exchanges differently.
  void exchange(std::span<const Transfer> transfers, Stream stream) override {
    require_peers(transfers, size());
    const Turn turn(*this, stream);
    size_t bytes = 0;
    for (const Transfer& t : transfers) bytes += t.bytes;
    if (bytes > message_bytes_) messages_ = host_memory(message_bytes_ = bytes);
    std::vector<Transfer> on_host(transfers.begin(), transfers.end());
    std::byte* next = messages_;
    for (Transfer& t : on_host) {
      if (t.send) backend_.to_host(next, t.data, t.bytes, stream_);
      t.data = next;
      next += t.bytes;
    }
    backend_.call_on_host(stream_, [this, on_host] { host_comm_->exchange(on_host, nullptr); });
    for (size_t i = 0; i < on_host.size(); ++i)
      if (!on_host[i].send)
        backend_.to_device(transfers[i].data, on_host[i].data, on_host[i].bytes, stream_);
  }
  std::unique_ptr<Communicator> group(std::span<const int> ranks) override {
    return std::make_unique<StagedCommunicator>(backend_, host_comm_->group(ranks));
  }
  void barrier() override { host_comm_->barrier(); }
  double all_reduce_scalar(double x) override { return host_comm_->all_reduce_scalar(x); }
  void busy(Busy now) override { host_comm_->busy(now); }
  void end_run(const std::string& why) override { host_comm_->end_run(why); }

 private:
  // Orders a collective on the stream that all staged communicators share: after the earlier work
  // of the stream it was called on, and before that stream's later work.
  class Turn {
   public:
    Turn(StagedCommunicator& of, Stream asked) : of_(of), asked_(asked) {
      if (asked_ == of_.stream_) return;
      of_.backend_.record(of_.forked_, asked_);
      of_.backend_.wait(of_.stream_, of_.forked_);
    }
    ~Turn() noexcept(false) {
      if (asked_ == of_.stream_) return;
      of_.backend_.record(of_.joined_, of_.stream_);
      of_.backend_.wait(asked_, of_.joined_);
    }
    Turn(const Turn&) = delete;

   private:
    StagedCommunicator& of_;
    Stream asked_;
  };

  std::byte* host_memory(size_t bytes) {
    host_memory_.push_back(backend_.allocate_host(bytes));
    return static_cast<std::byte*>(host_memory_.back());
  }
  template <class T>
  void sum(T* data, size_t count) {
    staged(data, count, [this](T* part, size_t n) { host_comm_->all_reduce(part, n, nullptr); });
  }
  // Copies a piece to the host, runs `collective` there and copies the piece back, for each piece.
  template <class T, class Collective>
  void staged(T* data, size_t count, Collective collective) {
    T* const part = reinterpret_cast<T*>(staging_);
    for (size_t done = 0; done < count;) {
      const size_t n = std::min(staging_bytes / sizeof(T), count - done);
      backend_.to_host(part, data + done, n * sizeof(T), stream_);
      backend_.call_on_host(stream_, [=] { collective(part, n); });
      backend_.to_device(data + done, part, n * sizeof(T), stream_);
      done += n;
    }
  }

  Backend& backend_;
  std::unique_ptr<Communicator> host_comm_;
  Stream stream_;
  Event forked_, joined_;
  std::vector<void*> host_memory_;  // freed last: queued copies may use it
  std::byte* staging_;
  std::byte* messages_ = nullptr;
  size_t message_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Backend& backend,
                                                       std::unique_ptr<Communicator> host_comm) {
  return std::make_unique<StagedCommunicator>(backend, std::move(host_comm));
}

}  // namespace bv
