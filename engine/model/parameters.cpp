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

// Calls use(info, values in memory order) for each owned tensor that `values` contains.
template <class Use>
void for_each(const std::vector<ParameterInfo>& infos, const Tensors& values,
              const std::string& prefix, const Use& use) {
  for (const ParameterInfo& p : infos) {
    const auto found = values.find(prefix + p.name);
    if (found == values.end() || !p.owned()) continue;
    if (found->second.data.size() != p.count())
      throw UserError(prefix + p.name + ": wrong number of elements");
    use(p, reordered(p, found->second.data, true));
  }
}

// Calls use(first element in the arena, first element in the packed segments, count) for each part
// of [begin, end) that is in a segment.
template <class Use>
void for_each_part(const std::vector<Segment>& segments, size_t begin, size_t end, const Use& use) {
  size_t packed = 0;
  for (const Segment& s : segments) {
    const size_t from = std::max(begin, s.begin), to = std::min(end, s.end);
    if (from < to) use(from, packed + from - s.begin, to - from);
    packed += s.end - s.begin;
  }
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
                       std::vector<Segment> kept, bool weights_too)
    : backend_(&backend),
      graph_(&graph),
      kept_(std::move(kept)),
      moments_(moments),
      shards_(shards),
      has_ema_(ema),
      weights_too_(weights_too && graph.dtype() != DType::fp32) {}

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
  weights_ = zeroed(keeps_all_weights() ? arena_bytes() : kept_bytes());
  if (!keeps_all_weights()) fp32_weights_ = zeroed(graph_->fp32_count() * sizeof(float));
  compute_weights_ = zeroed(compute_weights_bytes());
  ema_ = zeroed(ema_bytes());
  grads_ = zeroed(gradient_bytes());
  buffers_ = zeroed(buffer_bytes());
  if (moments_ > 0) m_ = zeroed(kept_bytes());
  if (moments_ > 1) v_ = zeroed(kept_bytes());
}

Context Parameters::context(DType dtype, float* masters) const {
  return {.weights = keeps_all_weights() ? masters : fp32_weights(),
          .fp32_alone = !keeps_all_weights(),
          .compute_weights = dtype == DType::fp32 ? masters : compute_weights(),
          .grads = grads(),
          .buffers = buffers()};
}

void Parameters::round(const float* masters) const {
  if (graph_->dtype() == DType::fp32) return;
  const auto run = [&](size_t begin, size_t from, size_t count) {
    backend_->kernels().run(RoundWeights{.out = compute_weights_.data<uint16_t>() + begin,
                                         .inp = masters + from,
                                         .count = count,
                                         .dtype = graph_->dtype()},
                            nullptr);
  };
  if (keeps_all_weights())
    run(0, 0, graph_->arena_count());
  else
    for_each_part(kept_, 0, graph_->arena_count(), run);
}

void Parameters::copy_fp32(const float* kept) const {
  for (const Fp32Range& range : graph_->fp32_ranges())
    for_each_part(kept_, range.begin, range.end, [&](size_t begin, size_t from, size_t count) {
      backend_->copy(fp32_weights() + range.first + begin - range.begin, kept + from,
                     count * sizeof(float), nullptr);
    });
}

void Parameters::set_weights(const Tensors& values) {
  const auto set = [&](const ParameterInfo& p, const std::vector<float>& data) {
    if (keeps_all_weights()) {
      send<float>(weights() + p.offset, data);
    } else {
      send_kept(weights(), p, data);
      if (p.fp32) send<float>(fp32_weights() + p.fp32_offset, data);
    }
    if (has_ema_) send_kept(ema(), p, data);
    if (graph_->dtype() == DType::fp32) return;
    std::vector<uint16_t> bits(data.size());
    std::ranges::transform(data, bits.begin(),
                           [&](float x) { return to_16_bits(x, graph_->dtype()); });
    send<uint16_t>(compute_weights_.data<uint16_t>() + p.offset, bits);
  };
  for_each(graph_->parameters(), values, "", set);
  for_each(graph_->buffers(), values, "",
           [this](const ParameterInfo& p, const std::vector<float>& data) {
             for (int shard = 0; shard < shards_; ++shard)
               send<float>(buffers(shard) + p.offset, data);
           });
}

Tensors Parameters::get_weights(const Whole& whole) const {
  const float* const all = keeps_all_weights() ? weights() : whole_of(weights(), whole);
  auto values = download(all, graph_->parameters(), "");
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
                        "'; it was saved with another optimizer");
    set_kept(arena, values, prefix);
  }
}

void Parameters::unpack(const float* kept) const {
  for_each_part(kept_, 0, graph_->arena_count(), [&](size_t begin, size_t from, size_t count) {
    backend_->copy(grads() + begin, kept + from, count * sizeof(float), nullptr);
  });
}

const float* Parameters::whole_of(float* kept, const Whole& whole) const {
  if (whole) return whole(kept);
  if (!keeps_all()) throw std::logic_error("other processes keep parts of the state");
  return kept;
}

Tensors Parameters::get_moments(const Whole& whole) const {
  Tensors all;
  for (const auto& [prefix, arena, number] : {std::tuple{"m.", m(), 1}, std::tuple{"v.", v(), 2}})
    if (number <= moments_)
      all.merge(download(whole_of(arena, whole), graph_->parameters(), prefix));
  return all;
}

void Parameters::set_ema(const Tensors& values) {
  if (!has_ema_) return;
  for (const ParameterInfo& p : graph_->parameters())
    if (!values.contains(p.name))
      throw UserError("checkpoint: the average of the weights lacks '" + p.name + "'");
  set_kept(ema(), values, "");
}

Tensors Parameters::get_ema(const Whole& whole) const {
  if (!has_ema_) return {};
  auto values = download(whole_of(ema(), whole), graph_->parameters(), "");
  values.merge(download(buffers(), graph_->buffers(), ""));
  return values;
}

size_t Parameters::copy_bytes() const {
  return align(arena_bytes()) * static_cast<size_t>(1 + moments_ + has_ema_) +
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
  return {.weights = piece(true, arena_bytes()),
          .buffers = piece(true, own_buffer_bytes()),
          .ema = piece(has_ema_, arena_bytes()),
          .m = piece(moments_ > 0, arena_bytes()),
          .v = piece(moments_ > 1, arena_bytes())};
}

void Parameters::copy_to(const ParameterCopy& to, const Whole& whole) const {
  const auto copy = [this](float* host, const float* arena, size_t bytes) {
    if (host) backend_->to_host(host, arena, bytes, nullptr);
  };
  copy(to.weights, keeps_all_weights() ? weights() : whole(weights()), arena_bytes());
  copy(to.buffers, buffers(), own_buffer_bytes());
  if (has_ema_) copy(to.ema, whole(ema()), arena_bytes());
  if (moments_ > 0) copy(to.m, whole(m()), arena_bytes());
  if (moments_ > 1) copy(to.v, whole(v()), arena_bytes());
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

template <class T>
void Parameters::send(T* to, std::span<const T> values) const {
  backend_->to_device(to, values.data(), values.size_bytes(), nullptr);
  backend_->synchronize(nullptr);  // `values` may be freed after this call
}

void Parameters::send_kept(float* kept, const ParameterInfo& p,
                           std::span<const float> values) const {
  for_each_part(kept_, p.offset, p.offset + values.size(),
                [&](size_t begin, size_t from, size_t count) {
                  send(kept + from, values.subspan(begin - p.offset, count));
                });
}

void Parameters::set_kept(float* kept, const Tensors& values, const std::string& prefix) const {
  for_each(
      graph_->parameters(), values, prefix,
      [&](const ParameterInfo& p, const std::vector<float>& data) { send_kept(kept, p, data); });
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
