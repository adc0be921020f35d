#include "kernels/comm/nccl_communicator.h"

#include <nccl.h>
#include <unistd.h>

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
            region_, place_, [this] { return failure(); }, [this] { host_comm_->end_run(); }) {
    backend_.on_wait([this](bool begins) { begins ? watch_.wait_begins() : watch_.wait_ends(); });
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
    comm_ = comm;
  }
  ~NcclCommunicator() override {
    backend_.on_wait({});
    if (const ncclComm_t comm = comm_.exchange(nullptr)) ncclCommDestroy(comm);
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

 private:
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
    const ncclComm_t comm = comm_;
    if (!comm) return "";
    ncclResult_t error = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &error);
    if (asked != ncclSuccess) error = asked;
    if (error == ncclSuccess || error == ncclInProgress) return "";
    return std::string("NCCL: ") + ncclGetErrorString(error);
  }

  Backend& backend_;
  RankPlace place_;
  std::unique_ptr<Communicator> host_comm_;
  SharedRegion region_;
  std::atomic<ncclComm_t> comm_{nullptr};
  PeerWatch watch_;  // last: its thread ends before what it watches is destroyed
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Backend& backend, NcclPeers peers) {
  return std::make_unique<NcclCommunicator>(backend, std::move(peers));
}

}  // namespace bv::BAREVISION_GPU
