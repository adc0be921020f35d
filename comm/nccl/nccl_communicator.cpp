#include "comm/nccl/nccl_communicator.h"

#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/peer_watch.h"
#include "comm/transfers.h"
#include "kernels/cuda/check.h"

namespace bv::BAREVISION_GPU {
namespace {

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result));
}

// NCCL's communicators in this process, which the watch polls for errors.
class NcclComms {
 public:
  void add(ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    comms_.push_back(comm);
  }
  void remove(ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    std::erase(comms_, comm);
  }
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    for (const ncclComm_t comm : comms_) {
      ncclResult_t error = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm, &error);
      if (asked != ncclSuccess) error = asked;
      if (error != ncclSuccess && error != ncclInProgress)
        return std::string("NCCL: ") + ncclGetErrorString(error);
    }
    return "";
  }

 private:
  mutable std::mutex mutex_;
  std::vector<ncclComm_t> comms_;
};

// State shared by the communicator of all ranks and those of groups.
struct NcclRun {
  NcclRun(Backend& device, NcclPeers peers)
      : backend(device),
        hosts(std::move(peers.host_comm)),
        region(SharedRegion::open(dup(peers.fd))),
        watch(region, peers.place, [this] {
          const std::string why = hosts->failure();
          return why.empty() ? comms.failure() : why;
        }) {
    backend.on_wait([this](bool begins) { begins ? watch.wait_begins() : watch.wait_ends(); });
  }
  ~NcclRun() { backend.on_wait({}); }

  Backend& backend;
  std::unique_ptr<Communicator> hosts;
  NcclComms comms;
  SharedRegion region;
  PeerWatch watch;  // last: its thread ends before what it watches is destroyed
};

class NcclCommunicator : public Communicator {
 public:
  // make(&comm) waits for the other ranks.
  template <class Make>
  NcclCommunicator(NcclRun& run, int rank, int size, Make make)
      : Communicator(rank, size), run_(run) {
    run_.watch.wait_begins();
    make(&comm_);
    run_.watch.wait_ends();
    run_.comms.add(comm_);
  }
  // Waits for the other ranks, which may die or hang meanwhile.
  ~NcclCommunicator() override {
    run_.comms.remove(comm_);
    run_.watch.wait_begins();
    ncclCommDestroy(comm_);
    run_.watch.wait_ends();
  }

  void all_reduce(float* data, size_t count, Stream stream) override {
    sum(data, count, ncclFloat32, stream);
  }
  void all_reduce(double* data, size_t count, Stream stream) override {
    sum(data, count, ncclFloat64, stream);
  }
  void all_gather(float* data, size_t count, Stream stream) override {
    check(ncclAllGather(data + size_t(rank()) * count, data, count, ncclFloat32, comm_,
                        stream_of(stream)),
          "ncclAllGather");
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    check(ncclBroadcast(data, data, bytes, ncclInt8, root, comm_, stream_of(stream)),
          "ncclBroadcast");
  }
  void reduce_scatter(float* data, size_t count, Stream stream) override {
    check(ncclReduceScatter(data, data + size_t(rank()) * count, count, ncclFloat32, ncclSum, comm_,
                            stream_of(stream)),
          "ncclReduceScatter");
  }
  void exchange(std::span<const Transfer> transfers, Stream stream) override {
    require_peers(transfers, size());
    check(ncclGroupStart(), "ncclGroupStart");
    ncclResult_t result = ncclSuccess;
    for (const Transfer& t : transfers) {
      if (result != ncclSuccess) break;
      if (t.bytes == 0) continue;  // skipped at both ends
      result = t.send ? ncclSend(t.data, t.bytes, ncclInt8, t.peer, comm_, stream_of(stream))
                      : ncclRecv(t.data, t.bytes, ncclInt8, t.peer, comm_, stream_of(stream));
    }
    const ncclResult_t ended = ncclGroupEnd();
    check(result != ncclSuccess ? result : ended, "ncclSend or ncclRecv");
  }
  std::unique_ptr<Communicator> group(std::span<const int> ranks) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank());
    if (own == ranks.end())
      throw std::invalid_argument("group: rank " + std::to_string(rank()) + " doesn't name itself");
    const auto place = int(own - ranks.begin());
    return std::make_unique<NcclCommunicator>(
        run_, place, int(ranks.size()), [&](ncclComm_t* comm) {
          check(ncclCommSplit(comm_, ranks[0], place, comm, nullptr), "ncclCommSplit");
          int count = 0, own_rank = 0;
          check(ncclCommCount(*comm, &count), "ncclCommCount");
          check(ncclCommUserRank(*comm, &own_rank), "ncclCommUserRank");
          if (count != int(ranks.size()) || own_rank != place)
            throw std::invalid_argument("group: other ranks than rank " + std::to_string(rank()) +
                                        " names say that they are in its group");
        });
  }
  // Through the devices: only the communicator of all ranks connects their hosts.
  void barrier() override { all_reduce_scalar(0); }
  double all_reduce_scalar(double x) override {
    Backend& backend = run_.backend;
    const DeviceMemory sum(backend, sizeof x);
    backend.to_device(sum.data(), &x, sizeof x, nullptr);
    all_reduce(sum.data<double>(), 1, nullptr);
    backend.to_host(&x, sum.data(), sizeof x, nullptr);
    backend.synchronize(nullptr);
    return x;
  }
  void busy(Busy now) override { run_.hosts->busy(now); }

 private:
  cudaStream_t stream_of(Stream stream) const {
    return reinterpret_cast<cudaStream_t>(stream ? stream : run_.backend.compute_stream());
  }
  void sum(void* data, size_t count, ncclDataType_t type, Stream stream) {
    check(ncclAllReduce(data, data, count, type, ncclSum, comm_, stream_of(stream)),
          "ncclAllReduce");
  }

  NcclRun& run_;
  ncclComm_t comm_ = nullptr;
};

// Communicator of all ranks; their hosts are connected, too.
class NcclWorld final : private NcclRun, public NcclCommunicator {
 public:
  NcclWorld(Backend& device, NcclPeers peers)
      : NcclWorld(device, peers.place, std::move(peers), choose_order()) {}

  // This rank's device finishes all work that a peer may need before the hosts wait for each other.
  void barrier() override {
    backend.synchronize(nullptr);
    hosts->barrier();
  }
  double all_reduce_scalar(double x) override { return hosts->all_reduce_scalar(x); }
  void end_run(const std::string& why) override { hosts->end_run(why); }
  std::string note() const override { return note_; }

 private:
  NcclWorld(Backend& device, const RankPlace& place, NcclPeers peers, std::string note)
      : NcclRun(device, std::move(peers)),
        NcclCommunicator(
            *this, place.rank, place.size,
            [&, id = agreed_id(place, *hosts)](ncclComm_t* comm) { meet(comm, place, id); }),
        note_(std::move(note)) {}

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
  static ncclUniqueId agreed_id(const RankPlace& place, Communicator& hosts) {
    ncclUniqueId id{};
    if (place.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    hosts.broadcast(&id, sizeof id, 0, nullptr);
    return id;
  }
  static void meet(ncclComm_t* comm, const RankPlace& place, const ncclUniqueId& id) {
    const ncclResult_t made = ncclCommInitRank(comm, place.size, id, place.rank);
    check(made, made == ncclInvalidUsage
                    ? "ncclCommInitRank (do two ranks use the same GPU? --oversubscribe lets them)"
                    : "ncclCommInitRank");
  }

  std::string note_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Backend& backend, NcclPeers peers) {
  return std::make_unique<NcclWorld>(backend, std::move(peers));
}

}  // namespace bv::BAREVISION_GPU
