// NCCL's calls as operations on streams.
#include "simt/include/nccl.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "simt/device/control.h"
#include "simt/host/memory.h"
#include "simt/host/stream.h"
#include "simt/libraries/nccl_communicator.h"

namespace {

using simt::nccl::Call;
using simt::nccl::Job;
using simt::nccl::Operation;
using simt::nccl::Part;

// Writes this rank's lines of "FROM TO BYTES".
void write_bytes(const Job& job) {
  const char* path = std::getenv("SIMT_NCCL_BYTES");
  if (!path) return;
  std::string lines;
  for (const auto& [to, bytes] : simt::nccl_bytes_sent())
    lines +=
        std::to_string(job.rank()) + " " + std::to_string(to) + " " + std::to_string(bytes) + "\n";
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0 || write(fd, lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
    std::perror("SIMT_NCCL_BYTES");
  if (fd >= 0) close(fd);
}

}  // namespace

inline namespace simt_cuda {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess              ? "no error"
         : result == ncclUnhandledCudaError ? "unhandled cuda error"
         : result == ncclSystemError        ? "unhandled system error"
         : result == ncclInvalidArgument    ? "invalid argument"
         : result == ncclInvalidUsage       ? "invalid usage"
                                            : "in progress";
}

// The id names memory of rank 0's process, which is freed once that process has ended and all
// others have unmapped it.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string path = Job::create();
  if (path.empty()) return ncclSystemError;
  std::snprintf(id->internal, sizeof id->internal, "%s", path.c_str());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) try {
  if (size < 1 || size > simt::nccl::max_ranks || rank < 0 || rank >= size)
    return ncclInvalidArgument;
  auto job = std::make_shared<Job>(id.internal, rank, size);
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  auto made = std::make_unique<SimtNcclComm>(job, 0, job->first_area(SimtNcclComm::bytes(size)),
                                             std::move(members), rank);
  made->barrier("ncclCommInitRank");
  *comm = made.release();
  return ncclSuccess;
} catch (const std::runtime_error&) {
  return ncclSystemError;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t*) try {
  simt::run_all();
  *made = comm->split(color, key).release();
  return ncclSuccess;
} catch (const std::runtime_error&) {
  return ncclSystemError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  simt::run_all();
  if (const long captured = comm->in_graphs.use_count() - 1) {
    std::fprintf(
        stderr,
        "ncclCommDestroy: %ld collectives of this communicator are in graphs that have not "
        "been destroyed: NCCL waits for that forever\n",
        captured);
    std::abort();
  }
  if (comm->fault.operation == 0) comm->fail_as_planted();
  comm->barrier("ncclCommDestroy");
  if (comm->id == 0) write_bytes(*comm->job);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks) {
  *ranks = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

}  // namespace simt_cuda

namespace {

bool on_device(const void* p, size_t bytes) {
  return bytes == 0 || simt::host::device_memory().refusal(p, bytes).empty();
}

ncclResult_t launch(ncclComm_t comm, cudaStream_t stream, std::string name,
                    std::vector<Call> calls) {
  if (!std::exchange(comm->has_buffers, true) &&
      !simt::host::device_memory().take(simt::collective_takes))
    return ncclUnhandledCudaError;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  auto all = std::make_shared<const std::vector<Call>>(std::move(calls));
  auto work = std::make_shared<simt::host::Work>(
      simt::host::Work{simt::host::Kind::kernel, std::move(name), nullptr});
  work->start = [comm, all = std::move(all),
                 held = status == cudaStreamCaptureStatusActive ? comm->in_graphs : nullptr] {
    return std::make_unique<Operation>(*comm, all);
  };
  const cudaError_t error = simt::host::launch_work(std::move(work), stream);
  return error == cudaSuccess ? ncclSuccess : ncclSystemError;
}

// Calls between ncclGroupStart and ncclGroupEnd.
struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  std::string name;
  std::vector<Call> calls;
};
thread_local int groups_open = 0;
thread_local std::vector<Pending> pending;

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const std::string& name, Call call) {
  if (groups_open == 0) {
    std::vector<Call> one;
    one.push_back(std::move(call));
    return launch(comm, stream, name, std::move(one));
  }
  for (Pending& p : pending)
    if (p.comm == comm && p.stream == stream) {
      p.name = "ncclGroup";
      p.calls.push_back(std::move(call));
      return ncclSuccess;
    }
  pending.push_back({comm, stream, name, {}});
  pending.back().calls.push_back(std::move(call));
  return ncclSuccess;
}

// Lane 0 is for collectives; each peer has a lane for sends to it and a lane for receives from it.
Call collective(const char* name, std::function<Part()> begin) {
  return {std::string(name) + " for", 0, std::move(begin)};
}

}  // namespace

namespace simt {
std::map<int, uint64_t> nccl_bytes_sent() {
  std::map<int, uint64_t> sent;
  for (int to = 0; to < nccl::max_ranks; ++to)
    if (nccl::Job::bytes_sent[to] > 0) sent[to] = nccl::Job::bytes_sent[to];
  return sent;
}
}  // namespace simt

inline namespace simt_cuda {

ncclResult_t ncclGroupStart() {
  ++groups_open;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (groups_open == 0) return ncclInvalidUsage;
  if (--groups_open > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (Pending& p : std::exchange(pending, {}))
    if (result == ncclSuccess)
      result = launch(p.comm, p.stream, std::move(p.name), std::move(p.calls));
  return result;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * (type == ncclFloat64 ? 8 : 4);
  if (!on_device(send, bytes) || !on_device(receive, bytes)) return ncclInvalidArgument;
  if (type == ncclFloat32)
    return add(comm, stream, "ncclAllReduce<float>", collective("ncclAllReduce", [=] {
                 return comm->all_reduce(static_cast<const float*>(send),
                                         static_cast<float*>(receive), count);
               }));
  if (type == ncclFloat64)
    return add(comm, stream, "ncclAllReduce<double>", collective("ncclAllReduce", [=] {
                 return comm->all_reduce(static_cast<const double*>(send),
                                         static_cast<double*>(receive), count);
               }));
  return ncclInvalidArgument;
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const size_t row = count * sizeof(float);
  if (type != ncclFloat32 || !on_device(send, static_cast<size_t>(comm->size) * row) ||
      !on_device(receive, row))
    return ncclInvalidArgument;
  return add(comm, stream, "ncclReduceScatter", collective("ncclReduceScatter", [=] {
               return comm->reduce_scatter(static_cast<const float*>(send),
                                           static_cast<float*>(receive), count);
             }));
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t row = count * sizeof(float);
  if (type != ncclFloat32 || !on_device(send, row) ||
      !on_device(receive, static_cast<size_t>(comm->size) * row))
    return ncclInvalidArgument;
  return add(comm, stream, "ncclAllGather", collective("ncclAllGather", [=] {
               return comm->all_gather(static_cast<const float*>(send),
                                       static_cast<float*>(receive), count);
             }));
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt8 || root < 0 || root >= comm->size || !on_device(send, count) ||
      !on_device(receive, count))
    return ncclInvalidArgument;
  return add(comm, stream, "ncclBroadcast", collective("ncclBroadcast", [=] {
               return comm->broadcast(static_cast<const unsigned char*>(send),
                                      static_cast<unsigned char*>(receive), count, root);
             }));
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt8 || peer < 0 || peer >= comm->size || !on_device(data, count))
    return ncclInvalidArgument;
  return add(comm, stream, "ncclSend",
             {"ncclSend to", 1 + 2 * peer,
              [=] { return comm->send(static_cast<const unsigned char*>(data), count, peer); }});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (type != ncclInt8 || peer < 0 || peer >= comm->size || !on_device(data, count))
    return ncclInvalidArgument;
  return add(comm, stream, "ncclRecv",
             {"ncclRecv from", 2 + 2 * peer,
              [=] { return comm->receive(static_cast<unsigned char*>(data), count, peer); }});
}

}  // namespace simt_cuda
