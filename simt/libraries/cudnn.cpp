// Refuses mismatched shapes and types, too little workspace, and any algorithm but number 1, which
// is offered as deterministic with a small workspace. The workspace is only poisoned.
#include "simt/include/cudnn.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <new>
#include <vector>

#include "simt/host/operations.h"
#include "simt/include/cuda_bf16.h"
#include "simt/include/cuda_fp16.h"

inline namespace simt_cuda {

struct CudnnHandle {
  cudaStream_t stream = nullptr;
};
struct CudnnTensor {
  cudnnDataType_t type;
  int n, c, h, w;
};
struct CudnnFilter {
  cudnnDataType_t type;
  int k, c, r, s;
};
struct CudnnConvolution {
  int pad, stride, groups = 1;
};

namespace {

constexpr size_t workspace_bytes = 1024;

template <class T>
cudnnStatus_t create(T** made) {
  *made = new (std::nothrow) T{};
  return *made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
template <class T>
cudnnStatus_t destroy(T* object) {
  delete object;
  return CUDNN_STATUS_SUCCESS;
}

// The three tensors of a convolution, and its parameters.
struct Problem {
  CudnnTensor x, y;
  CudnnFilter w;
  CudnnConvolution conv;

  bool fits() const {
    const auto size = [&](int in, int filter) {
      return (in + 2 * conv.pad - filter) / conv.stride + 1;
    };
    return x.type == w.type && x.type == y.type && x.n == y.n && y.c == w.k &&
           x.c == w.c * conv.groups && w.k % conv.groups == 0 && y.h == size(x.h, w.r) &&
           y.w == size(x.w, w.s);
  }
  size_t x_count() const { return size_t(x.n) * x.c * x.h * x.w; }
  size_t y_count() const { return size_t(y.n) * y.c * y.h * y.w; }
  size_t w_count() const { return size_t(w.k) * w.c * w.r * w.s; }

  // Calls each(x index, w index, y index) for every product.
  template <class F>
  void every_product(F each) const {
    for (int n = 0; n < y.n; ++n)
      for (int p = 0; p < y.h; ++p)
        for (int q = 0; q < y.w; ++q)
          for (int r = 0; r < w.r; ++r)
            for (int s = 0; s < w.s; ++s) {
              const int h = p * conv.stride - conv.pad + r, at = q * conv.stride - conv.pad + s;
              if (h < 0 || h >= x.h || at < 0 || at >= x.w) continue;
              for (int k = 0; k < w.k; ++k) {
                const int first = k / (w.k / conv.groups) * w.c;
                const size_t yi = (size_t(n * y.h + p) * y.w + q) * y.c + k;
                const size_t xi = (size_t(n * x.h + h) * x.w + at) * x.c + first;
                const size_t wi = ((size_t(k) * w.r + r) * w.s + s) * w.c;
                for (int c = 0; c < w.c; ++c) each(xi + c, wi + c, yi);
              }
            }
  }
};

std::vector<float> floats_of(cudnnDataType_t type, const void* from, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = type == CUDNN_DATA_FLOAT ? static_cast<const float*>(from)[i]
                : type == CUDNN_DATA_HALF
                    ? __half2float(static_cast<const __half*>(from)[i])
                    : __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]);
  return values;
}

void store_floats(cudnnDataType_t type, void* to, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (type == CUDNN_DATA_FLOAT)
      static_cast<float*>(to)[i] = values[i];
    else if (type == CUDNN_DATA_HALF)
      static_cast<__half*>(to)[i] = __float2half(values[i]);
    else
      static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16(values[i]);
}

template <class Algorithm>
cudnnStatus_t offer(const Problem& problem, Algorithm algorithm, int most, int* count,
                    CudnnAlgorithm<Algorithm>* list) {
  if (!problem.fits()) return CUDNN_STATUS_BAD_PARAM;
  // The first algorithm of the real list is often nondeterministic, or needs a large workspace.
  const CudnnAlgorithm<Algorithm> all[] = {
      {static_cast<Algorithm>(0), CUDNN_STATUS_SUCCESS, 0, CUDNN_NON_DETERMINISTIC},
      {static_cast<Algorithm>(2), CUDNN_STATUS_SUCCESS, size_t{3} << 30, CUDNN_DETERMINISTIC},
      {algorithm, CUDNN_STATUS_SUCCESS, workspace_bytes, CUDNN_DETERMINISTIC}};
  *count = std::min<int>(most, std::size(all));
  std::copy_n(all, *count, list);
  return CUDNN_STATUS_SUCCESS;
}

// An operand of enqueue(): result = compute(a, b), or += with beta 1; `count` elements each.
struct Factor {
  const void* data;
  size_t count;
};
using Compute =
    std::function<void(std::vector<float>&, const std::vector<float>&, const std::vector<float>&)>;

cudnnStatus_t enqueue(const char* name, cudnnHandle_t handle, const Problem& problem, int algorithm,
                      void* workspace, size_t bytes, const void* alpha, const void* beta, Factor a,
                      Factor b, void* result, size_t result_count, Compute compute) {
  const float add = *static_cast<const float*>(beta);
  if (!problem.fits() || algorithm != 1 || bytes < workspace_bytes || !workspace ||
      *static_cast<const float*>(alpha) != 1 || (add != 0 && add != 1))
    return CUDNN_STATUS_BAD_PARAM;
  const cudnnDataType_t type = problem.x.type;
  const cudaError_t error = simt::launch(
      {name,
       {1},
       {1},
       0,
       [=] {
         std::memset(workspace, 0xFF, workspace_bytes);
         std::vector<float> sums(result_count);
         compute(sums, floats_of(type, a.data, a.count), floats_of(type, b.data, b.count));
         if (add != 0) {
           const std::vector<float> before = floats_of(type, result, result_count);
           for (size_t i = 0; i < result_count; ++i) sums[i] += before[i];
         }
         store_floats(type, result, sums);
       }},
      handle->stream);
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_BAD_PARAM     ? "CUDNN_STATUS_BAD_PARAM"
         : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                : "CUDNN_STATUS_EXECUTION_FAILED";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) { return create(made); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) { return destroy(t); }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  *t = {type, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* made) { return create(made); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t f) { return destroy(f); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t, int k, int c, int r, int s) {
  *f = {type, k, c, r, s};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* made) {
  return create(made);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c) {
  return destroy(c);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t,
                                              cudnnDataType_t compute) {
  if (pad_h != pad_w || stride_h != stride_w || dilation_h != 1 || dilation_w != 1 ||
      compute != CUDNN_DATA_FLOAT)
    return CUDNN_STATUS_NOT_SUPPORTED;
  c->pad = pad_h, c->stride = stride_h;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups) {
  c->groups = groups;
  return groups > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t) {
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t conv,
                                                     cudnnTensorDescriptor_t y, int most,
                                                     int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* list) {
  return offer({*x, *y, *w, *conv}, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, most, count,
               list);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy,
                                                          cudnnConvolutionDescriptor_t conv,
                                                          cudnnTensorDescriptor_t dx, int most,
                                                          int* count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* list) {
  return offer({*dx, *dy, *w, *conv}, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, most, count, list);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t dw, int most, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* list) {
  return offer({*x, *dy, *dw, *conv}, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, most, count, list);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t xd, const void* x,
                                      cudnnFilterDescriptor_t wd, const void* w,
                                      cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t bytes, const void* beta, cudnnTensorDescriptor_t yd,
                                      void* y) {
  const Problem p{*xd, *yd, *wd, *conv};
  return enqueue(
      "cudnnConvolutionForward", handle, p, algorithm, workspace, bytes, alpha, beta,
      {x, p.x_count()}, {w, p.w_count()}, y, p.y_count(),
      [p](auto& out, const auto& inp, const auto& weight) {
        p.every_product([&](size_t xi, size_t wi, size_t yi) { out[yi] += inp[xi] * weight[wi]; });
      });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t wd, const void* w,
                                           cudnnTensorDescriptor_t yd, const void* dy,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t bytes, const void* beta,
                                           cudnnTensorDescriptor_t xd, void* dx) {
  const Problem p{*xd, *yd, *wd, *conv};
  return enqueue("cudnnConvolutionBackwardData", handle, p, algorithm, workspace, bytes, alpha,
                 beta, {dy, p.y_count()}, {w, p.w_count()}, dx, p.x_count(),
                 [p](auto& dinp, const auto& dout, const auto& weight) {
                   p.every_product(
                       [&](size_t xi, size_t wi, size_t yi) { dinp[xi] += dout[yi] * weight[wi]; });
                 });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t xd, const void* x,
                                             cudnnTensorDescriptor_t yd, const void* dy,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, size_t bytes, const void* beta,
                                             cudnnFilterDescriptor_t wd, void* dw) {
  const Problem p{*xd, *yd, *wd, *conv};
  return enqueue("cudnnConvolutionBackwardFilter", handle, p, algorithm, workspace, bytes, alpha,
                 beta, {x, p.x_count()}, {dy, p.y_count()}, dw, p.w_count(),
                 [p](auto& dweight, const auto& inp, const auto& dout) {
                   p.every_product(
                       [&](size_t xi, size_t wi, size_t yi) { dweight[wi] += inp[xi] * dout[yi]; });
                 });
}

}  // namespace simt_cuda
