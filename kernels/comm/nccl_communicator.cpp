#include "kernels/comm/nccl_communicator.h"

#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/comm/peer_watch.h"
#include "kernels/cuda/check.h"

namespace bv::BAREVISION_GPU {
namespace {

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result));
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Backend& backend, NcclPeers peers)
      : Communicator(peers.place.rank, peers.place.size),
        backend_(backend),
        place_(peers.place),
        host_comm_(std::move(peers.host_comm)),
        region_(SharedRegion::open(dup(peers.fd))),
        watch_(
            region_, place_, [this] { return failure(); },
            [this](const std::string& why) { host_comm_->end_run(why); }) {
    backend_.on_wait([this](bool begins) { begins ? watch_.wait_begins() : watch_.wait_ends(); });
    note_ = choose_order();
    ncclUniqueId id{};
    if (place_.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    host_comm_->broadcast(&id, sizeof id, 0, nullptr);
    watch_.wait_begins();
    ncclComm_t comm = nullptr;
    const ncclResult_t made = ncclCommInitRank(&comm, place_.size, id, place_.rank);
    check(made, made == ncclInvalidUsage
                    ? "ncclCommInitRank (do two ranks use the same GPU? --oversubscribe lets them)"
                    : "ncclCommInitRank");
    watch_.wait_ends();
    const std::lock_guard lock(asking_);
    comm_ = comm;
  }
  // Waits for the other ranks, any of which may die or hang on its last way.
  ~NcclCommunicator() override {
    backend_.on_wait({});
    const ncclComm_t comm = take_comm();
    watch_.wait_begins();
    ncclCommDestroy(comm);
    watch_.wait_ends();
  }

  void all_reduce(float* data, size_t count, Stream stream) override {
    sum(data, count, ncclFloat32, stream);
  }
  void all_reduce(double* data, size_t count, Stream stream) override {
    sum(data, count, ncclFloat64, stream);
  }
  void all_gather(float* data, size_t count, Stream stream) override {
    check(ncclAllGather(data + size_t(place_.rank) * count, data, count, ncclFloat32, comm_,
                        stream_of(stream)),
          "ncclAllGather");
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    check(ncclBroadcast(data, data, bytes, ncclInt8, root, comm_, stream_of(stream)),
          "ncclBroadcast");
  }
  // This rank's device has finished all that a peer may need before the hosts wait for each other.
  void barrier() override {
    backend_.synchronize(nullptr);
    host_comm_->barrier();
  }
  double all_reduce_scalar(double x) override { return host_comm_->all_reduce_scalar(x); }
  void busy(Busy now) override { host_comm_->busy(now); }
  void end_run(const std::string& why) override { host_comm_->end_run(why); }
  std::string note() const override { return note_; }

 private:
  // An NVSwitch adds in an order that differs from call to call (NVLS), so equal runs would not end
  // with equal bits.
  static std::string choose_order() {
    constexpr const char* variable = "NCCL_NVLS_ENABLE";
    setenv(variable, "0", 0);
    const std::string value = std::getenv(variable);
    return value == "0" ? ""
                        : std::string(variable) + "=" + value +
                              " in the environment: where an NVSwitch adds gradients, equal runs "
                              "may differ in their last bits";
  }
  // From then on the watch asks NCCL nothing more.
  ncclComm_t take_comm() {
    const std::lock_guard lock(asking_);
    return std::exchange(comm_, nullptr);
  }
  cudaStream_t stream_of(Stream stream) const {
    return reinterpret_cast<cudaStream_t>(stream ? stream : backend_.compute_stream());
  }
  void sum(void* data, size_t count, ncclDataType_t type, Stream stream) {
    check(ncclAllReduce(data, data, count, type, ncclSum, comm_, stream_of(stream)),
          "ncclAllReduce");
  }
  // Detected by the hosts or by NCCL.
  std::string failure() const override {
    if (std::string why = host_comm_->failure(); !why.empty()) return why;
    const std::lock_guard lock(asking_);
    if (!comm_) return "";
    ncclResult_t error = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &error);
    if (asked != ncclSuccess) error = asked;
    if (error == ncclSuccess || error == ncclInProgress) return "";
    return std::string("NCCL: ") + ncclGetErrorString(error);
  }

  Backend& backend_;
  RankPlace place_;
  std::unique_ptr<Communicator> host_comm_;
  SharedRegion region_;
  std::string note_;
  mutable std::mutex asking_;  // for the watch's questions to NCCL
  ncclComm_t comm_ = nullptr;
  PeerWatch watch_;  // last: its thread ends before what it watches is destroyed
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Backend& backend, NcclPeers peers) {
  return std::make_unique<NcclCommunicator>(backend, std::move(peers));
}

}  // namespace bv::BAREVISION_GPU
