// A model's parameters, gradients, moments, moving average and buffers: flat arenas on the device.
// Weights that are channels last in memory (ParameterInfo) are reordered when read from or written
// to files.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/files/checkpoint.h"
#include "kernels/backend.h"
#include "models/graph/graph.h"

namespace bv {

// Arenas in host memory, as large as the device's; null: not in the model, or not copied.
struct ParameterCopy {
  float *weights, *buffers, *ema, *m, *v;
};

class Parameters {
 public:
  // Elements after the gradients that are reduced with them (GradientTail, which uses four; the
  // others keep the size a multiple of a chunk).
  static constexpr size_t tail = OptimizerUpdate::decay_chunk;

  // moments: 2 (m and v), 1 (m) or 0. ema: keeps a moving average of the weights. shards: parts of
  // a batch that each have gradients and buffers of their own. kept: segments of the arena whose
  // moments and average this process keeps, packed one after another; none is empty. weights_too:
  // keeps only these segments of the master weights, too, if kernels compute with a 16-bit copy.
  Parameters(Backend&, const Graph&, int moments, bool ema, int shards, std::vector<Segment> kept,
             bool weights_too = false);
  // Keeps all segments.
  Parameters(Backend& backend, const Graph& graph, int moments, bool ema = false, int shards = 1)
      : Parameters(backend, graph, moments, ema, shards, graph.segments()) {}
  // For inference: no gradients.
  Parameters(Backend& backend, const Graph& graph) : Parameters(backend, graph, 0) {
    has_gradients_ = false;
  }
  const Graph& graph() const { return *graph_; }
  void allocate();
  // Bytes of each arena, whether allocated or not.
  size_t weight_bytes() const {
    return keeps_all_weights() ? arena_bytes()
                               : kept_bytes() + graph_->fp32_count() * sizeof(float);
  }
  size_t gradient_bytes() const {
    return has_gradients_ ? static_cast<size_t>(shards_) * gradient_stride() * sizeof(float) : 0;
  }
  size_t optimizer_bytes() const { return kept_bytes() * static_cast<size_t>(moments_); }
  size_t compute_weights_bytes() const;
  size_t ema_bytes() const { return has_ema_ ? kept_bytes() : 0; }
  size_t buffer_bytes() const {
    return static_cast<size_t>(shards_) * buffer_stride() * sizeof(float);
  }

  float* weights() const { return weights_.data<float>(); }  // master weights
  float* grads(int shard = 0) const {
    return grads_.data<float>() + static_cast<size_t>(shard) * gradient_stride();
  }
  float* m() const { return m_.data<float>(); }
  float* v() const { return v_.data<float>(); }
  float* ema() const { return ema_.data<float>(); }
  // The segments that m(), v() and ema() hold; without keeps_all_weights() also weights().
  const std::vector<Segment>& kept() const { return kept_; }
  bool keeps_all() const { return kept_bytes() == arena_bytes(); }
  bool keeps_all_weights() const { return !weights_too_; }  // the same in all processes
  float* buffers(int shard = 0) const {
    return buffers_.data<float>() + static_cast<size_t>(shard) * buffer_stride();
  }
  int shards() const { return shards_; }
  // Elements from a shard's first gradient, or buffer, to the next shard's.
  size_t gradient_stride() const { return graph_->arena_count() + tail; }
  size_t buffer_stride() const;
  void* compute_weights() const {
    return compute_weights_.data() ? compute_weights_.data() : weights_.data();
  }

  // The parameters' fields of a Context for a pass in this dtype. masters: weights(), or ema() to
  // compute with the average. In 16 bits kernels read compute_weights(), rounded from one of the
  // two, and without keeps_all_weights() also fp32_weights(), copied from the same one.
  Context context(DType, float* masters) const;
  Context context() const { return context(graph_->dtype(), weights()); }
  // In 16 bits, on stream 0: compute_weights() = these master weights, rounded. Without
  // keeps_all_weights() rounds the kept segments only; fp32_weights() doesn't change.
  void round(const float* masters) const;
  // Without keeps_all_weights(): the weights that kernels read in fp32 (Fp32Range). copy_fp32()
  // updates them from the kept segments.
  float* fp32_weights() const { return fp32_weights_.data<float>(); }
  void copy_fp32(const float* kept) const;

  // Sets the initial values, which depend only on the seed and each parameter's name and init.
  void initialise(uint64_t seed);
  // Sets the parameters and buffers in the map; the rest keep their values. The moving average of a
  // parameter that is set restarts from its new value.
  void set_weights(const Tensors&);
  // Gathers a kept arena from all processes and returns the whole one, valid until the next call.
  // Not needed if each process keeps all segments.
  using Whole = std::function<const float*(float* kept)>;
  Tensors get_weights(const Whole& = {}) const;
  Tensors get_gradients() const;
  // Optimizer state named "m.NAME" and "v.NAME". Throws UserError if a tensor is missing.
  void set_moments(const Tensors&);
  Tensors get_moments(const Whole& = {}) const;
  // The same for the moving average of the weights, with the current buffers; empty without --ema.
  void set_ema(const Tensors&);
  Tensors get_ema(const Whole& = {}) const;
  void unpack(const float* kept) const;  // copies kept segments to their places in grads()
  // Size of the copy of all arenas that a checkpoint needs.
  size_t copy_bytes() const;
  size_t model_bytes() const;               // the same for the whole model, not just this part
  ParameterCopy copy_in(void* host) const;  // host: copy_bytes() bytes
  // Enqueues copies of the arenas on stream 0. `to` must live until the copies are done. Null
  // arenas are not copied, but `whole`, a collective, is called for them, too, in the order of
  // get_weights(), get_ema() and get_moments() (Trainer::saved).
  void copy_to(const ParameterCopy&, const Whole& whole) const;
  // The copy's tensors, in a checkpoint's form.
  CheckpointTensors tensors_of(const ParameterCopy&) const;
  // Zeros in the shapes that get_weights() and get_moments() return for another part of the model.
  static Tensors empty_weights(const Graph& part);
  Tensors empty_moments(const Graph& part) const;
  // Index of the first parameter with a gradient that is not finite, in the model's order; or -1.
  int first_not_finite() const;

 private:
  using Infos = std::vector<ParameterInfo>;
  size_t arena_bytes() const { return graph_->arena_count() * sizeof(float); }
  size_t own_buffer_bytes() const { return graph_->buffer_count() * sizeof(float); }
  size_t kept_bytes() const;
  // The whole arena that `kept` holds segments of.
  const float* whole_of(float* kept, const Whole&) const;
  Tensors download(const float* arena, const Infos&, const std::string& prefix) const;
  // Copy values to the device: all of them, or those that are in kept segments.
  template <class T>
  void send(T* to, std::span<const T> values) const;
  void send_kept(float* kept, const ParameterInfo&, std::span<const float> values) const;
  void set_kept(float* kept, const Tensors&, const std::string& prefix) const;

  Backend* backend_;
  const Graph* graph_;
  std::vector<Segment> kept_;
  int moments_, shards_;
  bool has_ema_, weights_too_, has_gradients_ = true;
  DeviceMemory weights_, fp32_weights_, compute_weights_, ema_, grads_, m_, v_, buffers_;
};

// The flags for OptimizerUpdate::decay. all: every parameter decays.
std::vector<uint8_t> decay_flags(const Graph&, bool all);
// OptimizerUpdate::lr_scale: decay^(layers below the head), as timm's layer decay.
std::vector<float> layer_scales(const Graph&, double decay);

}  // namespace bv
