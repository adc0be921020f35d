#include "kernels/table/recording.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

namespace bv {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Truncates to bf16 instead of rounding: the conversions have separate tests.
uint16_t to_16_bits(float x, DType dtype) {
  if (dtype == DType::bf16) return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
}

// Optional tensors that are large enough to be part of the name: a residual, not a bias.
std::string large_options(const Fields& fields) {
  double largest = 0;
  for (const auto& [t, field] : fields.pointers) largest = std::max(largest, t.bytes);
  std::string names;
  for (const auto& [t, field] : fields.pointers)
    if (t.need == Need::optional && 8 * t.bytes > largest) names += std::string(" +") + t.name;
  return names;
}

// A text that shows which pointers are set, and which of them are equal.
std::string pattern(const Fields& fields) {
  std::string text;
  for (const auto& [t, field] : fields.pointers) {
    const auto same = [at = *field](const Fields::Pointer& p) { return *p.argument.field == at; };
    const auto first = std::find_if(fields.pointers.begin(), fields.pointers.end(), same);
    text += *field ? " " + std::to_string(first - fields.pointers.begin()) : " -";
  }
  return text;
}

}  // namespace

void RecordingKernels::note(Describe describe, const void* op, const Extras& extras,
                            const AnyOperation& operation) {
  Fields fields;
  describe(op, fields);
  CostCount count;
  describe(op, count);
  const Cost cost = count.cost;
  std::string shape = extras.count ? "count" + std::to_string(*extras.count) : "";
  std::string options;
  if (extras.residual_norm) options += " residual_norm";
  if (extras.relu) options += " relu";
  if (extras.dropped) options += " dropped";
  if (extras.accumulate) options += " +=";
  if (extras.kind) options += *extras.kind == OptimizerKind::sgd ? " sgd" : " adam";
  for (const auto& [name, value] : fields.sizes)
    if (*value != 1) shape += (shape.empty() ? "" : " ") + name + std::to_string(*value);
  const std::string name = fields.operation + large_options(fields) + options;
  const auto same = [&](const auto& o) { return o.name == name && o.shape == shape; };
  if (!counting && std::ranges::any_of(operations, same)) return;
  const auto [known, is_new] = known_.try_emplace(
      name + shape + pattern(fields) + std::to_string(cost.flops), operations.size());
  if (is_new) operations.push_back({name, shape, 0, cost, operation});
  operations[known->second].count += counting ? 1 : 0;
}

std::vector<std::byte> usual_values(const TensorArgument& t) {
  const std::string_view residual = "residual_";
  std::string_view name = t.name;
  if (name.starts_with(residual)) name.remove_prefix(residual.size());
  if (name == "params")
    return bytes_of(StepParams{.seed = 1, .lr = 1e-4f, .grad_scale = 1, .divisor = 1, .count = 1});
  if (name == "state") return bytes_of(UpdateState{.count = 1, .grad_divisor = 1, .loss_scale = 1});
  if (!t.floating) return std::vector<std::byte>(std::min<size_t>(size_t(t.bytes), 1 << 20));
  const bool positive = name == "v" || name == "rstd" || name == "running_var" || name == "moments";
  const float lowest = positive ? .25f : -1;
  const size_t size = size_of(t.dtype);
  std::vector<std::byte> bytes(std::min<size_t>(size_t(t.bytes), size << 17));
  uint32_t random = 1;
  for (size_t at = 0; at < bytes.size(); at += size) {
    random = random * 1664525u + 1013904223u;
    const float value = lowest + (1 - lowest) * static_cast<float>(random >> 8) * 0x1p-24f;
    const uint16_t word = to_16_bits(value, t.dtype);
    std::memcpy(&bytes[at], size == 4 ? static_cast<const void*>(&value) : &word, size);
  }
  return bytes;
}

}  // namespace bv
