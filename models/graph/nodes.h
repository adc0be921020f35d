// The fused operations that models consist of. Each function adds a node and its parameters, whose
// names begin with `name`, to the graph and returns the tensors that the node writes.
#pragma once
#include <string>

#include "models/graph/graph.h"

namespace bv {

// Input of a model: normalised patches [B, P, 3*patch*patch] of the batch, or normalised images [B,
// size, size, 3]. In training each image first passes through `augment_layers` ImageOps, one node
// each, and is mixed with its partner (Context::mixes). Evaluation images are stored at the output
// size, whatever the size of training images.
Tensor input_patches(Graph&, const InputShape&, int augment_layers);
Tensor input_images(Graph&, const InputShape&, int augment_layers);

// Crops each training image and applies its ImageOps: [B, size, size, 3] bytes. Without layers, no
// node and a null tensor.
Tensor augment(Graph&, const AugmentShape&);

// A node's result, and its backward in two halves, for fusion with the next node if that reads the
// result: one operation computes the next node's backward (its arguments: `Op`) and the first half.
template <class Op>
struct FusedOut {
  Tensor out;
  int node = -1;  // the node's number; -1: it can't be fused
  std::function<void(const Context&, const Op&)> backward_first = {};
  // The second half; backward_rest_fused also computes the previous node's first half.
  Node::Pass backward_rest = {}, backward_rest_fused = {};
  FusedOut() = default;
  FusedOut(Tensor t) : out(t) {}
  bool of_last_node(const Graph& g) const {
    return node >= 0 && node + 1 == static_cast<int>(g.nodes().size());
  }
};

// For a convolution: the first half computes the batch norm's sums.
using BatchNormOut = FusedOut<ConvBackwardSums>;
// For a linear layer: the first half is the GELU's backward, or all of a layer norm's.
using LinearInput = FusedOut<LinearBackward>;

// A convolution without bias [N, H, W, C] -> [N, P, Q, channels], padded by half its filter. parts:
// the processes or shards over which the next batch norm computes its statistics. skip:
// ConvOut::skip is inp again, for a branch around the convolution; its gradient is added to inp's.
struct ConvOptions {
  int channels, filter, stride = 1, groups = 1;
  int parts = 1;
  bool skip = false;
  bool input_grad = true;  // false for a model's first layer
};
struct ConvOut {
  Tensor out, moments, skip;
};
ConvOut conv(Graph&, const std::string& name, const BatchNormOut& inp, const ConvOptions&);

// The tensor that a batch norm adds; or the output of a projection whose own batch norm, `norm`,
// the node applies as well.
struct Residual {
  Tensor out, moments = {};
  std::string norm = {};
  Residual() = default;
  Residual(Tensor t) : out(t) {}
  Residual(const ConvOut& projection, std::string norm_name)
      : out(projection.out), moments(projection.moments), norm(std::move(norm_name)) {}
};

// relu(batchnorm(from) + residual). Throws std::invalid_argument if a channel has a single value.
struct BatchNormOptions {
  bool relu = true;
  bool zero_weight = false;            // the weight starts from 0 instead of 1
  float eps = 1e-5f, momentum = 0.1f;  // PyTorch's
};
BatchNormOut batchnorm(Graph&, const std::string& name, const ConvOut& from, const Residual&,
                       const BatchNormOptions&);

// Padded by half the window.
Tensor max_pool(Graph&, const std::string& name, Tensor inp, int window, int stride);
// The mean of all positions: [N, H, W, C] -> [N, C].
Tensor average_pool(Graph&, const std::string& name, Tensor inp);

// A linear layer's result, for fusion with the next node if that is a layer norm that adds it:
// forward_with fills in the linear layer's arguments and runs one operation that computes both.
struct LinearOut {
  Tensor out;
  int node = -1;  // the node's number; -1: not a linear layer's result
  std::function<void(const Context&, LinearNormForward)> forward_with = {};
  LinearOut() = default;
  LinearOut(Tensor t) : out(t) {}
  operator Tensor() const { return out; }
  bool of_last_node(const Graph& g) const {
    return node >= 0 && node + 1 == static_cast<int>(g.nodes().size());
  }
};

struct WeightInit {
  Init init;
  float scale;
  Init bias_init = Init::zeros;
};
// inp weight^T + bias over the last dimension: [..., K] -> [..., N]. weight_shape: the shape in
// files, if it isn't [N, K] but a convolution's. input_grad: false for a model's first layer.
struct LinearOptions {
  int N;
  WeightInit init;
  bool bias = true;
  bool input_grad = true;
  std::vector<int64_t> weight_shape = {};
};
LinearOut linear(Graph&, const std::string& name, const LinearInput&, const LinearOptions&);

// dropout(gelu(inp weight^T + bias))
LinearInput linear_gelu(Graph&, const std::string& name, const LinearInput&, int N, WeightInit,
                        float drop = 0);

// Runs in place. Backward reads the result, so no later node may overwrite it.
Tensor tanh(Graph&, const std::string& name, Tensor inp);

// A residual branch, and the rates of its dropout and its drop path.
struct Branch {
  LinearOut out;
  float drop = 0, drop_path = 0;
};
// out = layernorm(sum), sum = inp + residual. Without residual, sum is inp. If `tokens` isn't 0,
// LayerNormOut::sum has only the first `tokens` tokens of each image.
struct LayerNormOut {
  Tensor sum;
  LinearInput out;
};
LayerNormOut layernorm(Graph&, const std::string& name, Tensor inp, const Branch& residual,
                       float eps, int tokens = 0);

// Multi-head self-attention of packed projections [B, N, 3, H, D] -> [B, N, H*D]. If `queries`
// isn't 0, only for the first `queries` tokens: [B, queries, H*D], or [B, H*D] for one.
Tensor attention(Graph&, const std::string& name, Tensor qkv, int heads, float drop,
                 int queries = 0);

// Prepends a class token and, if distilled, a distillation token; adds the position embedding:
// [B, P, C] -> [B, 1 + P, C] or [B, 2 + P, C].
Tensor embed_tokens(Graph&, Tensor patches, bool distilled);
// Two tokens [B, 2, C], split into two tensors [B, C].
struct TwoTokens {
  Tensor class_token, dist_token;
};
TwoTokens split_tokens(Graph&, const std::string& name, Tensor tokens);

// Drops elements. Adds no node at rate 0.
Tensor dropout(Graph&, const std::string& name, Tensor inp, float drop);

// Loss, metrics and the gradients' tail (GradientTail). Ends a graph. Returns the loss of each
// image, [B].
Tensor cross_entropy(Graph&, Tensor logits, float smoothing);
// The same for two heads: in training, the mean of their losses. The graph's logits are the mean of
// the heads' logits, from which evaluation computes its loss.
Tensor distilled_cross_entropy(Graph&, Tensor head, Tensor dist, float smoothing);

}  // namespace bv
