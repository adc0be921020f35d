#include "engine/model/parameters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "engine/files/channels_last.h"
#include "engine/model/memory.h"

namespace bv {
namespace {

// The nearest 16-bit value, ties to even, as a bit pattern.
uint16_t to_16_bits(float x, DType dtype) {
  if (dtype == DType::fp16) return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  if (x != x) return 0x7FFF;  // rounding could carry a NaN into infinity
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

std::vector<float> reordered(const ParameterInfo& p, const std::vector<float>& from,
                             bool to_memory) {
  if (!p.channels_last) return from;
  std::vector<float> to(from.size());
  (to_memory ? to_memory_order : to_file_order)(p.shape, from.data(), to.data());
  return to;
}

TensorViews views_of(const std::vector<ParameterInfo>& infos, const float* copy,
                     const std::string& prefix) {
  TensorViews views;
  for (const ParameterInfo& p : infos)
    if (p.owned())
      views.push_back({prefix + p.name, p.shape, {copy + p.offset, p.count()}, p.channels_last});
  return views;
}

TensorViews sorted(TensorViews views, const TensorViews& more) {
  views.insert(views.end(), more.begin(), more.end());
  std::ranges::sort(views, {}, &TensorView::name);
  return views;
}

}  // namespace

Parameters::Parameters(Backend& backend, const Graph& graph, int moments, bool ema, int shards,
                       std::vector<Segment> kept)
    : backend_(&backend),
      graph_(&graph),
      kept_(std::move(kept)),
      moments_(moments),
      shards_(shards),
      has_ema_(ema) {}

size_t Parameters::buffer_stride() const { return align(own_buffer_bytes()) / sizeof(float); }

size_t Parameters::kept_bytes() const {
  size_t elements = 0;
  for (const Segment& s : kept_) elements += s.end - s.begin;
  return elements * sizeof(float);
}

size_t Parameters::compute_weights_bytes() const {
  return graph_->dtype() == DType::fp32 ? 0 : graph_->arena_count() * size_of(graph_->dtype());
}

void Parameters::allocate() {
  const auto zeroed = [this](size_t bytes) { return zeroed_memory(*backend_, bytes); };
  // Zeroed, so that the padding between parameters stays zero.
  weights_ = zeroed(weight_bytes());
  compute_weights_ = zeroed(compute_weights_bytes());
  ema_ = zeroed(ema_bytes());
  grads_ = zeroed(gradient_bytes());
  buffers_ = zeroed(buffer_bytes());
  if (moments_ > 0) m_ = zeroed(kept_bytes());
  if (moments_ > 1) v_ = zeroed(kept_bytes());
}

Context Parameters::context(DType dtype, float* masters) const {
  return {.weights = masters,
          .compute_weights = dtype == DType::fp32 ? masters : compute_weights(),
          .grads = grads(),
          .buffers = buffers()};
}

void Parameters::round(const float* masters) const {
  if (graph_->dtype() == DType::fp32) return;
  backend_->kernels().run(RoundWeights{.out = compute_weights(),
                                       .inp = masters,
                                       .count = graph_->arena_count(),
                                       .dtype = graph_->dtype()},
                          nullptr);
}

void Parameters::set_weights(const Tensors& values) {
  upload(weights(), graph_->parameters(), values, "", compute_weights_.data<uint16_t>());
  upload(buffers(), graph_->buffers(), values, "");
  for (int shard = 1; shard < shards_; ++shard)
    backend_->copy(buffers(shard), buffers(), own_buffer_bytes(), nullptr);
  if (has_ema_) pack(ema(), weights());
}

Tensors Parameters::get_weights() const {
  auto values = download(weights(), graph_->parameters(), "");
  values.merge(download(buffers(), graph_->buffers(), ""));
  return values;
}

Tensors Parameters::get_gradients() const { return download(grads(), graph_->parameters(), ""); }

void Parameters::set_moments(const Tensors& values) {
  for (const auto& [prefix, arena, number] : {std::tuple{"m.", m(), 1}, std::tuple{"v.", v(), 2}}) {
    if (number > moments_) continue;
    for (const ParameterInfo& p : graph_->parameters())
      if (!values.contains(prefix + p.name))
        throw UserError("checkpoint: the optimizer's state lacks '" + (prefix + p.name) +
                        "'; it was saved by another optimizer");
    set_kept(arena, values, prefix);
  }
}

// Goes through the gradients, whose padding stays zero.
void Parameters::set_kept(float* arena, const Tensors& values, const std::string& prefix) const {
  upload(grads(), graph_->parameters(), values, prefix);
  pack(arena, grads());
}

void Parameters::pack(float* to, const float* arena) const {
  for (const Segment& s : kept_) {
    backend_->copy(to, arena + s.begin, (s.end - s.begin) * sizeof(float), nullptr);
    to += s.end - s.begin;
  }
}

void Parameters::unpack(const float* kept) const {
  for (const Segment& s : kept_) {
    backend_->copy(grads() + s.begin, kept, (s.end - s.begin) * sizeof(float), nullptr);
    kept += s.end - s.begin;
  }
}

void Parameters::need_all() const {
  if (!keeps_all()) throw std::logic_error("other processes keep parts of the state");
}

Tensors Parameters::get_moments() const {
  need_all();
  Tensors all;
  if (m()) all = download(m(), graph_->parameters(), "m.");
  if (v()) all.merge(download(v(), graph_->parameters(), "v."));
  return all;
}

void Parameters::set_ema(const Tensors& values) {
  if (!has_ema_) return;
  for (const ParameterInfo& p : graph_->parameters())
    if (!values.contains(p.name))
      throw UserError("checkpoint: the average of the weights lacks '" + p.name + "'");
  set_kept(ema(), values, "");
}

Tensors Parameters::get_ema() const {
  if (!has_ema_) return {};
  need_all();
  auto values = download(ema(), graph_->parameters(), "");
  values.merge(download(buffers(), graph_->buffers(), ""));
  return values;
}

size_t Parameters::copy_bytes() const {
  return align(weight_bytes()) * static_cast<size_t>(1 + moments_ + has_ema_) +
         align(own_buffer_bytes());
}

size_t Parameters::model_bytes() const {
  size_t parameters = 0, buffers = 0;
  for (const ParameterInfo& p : graph_->parameters()) parameters += p.count();
  for (const ParameterInfo& p : graph_->buffers()) buffers += p.count();
  return (parameters * static_cast<size_t>(1 + moments_ + has_ema_) + buffers) * sizeof(float);
}

ParameterCopy Parameters::copy_in(void* host) const {
  char* at = static_cast<char*>(host);
  const auto piece = [&at](bool there, size_t bytes) {
    char* const begin = there ? at : nullptr;
    if (there) at += align(bytes);
    return reinterpret_cast<float*>(begin);
  };
  return {.weights = piece(true, weight_bytes()),
          .buffers = piece(true, own_buffer_bytes()),
          .ema = piece(has_ema_, weight_bytes()),
          .m = piece(moments_ > 0, weight_bytes()),
          .v = piece(moments_ > 1, weight_bytes())};
}

void Parameters::copy_to(const ParameterCopy& to, const Whole& whole) const {
  const auto copy = [this](float* host, const float* arena, size_t bytes) {
    if (host) backend_->to_host(host, arena, bytes, nullptr);
  };
  copy(to.weights, weights(), weight_bytes());
  copy(to.buffers, buffers(), own_buffer_bytes());
  if (has_ema_) copy(to.ema, whole(ema()), weight_bytes());
  if (moments_ > 0) copy(to.m, whole(m()), weight_bytes());
  if (moments_ > 1) copy(to.v, whole(v()), weight_bytes());
}

CheckpointTensors Parameters::tensors_of(const ParameterCopy& copy) const {
  const auto& parameters = graph_->parameters();
  const TensorViews buffers = views_of(graph_->buffers(), copy.buffers, "");
  CheckpointTensors tensors{.weights = sorted(views_of(parameters, copy.weights, ""), buffers)};
  if (copy.ema) tensors.ema = sorted(views_of(parameters, copy.ema, ""), buffers);
  if (copy.m) tensors.optimizer = views_of(parameters, copy.m, "m.");
  tensors.optimizer =
      sorted(copy.v ? views_of(parameters, copy.v, "v.") : TensorViews(), tensors.optimizer);
  return tensors;
}

void Parameters::upload(float* arena, const Infos& infos, const Tensors& values,
                        const std::string& prefix, uint16_t* rounded) const {
  const auto send = [this](auto* to, const auto& data) {
    backend_->to_device(to, data.data(), data.size() * sizeof data[0], nullptr);
    backend_->synchronize(nullptr);
  };
  for (const ParameterInfo& p : infos) {
    const auto found = values.find(prefix + p.name);
    if (found == values.end() || !p.owned()) continue;
    if (found->second.data.size() != p.count())
      throw UserError(prefix + p.name + ": wrong number of elements");
    const std::vector<float> data = reordered(p, found->second.data, true);
    send(arena + p.offset, data);
    if (!rounded) continue;
    std::vector<uint16_t> bits(data.size());
    std::ranges::transform(data, bits.begin(),
                           [&](float x) { return to_16_bits(x, graph_->dtype()); });
    send(rounded + p.offset, bits);
  }
}

Tensors Parameters::download(const float* arena, const Infos& infos,
                             const std::string& prefix) const {
  Tensors values;
  for (const ParameterInfo& p : infos) {
    if (!p.owned()) continue;
    HostTensor& t = values[prefix + p.name];
    t = {p.shape, std::vector<float>(p.count())};
    backend_->to_host(t.data.data(), arena + p.offset, p.count() * sizeof(float), nullptr);
    backend_->synchronize(nullptr);
    t.data = reordered(p, t.data, false);
  }
  return values;
}

int Parameters::first_not_finite() const {
  const auto values = get_gradients();
  const Infos& infos = graph_->parameters();
  const auto found = std::ranges::find_if(infos, [&](const ParameterInfo& p) {
    return p.owned() &&
           !std::ranges::all_of(values.at(p.name).data, [](float x) { return std::isfinite(x); });
  });
  return found == infos.end() ? -1 : static_cast<int>(found - infos.begin());
}

Tensors Parameters::empty_weights(const Graph& part) {
  Tensors values;
  for (const Infos* infos : {&part.parameters(), &part.buffers()})
    for (const ParameterInfo& p : *infos)
      if (p.owned()) values[p.name] = {p.shape, std::vector<float>(p.count())};
  return values;
}

Tensors Parameters::empty_moments(const Graph& part) const {
  Tensors values;
  for (const auto& [prefix, arena] : {std::pair{"m.", m()}, {"v.", v()}})
    for (const ParameterInfo& p : part.parameters())
      if (arena && p.owned()) values[prefix + p.name] = {p.shape, std::vector<float>(p.count())};
  return values;
}

std::vector<uint8_t> decay_flags(const Graph& graph, bool all) {
  constexpr size_t chunk = OptimizerUpdate::decay_chunk;
  std::vector<uint8_t> flags(graph.arena_count() / chunk, 0);
  for (const ParameterInfo& p : graph.parameters())
    if (p.owned() && (all || p.decay))
      std::memset(flags.data() + p.offset / chunk, 1, (p.count() + chunk - 1) / chunk);
  return flags;
}

std::vector<float> layer_scales(const Graph& graph, double decay) {
  constexpr size_t chunk = OptimizerUpdate::decay_chunk;
  std::vector<float> scales(graph.arena_count() / chunk, 1);
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const Parameter p{static_cast<int>(i)};
    if (!graph.info(p).owned()) continue;
    const size_t begin = graph.info(p).offset / chunk,
                 count = (graph.info(p).count() + chunk - 1) / chunk;
    std::fill_n(scales.begin() + static_cast<ptrdiff_t>(begin), count,
                static_cast<float>(std::pow(decay, graph.layers() - 1 - graph.layer_of(p))));
  }
  return scales;
}

}  // namespace bv
