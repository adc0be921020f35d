#include "models/graph/graph.h"

#include <functional>
#include <numeric>
#include <stdexcept>

namespace bv {
namespace {

size_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies());
}

// Parameters start at multiples of OptimizerUpdate's chunk, and so of 64 bytes; those at which a
// pipeline stage may begin start at multiples of a norm block.
size_t padded(size_t count, size_t unit = OptimizerUpdate::decay_chunk) {
  return (count + unit - 1) / unit * unit;
}

}  // namespace

size_t TensorInfo::bytes() const { return product(shape) * element_bytes; }
size_t ParameterInfo::count() const { return product(shape); }

Tensor Graph::tensor(std::string name, std::vector<int64_t> shape, DType dtype) {
  const int id = static_cast<int>(tensors_.size());
  tensors_.push_back({std::move(name), std::move(shape), dtype, size_of(dtype), id});
  return {id};
}

Tensor Graph::bytes(std::string name, std::vector<int64_t> shape) {
  const Tensor t = tensor(std::move(name), std::move(shape));
  tensors_.back().element_bytes = 1;
  return t;
}

Tensor Graph::same_memory(Tensor of, std::string name) {
  TensorInfo info = this->info(of);
  info.name = std::move(name);
  info.grad = -1;
  tensors_.push_back(std::move(info));
  return {static_cast<int>(tensors_.size()) - 1};
}

Tensor Graph::grad(Tensor t) {
  if (info(t).grad >= 0) return {info(t).grad};
  const Tensor made = tensor("d " + info(t).name, info(t).shape, info(t).dtype);
  tensors_[static_cast<size_t>(t.id)].grad = made.id;
  return made;
}

void Graph::share_grad(Tensor a, Tensor b) {
  if (info(b).grad >= 0)
    throw std::logic_error(info(b).name + ": its gradient has a place already");
  const int shared = grad(a).id;
  tensors_[static_cast<size_t>(b.id)].grad = shared;
}

Parameter Graph::parameter(std::string name, std::vector<int64_t> shape, Init init, float scale,
                           bool decay, bool channels_last) {
  parameters_.push_back({std::move(name), std::move(shape), init, scale, decay, channels_last});
  return {static_cast<int>(parameters_.size()) - 1};
}

Parameter Graph::in_fp32(Parameter p) {
  parameters_[static_cast<size_t>(p.id)].fp32 = true;
  return p;
}

Buffer Graph::buffer(std::string name, std::vector<int64_t> shape, Init init) {
  buffers_.push_back({.name = std::move(name), .shape = std::move(shape), .init = init});
  return {static_cast<int>(buffers_.size()) - 1};
}

void Graph::add(Node node) {
  nodes_.push_back(std::move(node));
  node_parameters_.push_back(static_cast<int>(parameters_.size()));
  node_buffers_.push_back(static_cast<int>(buffers_.size()));
}

const Node::Pass& Graph::forward(int node, Slice slice, bool repeats) const {
  static const Node::Pass nothing = [](const Context&) {};
  const auto fused = [&](int n) {
    return n > slice.begin && n < slice.end && nodes_[static_cast<size_t>(n)].fused_forward &&
           !(repeats && std::ranges::binary_search(cuts_, n));
  };
  if (fused(node + 1)) return nothing;
  const Node& own = nodes_[static_cast<size_t>(node)];
  return fused(node) ? own.fused_forward : own.forward;
}

const Node::Pass& Graph::backward(int node, Slice slice) const {
  const Node& own = nodes_[static_cast<size_t>(node)];
  if (node < slice.begin || node >= slice.end) return own.backward;
  if (node + 1 < slice.end && fused(node + 1, slice.begin)) {
    const Node& next = nodes_[static_cast<size_t>(node) + 1];
    return fused(node, slice.begin) ? next.fused_middle : next.fused_previous;
  }
  return fused(node, slice.begin) ? own.fused_backward : own.backward;
}

void Graph::finish(std::span<const Slice> owned) {
  constexpr size_t norm_block = GradientSquares::norm_block;
  if (node_parameters_[0] != 0 || node_parameters_.back() != static_cast<int>(parameters_.size()))
    throw std::logic_error("parameters outside the nodes");
  const int count = static_cast<int>(nodes_.size());
  const auto cut = [this](int node) { return std::ranges::binary_search(cuts_, node); };
  for (const Slice& s : owned)
    if ((s.begin != 0 && !cut(s.begin)) || (s.end != count && !cut(s.end)) || s.begin >= s.end)
      throw std::logic_error("a slice must begin and end at cuts");
  const auto owns = [&](int node) {
    return owned.empty() || std::ranges::any_of(owned, [node](const Slice& s) {
             return s.begin <= node && node < s.end;
           });
  };
  const auto range = [](const std::vector<int>& firsts, int node, auto& infos) {
    const auto at = static_cast<size_t>(node);
    return std::span(infos).subspan(static_cast<size_t>(firsts[at]),
                                    static_cast<size_t>(firsts[at + 1] - firsts[at]));
  };

  size_t own = 0, whole = 0;  // elements so far, of this process and of the model
  ready_after_.assign(nodes_.size(), 0);
  segments_.clear();
  fp32_ranges_.clear();
  for (int node = count; node-- > 0;) {
    const bool mine = owns(node);
    const size_t begin = own;
    if (mine && (segments_.empty() || !owns(node + 1)))
      segments_.push_back({own, own, whole / norm_block});
    for (ParameterInfo& info : range(node_parameters_, node, parameters_)) {
      const size_t size = padded(info.count());
      info.offset = mine ? own : ParameterInfo::elsewhere;
      info.fp32_offset = mine && info.fp32 ? add_fp32(own, own + size) : ParameterInfo::elsewhere;
      whole += size;
      if (mine) own += size;
    }
    if (cut(node)) {
      whole = padded(whole, norm_block);
      if (mine) own = padded(own, norm_block);
    }
    if (own > begin) segments_.back().end = own;
    ready_after_[static_cast<size_t>(node)] = own;
  }
  arena_count_ = own;
  norm_blocks_ = (whole + norm_block - 1) / norm_block;

  buffer_count_ = 0;
  for (int node = 0; node < count; ++node)
    for (ParameterInfo& info : range(node_buffers_, node, buffers_)) {
      info.offset = owns(node) ? buffer_count_ : ParameterInfo::elsewhere;
      if (owns(node)) buffer_count_ += padded(info.count());
    }
}

// Returns the range's first element in the arena of parameters that are read in fp32.
size_t Graph::add_fp32(size_t begin, size_t end) {
  const size_t place = fp32_count(begin);
  if (!fp32_ranges_.empty() && fp32_ranges_.back().end == begin)
    fp32_ranges_.back().end = end;
  else
    fp32_ranges_.push_back({begin, end, place});
  return place;
}

size_t Graph::fp32_count(size_t end) const {
  const auto after = std::ranges::lower_bound(fp32_ranges_, end, {}, &Fp32Range::begin);
  if (after == fp32_ranges_.begin()) return 0;
  const Fp32Range& last = after[-1];  // the last one that begins before `end`
  return last.first + std::min(end, last.end) - last.begin;
}

float* Context::master(Parameter p) const {
  const ParameterInfo& info = graph->info(p);
  if (!info.fp32) throw std::logic_error(info.name + " is read in fp32 and not marked in_fp32()");
  return weights ? weights + (fp32_alone ? info.fp32_offset : info.offset) : nullptr;
}

int Graph::layer_of(Parameter p) const {
  // The last node whose first parameter is p or an earlier one.
  const int node = static_cast<int>(std::ranges::upper_bound(node_parameters_, p.id) -
                                    node_parameters_.begin()) -
                   1;
  if (node >= head_) return layers() - 1;
  return static_cast<int>(std::ranges::upper_bound(cuts_, node) - cuts_.begin());
}

size_t Graph::parameter_count() const {
  return parameter_count({0, static_cast<int>(nodes_.size())});
}

size_t Graph::parameter_count(Slice nodes) const {
  size_t count = 0;
  for (int p = node_parameters_[static_cast<size_t>(nodes.begin)];
       p < node_parameters_[static_cast<size_t>(nodes.end)]; ++p)
    count += parameters_[static_cast<size_t>(p)].count();
  return count;
}

}  // namespace bv
