// A table with one row per operation, which each device implements; the list of operations is at
// the end of kernels/kernels.h.
#pragma once
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "kernels/arguments.h"
#include "kernels/types.h"

namespace bv {

template <class... Ops>
class KernelTable {
 public:
  // Template<First..., all operations>
  template <template <class...> class Template, class... First>
  using Apply = Template<First..., Ops...>;

  explicit KernelTable(const DeviceLimits& limits = {}) : limits_(limits) {}
  virtual ~KernelTable() = default;

  // Checks the operation and enqueues it. Throws a std::invalid_argument that names the operation
  // and the argument.
  template <class Op>
  void run(const Op& op, Stream stream) {
    validate(op, limits_);
    if constexpr (requires { op.workspace; })
      if (!op.workspace && workspace_bytes(op) > 0) validate(op, {.needs_workspace = true});
    execute(row<Op>(), &op, stream);
  }
  // Bytes of workspace that the operation needs; `op`'s pointers are ignored. Also prepares
  // everything that can be prepared for these shapes before run().
  template <class Op>
  size_t workspace_bytes(const Op& op) {
    return wanted_workspace(row<Op>(), &op);
  }
  // Whether a kernel made for sm_90 runs an operation of these sizes and dtype; `op`'s pointers are
  // ignored.
  template <class Op>
  bool by_hopper(const Op& op) const {
    return is_by_hopper(row<Op>(), &op);
  }

 protected:
  // which: the operation's row in the table
  virtual void execute(size_t which, const void* op, Stream) = 0;
  virtual size_t wanted_workspace(size_t which, const void* op) = 0;
  virtual bool is_by_hopper(size_t, const void*) const { return false; }

 private:
  template <class Op>
  static constexpr size_t row() {
    static_assert((std::is_same_v<Op, Ops> || ...), "not an operation of the table");
    size_t at = 0;
    (void)((std::is_same_v<Op, Ops> || (++at, false)) || ...);
    return at;
  }

  DeviceLimits limits_;
};

template <class WeightGradient, class InputGradient>
struct BothGradients;
template <class Op>
constexpr bool is_both_gradients = false;
template <class WeightGradient, class InputGradient>
constexpr bool is_both_gradients<BothGradients<WeightGradient, InputGradient>> = true;

// Implements all rows of the table; the base class of devices and of a recorder. Self has, for
// every operation,
//   void dispatch(const Op&, Stream)
//   size_t workspace(const Op&)         if Op has a `workspace`
// BothGradients runs as two operations, unless Self has a takes(op) that returns true.
// Each of the two functions below indexes a table of function pointers. With a class per operation,
// each derived from the previous one, the compiler would emit 1600 virtual functions for 40
// operations, which takes three seconds.
template <class Self, class... Ops>
class RowsOf : public KernelTable<Ops...> {
 public:
  using KernelTable<Ops...>::KernelTable;

 protected:
  void execute(size_t which, const void* op, Stream stream) final {
    using Call = void (*)(Self&, const void*, Stream);
    static constexpr Call rows[] = {[](Self& self, const void* operation, Stream on) {
      as_it_runs(self, *static_cast<const Ops*>(operation),
                 [&](const auto& one) { self.dispatch(one, on); });
    }...};
    rows[which](static_cast<Self&>(*this), op, stream);
  }
  size_t wanted_workspace(size_t which, const void* op) final {
    using Ask = size_t (*)(Self&, const void*);
    static constexpr Ask rows[] = {[](Self& self, const void* operation) -> size_t {
      size_t bytes = 0;
      if constexpr (requires(Ops o) { o.workspace; })
        as_it_runs(self, *static_cast<const Ops*>(operation),
                   [&](const auto& one) { bytes = std::max(bytes, self.workspace(one)); });
      return bytes;
    }...};
    return rows[which](static_cast<Self&>(*this), op);
  }

 private:
  // Calls run(op) or, for a BothGradients that Self doesn't take, run() with each operation in it.
  template <class Op, class Run>
  static void as_it_runs([[maybe_unused]] Self& self, const Op& op, Run run) {
    if constexpr (!is_both_gradients<Op>) {
      run(op);
    } else {
      if constexpr (requires { self.takes(op); })
        if (self.takes(op)) return run(op);
      auto [weight, input, workspace] = op;
      weight.workspace = input.workspace = workspace;
      run(weight), run(input);
    }
  }
};

}  // namespace bv
