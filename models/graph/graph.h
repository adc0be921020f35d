// A model as a fixed list of nodes over tensors and parameters, built once by models/NAME.cpp. All
// shapes are known from then on, so memory is planned before the first step. Each tensor is written
// by one node and read by one node (which returns its input again if the model needs it twice), so
// each gradient is written once, too. Parameters are stored in one flat arena in the order in which
// backward finishes their gradients, the reverse of the nodes' order; buffers, which have no
// gradient, have their own arena. A process that computes a part of the model holds only that
// part's parameters.
#pragma once
#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace bv {

// Handles: an index into Graph::tensors(), parameters() or buffers(); negative if there is none.
template <class Kind>
struct Handle {
  int id = -1;
  explicit operator bool() const { return id >= 0; }
};
using Tensor = Handle<struct TensorInfo>;
using Parameter = Handle<struct ParameterInfo>;
using Buffer = Handle<struct BufferInfo>;

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;
  size_t element_bytes;
  int storage;    // id of the tensor whose memory this one uses, usually its own
  int grad = -1;  // id of its gradient, once a node has requested it
  size_t bytes() const;
};

// How a parameter is initialised. uniform: in [-scale, scale); normal: standard deviation scale.
enum class Init : uint8_t { zeros, ones, normal, uniform };

struct ParameterInfo {
  std::string name;  // timm's or torchvision's
  std::vector<int64_t> shape;
  Init init;
  float scale = 0;
  bool decay = false;  // weight decay applies (false: biases, norms, position and class tokens)
  // A convolution weight: [K, C, R, S] in files and in `shape`, [K, R, S, C] in memory.
  bool channels_last = false;
  // Elements from the arena's start, set by Graph::finish; `elsewhere` if another process owns the
  // parameter.
  static constexpr size_t elsewhere = std::numeric_limits<size_t>::max();
  size_t offset = elsewhere;
  bool fp32 = false;               // kernels read it in fp32, whatever the dtype
  size_t fp32_offset = elsewhere;  // in an arena of only such parameters (Fp32Range)
  size_t count() const;
  bool owned() const { return offset != elsewhere; }
};

// A contiguous range of owned gradients. It begins with a norm block (GradientSquares), and no norm
// block spans two segments. Blocks are numbered as if one process held the whole model.
struct Segment {
  size_t begin, end;  // elements of the arena
  size_t norm_block;  // number of its first norm block
};

// Contiguous parameters that kernels read in fp32: elements [begin, end) of the arena, stored from
// element `first` on in an arena of only such parameters.
struct Fp32Range {
  size_t begin, end, first;
};

struct Slice {  // nodes [begin, end)
  int begin, end;
};

struct Context;

// One fused operation of the model. Memory is planned by calling its passes, so a pass must use the
// same tensors in every call; in evaluation, forward may omit some of them.
struct Node {
  using Pass = std::function<void(const Context&)>;
  std::string name;  // "blocks.0.attn.qkv"
  const char* type;  // "linear"
  Pass forward, backward = [](const Context&) {};
  bool in_place = false;  // forward overwrites what another node has written
  // The number of layers that the node computes. A dropout mask is keyed by the number of layers
  // before its own (layer_number()), so fusing nodes doesn't change the masks of later layers.
  int layers = 1;
  // Replace the backward passes of this node and of the previous one if one process runs both:
  // fused_backward also computes the previous node's first half, fused_previous its second half.
  Pass fused_backward = {}, fused_previous = {};
  // Replaces fused_previous if the previous node's backward is also fused with the node before it.
  Pass fused_middle = {};
  // Replaces this node's forward and the previous node's: one pass computes both. Empty: no fusion.
  Pass fused_forward = {};
  // The backward calls Context::all_reduce, so slots that run together run it in two halves.
  bool in_halves = false;
};

class Graph {
 public:
  explicit Graph(DType dtype) : dtype_(dtype) {}

  // Building.
  DType dtype() const { return dtype_; }
  Tensor tensor(std::string name, std::vector<int64_t> shape, DType);
  Tensor tensor(std::string name, std::vector<int64_t> shape) {
    return tensor(std::move(name), std::move(shape), dtype_);
  }
  Tensor bytes(std::string name, std::vector<int64_t> shape);  // of uint8_t
  Tensor same_memory(Tensor, std::string name);                // a new value in the same place
  Tensor grad(Tensor);                  // its gradient, created at the first request
  void share_grad(Tensor a, Tensor b);  // a and b have one gradient tensor
  Parameter parameter(std::string name, std::vector<int64_t> shape, Init, float scale = 0,
                      bool decay = false, bool channels_last = false);
  Parameter in_fp32(Parameter);  // kernels read it in fp32 (Context::master)
  Buffer buffer(std::string name, std::vector<int64_t> shape, Init);  // zeros or ones
  void add(Node);  // its parameters: those created since the previous node
  void cut_here() { cuts_.push_back(static_cast<int>(nodes_.size())); }  // a stage may begin here
  void head_here() { head_ = static_cast<int>(nodes_.size()); }  // the classifier begins here
  void end_with(Tensor logits, Tensor loss) { logits_ = logits, loss_ = loss; }
  // Lays out parameters and buffers: all of them, or those of the given slices. A slice begins at
  // node 0 or a cut and ends at a cut or after the last node. May be called again.
  void finish(std::span<const Slice> owned = {});

  // Reading.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int>& cuts() const { return cuts_; }
  // Whether a slice that begins at `begin` fuses this node's backward with the previous node's.
  bool fused(int node, int begin = 0) const {
    return node > begin && nodes_[static_cast<size_t>(node)].fused_backward;
  }
  // The pass to run as the node's forward in that slice. `repeats`: the blocks between cuts are
  // recomputed, so nodes aren't fused across a cut.
  const Node::Pass& forward(int node, Slice, bool repeats) const;
  // The pass to run as the node's backward in that slice.
  const Node::Pass& backward(int node, Slice) const;
  Tensor logits() const { return logits_; }  // [B, K]
  Tensor loss() const { return loss_; }      // [B], fp32
  const TensorInfo& info(Tensor t) const { return tensors_[static_cast<size_t>(t.id)]; }
  const std::vector<ParameterInfo>& buffers() const { return buffers_; }
  const ParameterInfo& info(Parameter p) const { return parameters_[static_cast<size_t>(p.id)]; }
  const ParameterInfo& info(Buffer s) const { return buffers_[static_cast<size_t>(s.id)]; }
  size_t arena_count() const { return arena_count_; }    // owned elements, padding included
  size_t buffer_count() const { return buffer_count_; }  // the same for buffers
  size_t parameter_count() const;                        // elements of the model
  size_t parameter_count(Slice) const;                   // of these nodes
  // A parameter's depth, from 0, for timm's layer decay: it is 0 before the first cut, grows by 1
  // with each cut, and by 1 more with the head.
  int layer_of(Parameter) const;
  int layers() const { return static_cast<int>(cuts_.size()) + 2; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Fp32Range>& fp32_ranges() const { return fp32_ranges_; }  // in arena order
  // How many of the arena's first `end` elements are in these ranges.
  size_t fp32_count(size_t end) const;
  size_t fp32_count() const { return fp32_count(arena_count_); }
  size_t norm_blocks() const { return norm_blocks_; }  // of the whole model
  // Returns n such that gradients [0, n) of the arena are final once the node's backward is done.
  size_t ready_after(int node) const { return ready_after_[static_cast<size_t>(node)]; }

 private:
  size_t add_fp32(size_t begin, size_t end);

  DType dtype_;
  std::vector<TensorInfo> tensors_;
  std::vector<ParameterInfo> parameters_, buffers_;
  std::vector<Node> nodes_;
  // Index of each node's first parameter and buffer; the last entries are the next node's.
  std::vector<int> node_parameters_ = {0}, node_buffers_ = {0};
  std::vector<int> cuts_;
  int head_ = INT_MAX;
  Tensor logits_, loss_;
  std::vector<size_t> ready_after_;
  std::vector<Segment> segments_;
  std::vector<Fp32Range> fp32_ranges_;
  size_t arena_count_ = 0, buffer_count_ = 0, norm_blocks_ = 0;
};

// Slots of saved memory whose passes run together, node by node (--shards with --sync-bn). The
// tensors of slot i are i * stride bytes after those of slot 0.
struct Together {
  int slots = 1;
  size_t stride = 0;
};

// The collectives that nodes use, over all processes and their slots that run together. Stream 0
// waits for each collective.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const = 0;
  // As in Communicator, with every slot as a rank of its own: slot i of rank r is number
  // r * slots + i. data: slot 0's.
  virtual void all_reduce(float* data, size_t count, Together) const = 0;
  virtual void all_gather(float* data, size_t count, Together) const = 0;
};

// A node's backward before its all_reduce, after it, or both.
enum class Half : uint8_t { both, first, second };

// The tensors that a node uses in a pass, and the workspace that the pass needs.
struct NodeUse {
  std::vector<Tensor> tensors;
  size_t workspace = 0;  // bytes
  double flops = 0;
};

// Gives a node its tensors and parameters as pointers, for one slot of saved memory.
struct Context {
  NodeUse* planning = nullptr;  // if set, uses are recorded, nothing runs and all tensors are null
  const Graph* graph = nullptr;
  Kernels* kernels = nullptr;
  Stream stream = nullptr;
  // The address of each storage in this slot. Null while planning.
  const std::vector<char*>* place = nullptr;
  void* workspace = nullptr;
  float* weights = nullptr;         // master weights, the flat arena
  bool fp32_alone = false;          // `weights` holds only parameters that are read in fp32
  void* compute_weights = nullptr;  // read by kernels; in fp32 equal to `weights`
  float* grads = nullptr;           // the flat arena, then the tail (GradientTail)
  float* buffers = nullptr;         // their flat arena
  const Peers* peers = nullptr;     // null: this process is alone, with one slot at a time
  Together together = {};
  int slot = 0;  // number among the slots that run together
  Half half = Half::both;
  const StepParams* params = nullptr;
  UpdateState* state = nullptr;
  double* sums = nullptr;  // [4] of Metrics
  // The batch, on the device.
  const uint8_t* images = nullptr;
  const Crop* crops = nullptr;
  const ImageOp* ops = nullptr;
  const Mix* mixes = nullptr;  // used in training only; null: images are not mixed
  const int32_t* labels = nullptr;
  bool accumulate = false;   // backward adds to the gradients instead of overwriting them
  bool training = true;      // dropout is on, batch norm uses the batch's statistics
  bool recomputing = false;  // forward ran before: running statistics are not updated again

  // Runs an operation or, while planning, asks for its workspace size. Fills in the fields common
  // to all operations of a pass: dtype, workspace, params, accumulate.
  template <class Op>
  void run(Op op) const {
    if constexpr (is_both_gradients<Op>)
      fill_in(op.weight), fill_in(op.input);
    else
      fill_in(op);
    if (planning) planning->flops += cost_of(op).flops;
    if constexpr (requires { op.workspace; }) {
      op.workspace = workspace;
      if (planning)
        planning->workspace = std::max(planning->workspace, kernels->workspace_bytes(op));
    }
    if (!planning) kernels->run(op, stream);
  }
  template <class Op>
  void fill_in(Op& op) const {
    if constexpr (requires { op.dtype; }) op.dtype = graph->dtype();
    if constexpr (requires { op.params; }) op.params = params;
    if constexpr (requires { op.accumulate; }) op.accumulate = accumulate;
  }
  bool first_half() const { return half != Half::second; }
  bool second_half() const { return half != Half::first; }
  // This slot's number among all processes' slots that run together.
  int part() const { return peers ? peers->rank() * together.slots + slot : 0; }
  // Called for each slot after all slots have enqueued their operations up to here; slot 0's call
  // runs the collective for all of them.
  void all_reduce(float* data, size_t count) const {
    if (!planning && slot == 0) peers->all_reduce(data, count, together);
  }
  void all_gather(float* data, size_t count) const {
    if (!planning && slot == 0) peers->all_gather(data, count, together);
  }

  void* at(Tensor t) const {
    if (planning && t) planning->tensors.push_back(t);
    if (!place || !t) return nullptr;
    return (*place)[static_cast<size_t>(graph->info(t).storage)];
  }
  float* floats(Tensor t) const { return static_cast<float*>(at(t)); }
  uint64_t* words(Tensor t) const { return static_cast<uint64_t*>(at(t)); }
  void* grad(Tensor t) const { return t ? at(Tensor{graph->info(t).grad}) : nullptr; }
  float* master(Parameter p) const;  // p must be marked in_fp32()
  const void* weight(Parameter p) const {
    if (!compute_weights || !p) return nullptr;
    return static_cast<const char*>(compute_weights) +
           graph->info(p).offset * size_of(graph->dtype());
  }
  float* dweight(Parameter p) const { return grads && p ? grads + graph->info(p).offset : nullptr; }
  float* buffer(Buffer s) const { return buffers ? buffers + graph->info(s).offset : nullptr; }
  float* tail() const { return grads ? grads + graph->arena_count() : nullptr; }
};

}  // namespace bv
