// An all-reduce, chunk by chunk: every rank copies its part in, waits for all, sums all parts in
// the same order, waits for all again. So all ranks end with the same bits.
#include "kernels/simt/include/nccl.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "kernels/simt/device/control.h"
#include "kernels/simt/host/memory.h"

namespace {

constexpr int max_ranks = 64;
constexpr size_t chunk_bytes = 1 << 18;
constexpr int spins = 200;

struct alignas(64) Arrivals {
  std::atomic<uint64_t> count;
};
struct Shared {
  uint64_t seed;  // of this run
  Arrivals ranks[max_ranks];
  unsigned char parts[][chunk_bytes];  // of each rank
};
size_t shared_bytes(int size) { return sizeof(Shared) + chunk_bytes * static_cast<size_t>(size); }

// "die:1:7"
struct Fault {
  bool dies = false, hangs = false, is_slow = false;
  int rank = -1;
  uint64_t collective = 0;
};
Fault planted_fault() {
  Fault fault;
  char what[8] = "";
  unsigned long long n = 0;
  const char* text = std::getenv("SIMT_NCCL_FAULT");
  if (!text || std::sscanf(text, "%7[a-z]:%d:%llu", what, &fault.rank, &n) != 3) return fault;
  fault.collective = n;
  fault.dies = std::string(what) == "die";
  fault.hangs = std::string(what) == "hang";
  fault.is_slow = std::string(what) == "slow";
  return fault;
}

bool switch_sums() {
  const char *there = std::getenv("SIMT_NVSWITCH"), *used = std::getenv("NCCL_NVLS_ENABLE");
  return there && std::string(there) == "1" && !(used && std::string(used) == "0");
}

}  // namespace

inline namespace simt_cuda {

struct SimtNcclComm {
  int rank = 0, size = 1;
  Shared* shared = nullptr;
  uint64_t arrivals = 0, collectives = 0;
  bool has_buffers = false;
  const bool nvls = switch_sums();
  Fault fault = planted_fault();
  // Held by every captured collective.
  std::shared_ptr<SimtNcclComm> in_graphs{this, [](SimtNcclComm*) {}};

  ~SimtNcclComm() {
    if (shared) munmap(shared, shared_bytes(size));
  }

  void barrier() {
    shared->ranks[rank].count.store(++arrivals, std::memory_order_release);
    for (int r = 0; r < size; ++r)
      for (int i = 0; shared->ranks[r].count.load(std::memory_order_acquire) < arrivals; ++i)
        if (i > spins) usleep(20);
  }
  void begin_collective() {
    if (++collectives == fault.collective) fail_as_planted();
  }
  void fail_as_planted() const {
    if (rank != fault.rank) return;
    if (fault.dies) kill(getpid(), SIGKILL);
    while (fault.hangs) pause();
    if (fault.is_slow) sleep(3);
  }
  // The rank that the sums of this collective begin with.
  int first() const {
    return nvls ? static_cast<int>(std::mt19937_64(shared->seed + collectives)() %
                                   static_cast<uint64_t>(size))
                : 0;
  }

  template <class T>
  void all_reduce(const T* send, T* receive, size_t count) {
    begin_collective();
    constexpr size_t per_chunk = chunk_bytes / sizeof(T);
    for (size_t done = 0; done < count; done += per_chunk) {
      const size_t n = std::min(per_chunk, count - done);
      std::memcpy(shared->parts[rank], send + done, n * sizeof(T));
      barrier();
      T* const out = receive + done;
      std::memcpy(out, shared->parts[first()], n * sizeof(T));
      for (int r = 1; r < size; ++r) {
        const T* part = reinterpret_cast<const T*>(shared->parts[(first() + r) % size]);
        for (size_t i = 0; i < n; ++i) out[i] += part[i];
      }
      barrier();
    }
  }
  void all_gather(const float* send, float* receive, size_t count) {
    begin_collective();
    constexpr size_t per_chunk = chunk_bytes / sizeof(float);
    for (size_t done = 0; done < count; done += per_chunk) {
      const size_t n = std::min(per_chunk, count - done);
      std::memcpy(shared->parts[rank], send + done, n * sizeof(float));
      barrier();
      for (int r = 0; r < size; ++r)
        std::memcpy(receive + static_cast<size_t>(r) * count + done, shared->parts[r],
                    n * sizeof(float));
      barrier();
    }
  }
  void broadcast(const unsigned char* send, unsigned char* receive, size_t bytes, int root) {
    begin_collective();
    for (size_t done = 0; done < bytes; done += chunk_bytes) {
      const size_t n = std::min(chunk_bytes, bytes - done);
      if (rank == root) std::memcpy(shared->parts[root], send + done, n);
      barrier();
      std::memcpy(receive + done, shared->parts[root], n);
      barrier();
    }
  }
};

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess              ? "no error"
         : result == ncclUnhandledCudaError ? "unhandled cuda error"
         : result == ncclSystemError        ? "unhandled system error"
         : result == ncclInvalidArgument    ? "invalid argument"
                                            : "in progress";
}

// The id names memory of rank 0's process, which is freed once that has ended and all have unmapped
// it.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const int fd = memfd_create("nccl", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(shared_bytes(max_ranks))) != 0)
    return ncclSystemError;
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof seed) != 0 ||
      pwrite(fd, &seed, sizeof seed, offsetof(Shared, seed)) != sizeof seed)
    return ncclSystemError;
  std::snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", getpid(), fd);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  if (size < 1 || size > max_ranks || rank < 0 || rank >= size) return ncclInvalidArgument;
  const int fd = open(id.internal, O_RDWR | O_CLOEXEC);
  if (fd < 0) return ncclSystemError;
  void* address = mmap(nullptr, shared_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (address == MAP_FAILED) return ncclSystemError;
  auto made = std::make_unique<SimtNcclComm>();
  made->rank = rank, made->size = size, made->shared = static_cast<Shared*>(address);
  made->barrier();  // a collective call
  *comm = made.release();
  return ncclSuccess;
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
  if (comm->fault.collective == 0) comm->fail_as_planted();
  comm->barrier();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

}  // namespace simt_cuda

namespace {

bool on_device(const void* send, const void* receive, size_t bytes) {
  const simt::host::DeviceMemory& memory = simt::host::device_memory();
  return memory.refusal(send, bytes).empty() && memory.refusal(receive, bytes).empty();
}

ncclResult_t enqueue(const char* name, ncclComm_t comm, cudaStream_t stream,
                     std::function<void()> body) {
  if (!std::exchange(comm->has_buffers, true) &&
      !simt::host::device_memory().take(simt::collective_takes))
    return ncclUnhandledCudaError;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  if (status == cudaStreamCaptureStatusActive)
    body = [body = std::move(body), held = comm->in_graphs] { body(); };
  const cudaError_t error = simt::launch({name, {1}, {1}, 0, std::move(body)}, stream);
  return error == cudaSuccess ? ncclSuccess : ncclSystemError;
}

}  // namespace

inline namespace simt_cuda {

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  if (!on_device(send, receive, count * (type == ncclFloat64 ? 8 : 4))) return ncclInvalidArgument;
  if (type == ncclFloat32)
    return enqueue("ncclAllReduce<float>", comm, stream, [=] {
      comm->all_reduce(static_cast<const float*>(send), static_cast<float*>(receive), count);
    });
  if (type == ncclFloat64)
    return enqueue("ncclAllReduce<double>", comm, stream, [=] {
      comm->all_reduce(static_cast<const double*>(send), static_cast<double*>(receive), count);
    });
  return ncclInvalidArgument;
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto ranks = static_cast<size_t>(comm->size);
  if (type != ncclFloat32 || !on_device(send, send, count * sizeof(float)) ||
      !on_device(receive, receive, ranks * count * sizeof(float)))
    return ncclInvalidArgument;
  return enqueue("ncclAllGather", comm, stream, [=] {
    comm->all_gather(static_cast<const float*>(send), static_cast<float*>(receive), count);
  });
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt8 || root < 0 || root >= comm->size || !on_device(send, receive, count))
    return ncclInvalidArgument;
  return enqueue("ncclBroadcast", comm, stream, [=] {
    comm->broadcast(static_cast<const unsigned char*>(send), static_cast<unsigned char*>(receive),
                    count, root);
  });
}

}  // namespace simt_cuda
