// Arguments that an operation must refuse with a std::invalid_argument that names the operation
// and the argument, before anything is read or written. In every case of the kernel tests, each
// size, pointer and dtype that the operation describes (kernels/arguments.h) is made wrong in turn;
// a test file adds further refusals with refuses<Op>().
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/table/fields.h"
#include "tests/kernels/device.h"

namespace bv::test {

template <class Op>
struct Refusal {
  const char* named;  // must be in the message
  std::function<void(Op&)> spoil;
  enum Where : uint8_t { everywhere, cpu, gpu } where = everywhere;
};

template <class Op>
std::vector<Refusal<Op>>& refusals() {
  static std::vector<Refusal<Op>> list;
  return list;
}
// In a test file:  const bool added = refuses<Op>({{"count", [](Op& o) { o.count = 0; }}});
template <class Op>
bool refuses(std::vector<Refusal<Op>> list) {
  refusals<Op>().insert(refusals<Op>().end(), list.begin(), list.end());
  return true;
}

// drop: the operation's member of type Drop.
template <class Op>
Op operation_of(Drop Op::*);
template <auto drop>
bool refuses_wrong_drop() {
  using Op = decltype(operation_of(drop));
  return refuses<Op>(
      {{"drop", [](Op& op) { (op.*drop).drop = -0.1f; }},
       {"drop", [](Op& op) { (op.*drop).drop = 1.1f; }},
       {"drop", [](Op& op) { (op.*drop).drop = NAN; }},
       {"multiple of image_rows", [](Op& op) { (op.*drop).image_rows = max_size; }}});
}

// Size of the memory block that a pointer points into; 0: not the test's memory.
using BytesAt = std::function<size_t(const void*)>;

// Returns sentences about wrong arguments that are accepted, and fields that aren't described.
template <class Op>
std::vector<std::string> accepted_mistakes(Kernels& kernels, const Device& device, Op op,
                                           const BytesAt& bytes_at) {
  std::vector<std::string> failures;
  const Op valid = op;
  Fields fields(op);
  const std::string& name = fields.operation;
  const auto must_refuse = [&](const std::string& argument) {
    try {
      kernels.run(op, nullptr);
      failures.push_back(name + " accepts a wrong " + argument);
    } catch (const std::invalid_argument& e) {
      const std::string message = e.what();
      if (!message.starts_with(name + ": ") || message.find(argument, name.size()) == message.npos)
        failures.push_back("\"" + message + "\" doesn't name " + name + " and " + argument);
    }
    std::memcpy(static_cast<void*>(&op), &valid, sizeof op);
  };
  for (const Fields::Size& size : fields.sizes)
    for (const int wrong : {0, -1}) *size.value = wrong, must_refuse(size.name);
  // A size that isn't described would go unchecked: every integer of a shape must be refused.
  if constexpr (requires { op.shape; }) {
    size_t integers = sizeof op.shape / sizeof(int);
    if constexpr (requires { op.shape.mean; }) integers -= 6;  // mean and std
    for (size_t i = 0; i < integers; ++i)
      reinterpret_cast<int*>(&op.shape)[i] = -1, must_refuse("");
  }
  for (const auto& [t, field] : fields.pointers) {
    const bool workspace = t.need == Need::workspace && *field;  // the device needs one
    if (t.need == Need::required || workspace) *field = nullptr, must_refuse(t.name);
    if (!device.host_threads && *field)
      *field = static_cast<const char*>(*field) + (workspace ? 128 : 8), must_refuse(t.name);
    const size_t held = *field ? bytes_at(*field) : 0;
    if (t.bytes > 0 && t.bytes != double(held))
      failures.push_back(name + "." + t.name + ": described as " + std::to_string(t.bytes) +
                         " bytes, has " + std::to_string(held));
  }
  if constexpr (requires { op.dtype; } && !every_device_has_its_dtypes<Op>)
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
      if (std::find(device.dtypes.begin(), device.dtypes.end(), dtype) == device.dtypes.end())
        // In 16 bits, more workspace may be needed, and missing workspace may be reported first.
        op.dtype = dtype, must_refuse(device.dtypes.size() > 1 ? "" : "dtype");
  for (const Refusal<Op>& refusal : refusals<Op>()) {
    const auto elsewhere = device.host_threads ? Refusal<Op>::gpu : Refusal<Op>::cpu;
    const bool limit_of_fast_ones = refusal.where == Refusal<Op>::gpu && device.plain;
    if (refusal.where != elsewhere && !limit_of_fast_ones)
      refusal.spoil(op), must_refuse(refusal.named);
  }
  // Every pointer that the operation holds must be described. Padding may hold an old pointer.
  __builtin_clear_padding(&op);
  for (size_t at = 0; at + sizeof(void*) <= sizeof op; at += sizeof(void*)) {
    const void* held;
    std::memcpy(&held, reinterpret_cast<const char*>(&op) + at, sizeof held);
    if (held && bytes_at(held) &&
        std::none_of(fields.pointers.begin(), fields.pointers.end(), [&](const auto& pointer) {
          return reinterpret_cast<const char*>(pointer.field) ==
                 reinterpret_cast<const char*>(&op) + at;
        }))
      failures.push_back(name + " doesn't describe the pointer at byte " + std::to_string(at));
  }
  return failures;
}

}  // namespace bv::test
