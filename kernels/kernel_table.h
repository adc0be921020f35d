// One entry per operation, which a device fills in (kernels/table/rows.h); the list of operations
// is at the end of kernels/kernels.h.
#pragma once
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

  // Checks the operation and enqueues it. Throws std::invalid_argument that names the operation and
  // the argument.
  template <class Op>
  void run(const Op& op, Stream stream) {
    validate(op, limits_);
    if constexpr (requires { op.workspace; })
      if (!op.workspace && workspace_bytes(op) > 0) validate(op, {.needs_workspace = true});
    execute(row<Op>(), &op, stream);
  }
  // Bytes of workspace that the operation needs; its pointers are ignored. Also prepares everything
  // that can be prepared for these shapes before run().
  template <class Op>
  size_t workspace_bytes(const Op& op) {
    return wanted_workspace(row<Op>(), &op);
  }

 protected:
  // which: the operation's row in the table
  virtual void execute(size_t which, const void* op, Stream) = 0;
  virtual size_t wanted_workspace(size_t which, const void* op) = 0;

 private:
  template <class Op>
  static constexpr size_t row() {
    static_assert((std::is_same_v<Op, Ops> || ...), "no operation of the table");
    size_t at = 0;
    (void)((std::is_same_v<Op, Ops> || (++at, false)) || ...);
    return at;
  }

  DeviceLimits limits_;
};

}  // namespace bv
