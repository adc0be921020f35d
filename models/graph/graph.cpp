#include "models/graph/graph.h"

#include <functional>
#include <numeric>
#include <stdexcept>

namespace bv {
namespace {

size_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies());
}

// Parameters start at multiples of OptimizerUpdate's chunk, and so of 64 bytes.
size_t padded(size_t count) {
  constexpr size_t chunk = OptimizerUpdate::decay_chunk;
  return (count + chunk - 1) / chunk * chunk;
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

Buffer Graph::buffer(std::string name, std::vector<int64_t> shape, Init init) {
  buffers_.push_back(
      {.name = std::move(name), .shape = std::move(shape), .init = init, .offset = buffer_count_});
  buffer_count_ += padded(buffers_.back().count());
  return {static_cast<int>(buffers_.size()) - 1};
}

void Graph::add(Node node) {
  nodes_.push_back(std::move(node));
  node_parameters_.push_back(static_cast<int>(parameters_.size()));
}

void Graph::finish() {
  size_t offset = 0;
  ready_after_.assign(nodes_.size(), 0);
  int end = static_cast<int>(parameters_.size());
  for (size_t node = nodes_.size(); node-- > 0;) {
    const int begin = node_parameters_[node];
    for (int p = begin; p < end; ++p) {
      ParameterInfo& info = parameters_[static_cast<size_t>(p)];
      info.offset = offset;
      offset += padded(info.count());
    }
    ready_after_[node] = offset;
    end = begin;
  }
  if (end != 0) throw std::logic_error("parameters before the first node");
  arena_count_ = offset;
}

int Graph::layer_of(Parameter p) const {
  const auto node_of = [this](int id) {  // the last that begins at or before it
    return static_cast<int>(std::ranges::upper_bound(node_parameters_, id) -
                            node_parameters_.begin()) -
           1;
  };
  const int node = node_of(p.id);
  if (node == node_of(static_cast<int>(parameters_.size()) - 1)) return layers() - 1;
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
