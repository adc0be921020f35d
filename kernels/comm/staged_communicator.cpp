#include "kernels/comm/staged_communicator.h"

#include <algorithm>
#include <utility>

namespace bv {
namespace {

constexpr size_t staging_bytes = 1 << 20;

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Backend& backend, std::unique_ptr<Communicator> host_comm)
      : Communicator(host_comm->rank(), host_comm->size()),
        backend_(backend),
        host_comm_(std::move(host_comm)),
        staging_(static_cast<std::byte*>(backend.allocate_host(staging_bytes))) {}
  ~StagedCommunicator() override { backend_.release_host(staging_); }

  void all_reduce(float* data, size_t count, Stream stream) override { sum(data, count, stream); }
  void all_reduce(double* data, size_t count, Stream stream) override { sum(data, count, stream); }
  void all_gather(float* data, size_t count, Stream stream) override {
    const auto ranks = size_t(size());
    float* const rows = reinterpret_cast<float*>(staging_);
    for (size_t done = 0; done < count;) {
      const size_t n = std::min(staging_bytes / sizeof(float) / ranks, count - done);
      const auto own = size_t(rank());
      backend_.to_host(rows + own * n, data + own * count + done, n * sizeof(float), stream);
      backend_.call_on_host(stream, [=, this] { host_comm_->all_gather(rows, n, nullptr); });
      for (size_t r = 0; r < ranks; ++r)
        backend_.to_device(data + r * count + done, rows + r * n, n * sizeof(float), stream);
      done += n;
    }
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    staged(static_cast<std::byte*>(data), bytes, stream, [this, root](std::byte* part, size_t n) {
      host_comm_->broadcast(part, n, root, nullptr);
    });
  }
  void barrier() override { host_comm_->barrier(); }
  double all_reduce_scalar(double x) override { return host_comm_->all_reduce_scalar(x); }
  void busy(Busy now) override { host_comm_->busy(now); }
  void end_run(const std::string& why) override { host_comm_->end_run(why); }

 private:
  template <class T>
  void sum(T* data, size_t count, Stream stream) {
    staged(data, count, stream,
           [this](T* part, size_t n) { host_comm_->all_reduce(part, n, nullptr); });
  }
  // Piece by piece: to the host, `collective` on the host, and back.
  template <class T, class Collective>
  void staged(T* data, size_t count, Stream stream, Collective collective) {
    T* const part = reinterpret_cast<T*>(staging_);
    for (size_t done = 0; done < count;) {
      const size_t n = std::min(staging_bytes / sizeof(T), count - done);
      backend_.to_host(part, data + done, n * sizeof(T), stream);
      backend_.call_on_host(stream, [=] { collective(part, n); });
      backend_.to_device(data + done, part, n * sizeof(T), stream);
      done += n;
    }
  }

  Backend& backend_;
  std::unique_ptr<Communicator> host_comm_;
  std::byte* staging_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Backend& backend,
                                                       std::unique_ptr<Communicator> host_comm) {
  return std::make_unique<StagedCommunicator>(backend, std::move(host_comm));
}

}  // namespace bv
