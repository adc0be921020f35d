#include "simt/host/error.h"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>

namespace simt::host {
namespace {

constexpr struct {
  cudaError_t code;
  const char *name, *words;
} table[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const auto& row(cudaError_t code) {
  for (const auto& r : table)
    if (r.code == code) return r;
  return *std::prev(std::end(table));
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool has_had_error = false;  // and one that cudaErrorNotReady doesn't replace
thread_local std::map<cudaError_t, std::string> last_words;

std::atomic<cudaError_t> sticky_code = cudaSuccess;
std::atomic<const char*> sticky_words = nullptr;

}  // namespace

cudaError_t report(cudaError_t code, const std::string& why) {
  if (code == cudaSuccess) return code;
  last_error = code;
  last_words[code] = why.empty() ? why : std::string(row(code).words) + ": " + why;
  if (code == cudaErrorNotReady || has_had_error) return code;
  has_had_error = true;
  if (on_first_error) on_first_error(code);
  return code;
}
bool has_error() { return has_had_error || sticky() != cudaSuccess; }

void stick(cudaError_t code, const std::string& why) {
  static std::mutex mutex;
  static auto& all = *new std::deque<std::string>;  // never destroyed: callers keep the strings
  const std::lock_guard lock(mutex);
  if (sticky_code != cudaSuccess) return;  // later errors follow from the first
  sticky_words = all.emplace_back(why).c_str();
  sticky_code = code;
}
cudaError_t sticky() { return sticky_code; }
void forget_sticky() { sticky_code = cudaSuccess; }

}  // namespace simt::host

inline namespace simt_cuda {
using namespace simt::host;

const char* cudaGetErrorName(cudaError_t code) { return row(code).name; }
const char* cudaGetErrorString(cudaError_t code) {
  if (code != cudaSuccess && code == sticky()) return sticky_words;
  const auto words = last_words.find(code);
  return words == last_words.end() || words->second.empty() ? row(code).words
                                                            : words->second.c_str();
}
cudaError_t cudaPeekAtLastError() { return sticky() != cudaSuccess ? sticky() : last_error; }
cudaError_t cudaGetLastError() {
  const cudaError_t code = cudaPeekAtLastError();
  last_error = cudaSuccess;
  has_had_error = false;
  return code;
}

}  // namespace simt_cuda
