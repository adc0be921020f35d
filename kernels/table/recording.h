// Records the operations of a model instead of running them, and provides memory to run one of them
// later. The bench, --plan and tests get a model's operations and their shapes this way.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/table/fields.h"

namespace bv {

using AnyOperation = Kernels::Apply<std::variant>;

struct RecordedOperation {
  std::string name;   // "LayerNormForward +residual"
  std::string shape;  // "rows3152 C192"; sizes of 1 are left out
  int count;          // how often the model runs it
  Cost cost;
  AnyOperation operation;  // its pointers only show which tensors are the same
};

class RecordingKernels final : public KernelRows<RecordingKernels> {
 public:
  std::vector<RecordedOperation> operations;  // in the order in which they were first recorded
  bool counting = true;                       // false: adds new names and shapes, with a count of 0
  bool together = false;                      // records BothGradients as one operation, not two

  template <class Op>
  void dispatch(Op op, Stream) {
    if constexpr (requires { op.workspace; }) op.workspace = nullptr;
    Extras extras;
    if constexpr (is_both_gradients<Op>)
      extras.add(op.weight), extras.add(op.input);
    else
      extras.add(op);
    note([](const void* p, Arguments& a) { static_cast<const Op*>(p)->describe(a); }, &op, extras,
         op);
  }
  template <class Op>
  size_t workspace(const Op&) {
    return 0;
  }
  template <class Op>
  bool takes(const Op&) const {
    return together;
  }

 private:
  // Fields that aren't tensors or sizes; null if the operation has none.
  struct Extras {
    const size_t* count = nullptr;
    const OptimizerKind* kind = nullptr;
    bool relu = false, dropped = false, accumulate = false, residual_norm = false;

    template <class Op>
    void add(const Op& op) {
      if constexpr (requires { op.count; }) count = &op.count;
      if constexpr (requires { op.relu; }) relu = op.relu;
      if constexpr (requires { op.drop; }) dropped = op.drop > 0;
      if constexpr (requires { op.dropout; }) dropped = op.dropout.drop > 0;
      if constexpr (requires { op.drop_path; }) dropped |= op.drop_path.drop > 0;
      if constexpr (requires { op.accumulate; }) accumulate = op.accumulate;
      if constexpr (requires { op.residual_norm; })
        residual_norm = op.residual_norm.weight != nullptr;
      if constexpr (requires { op.kind; }) kind = &op.kind;
    }
  };
  using Describe = void (*)(const void* op, Arguments&);
  // Not a template, which would be instantiated for each of some fifty operations.
  void note(Describe, const void* op, const Extras&, const AnyOperation&);

  std::map<std::string, size_t> known_;  // index into `operations`, by what distinguishes them
};

// A copy of the operation with its tensors in new memory: memory(argument), called once for tensors
// that share an address.
template <class Op, class Memory>
Op in_new_memory(Op op, Memory memory) {
  std::map<const void*, void*> blocks;
  for (const auto& [argument, field] : Fields(op).pointers) {
    if (!*field) continue;
    const auto [block, is_new] = blocks.try_emplace(*field, nullptr);
    if (is_new) block->second = memory(argument);
    *field = block->second;
  }
  return op;
}

// Valid contents of a tensor, to be repeated over its length: random numbers in [-1, 1), or in
// [1/4, 1) if they must be positive; StepParams and UpdateState of a typical step; zeros for other
// integers, which are valid as labels, crops and indices.
std::vector<std::byte> usual_values(const TensorArgument&);

}  // namespace bv
