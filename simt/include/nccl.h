// NCCL for g++: the calls that this project makes, between the processes of one machine, through
// shared memory. A collective is queued on its stream like a kernel; once begun it is in flight
// while other streams run. A collective waits forever for stuck peers, as real NCCL may, so the
// caller must detect them. But if ranks wait for each other, or for a rank whose process has ended,
// one of them prints a line that describes the waits ("simt: deadlock: ..."), and their processes
// exit. They also exit with a line if their collectives or messages don't match.
//
// SIMT_NCCL_FAULT=WHAT:RANK:N plants a fault: in its N-th operation (from 1) that rank kills itself
// (die), sleeps forever (hang) or for three seconds (slow); N = 0: when it destroys a communicator.
// SIMT_NVSWITCH=N simulates a machine with an NVSwitch, which sums in order of arrival (NVLS,
// unless NCCL_NVLS_ENABLE=0): sums begin with rank N % ranks, so that another N acts like another
// run. With SIMT_NCCL_LINK=MB/s, sending takes time, one operation after another, but no
// processor time; with SIMT_STREAM_SEED=1 (control.h) one can measure how much of this time
// computation hides. Without SIMT_NCCL_LINK, sending takes no time. With SIMT_NCCL_BYTES=FILE, when
// a job's first communicator is destroyed, every rank appends the bytes that it has sent
// (simt::nccl_bytes_sent) in lines of "FROM TO BYTES".
#pragma once
#include <cstddef>

#include "simt/include/cuda_runtime.h"

inline namespace simt_cuda {

using ncclComm_t = struct SimtNcclComm*;
struct ncclUniqueId {
  char internal[128];
};
enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclInProgress = 7,
};
enum ncclDataType_t { ncclInt8 = 0, ncclFloat32 = 7, ncclFloat64 = 8 };
enum ncclRedOp_t { ncclSum = 0 };
struct ncclConfig_t;
constexpr int NCCL_SPLIT_NOCOLOR = -1;

const char* ncclGetErrorString(ncclResult_t);
ncclResult_t ncclGetUniqueId(ncclUniqueId*);
ncclResult_t ncclCommInitRank(ncclComm_t*, int size, ncclUniqueId, int rank);
// Waits for all ranks of the communicator. Ranks of one color form a new one, ordered by key; null
// if the color is NCCL_SPLIT_NOCOLOR.
ncclResult_t ncclCommSplit(ncclComm_t, int color, int key, ncclComm_t* made, ncclConfig_t*);
// Waits for the other ranks. Aborts the process if a graph still has collectives of the
// communicator, where real NCCL waits forever.
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*);
ncclResult_t ncclCommCount(ncclComm_t, int* ranks);
ncclResult_t ncclCommUserRank(ncclComm_t, int* rank);
// In place or not; ncclFloat32 and ncclFloat64, ncclSum.
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t,
                           ncclRedOp_t, ncclComm_t, cudaStream_t);
// ncclFloat32; each rank receives `count` elements.
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t,
                               ncclRedOp_t, ncclComm_t, cudaStream_t);
// ncclFloat32; each rank contributes `count` elements.
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t,
                           ncclComm_t, cudaStream_t);
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t, int root,
                           ncclComm_t, cudaStream_t);
// ncclInt8. The n-th send from a rank to another matches the n-th receive, and waits for it. Calls
// between ncclGroupStart and ncclGroupEnd, of one communicator on one stream, run concurrently.
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t,
                      cudaStream_t);
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

}  // namespace simt_cuda
