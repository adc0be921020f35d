// One entry per operation, which a device fills in (kernels/table/rows.h); the list of operations
// is at the end of kernels/kernels.h.
#pragma once
#include <cstddef>

#include "kernels/table/arguments.h"
#include "kernels/types.h"

namespace bv {

// One operation on one device.
template <class Op>
class KernelRow {
 public:
  virtual ~KernelRow() = default;

 protected:
  template <class...>
  friend class KernelTable;
  virtual void execute(const Op&, Stream) = 0;
  virtual size_t wanted_workspace(const Op&) = 0;
};

template <class... Ops>
class KernelTable : public KernelRow<Ops>... {
 protected:
  using KernelRow<Ops>::execute...;
  using KernelRow<Ops>::wanted_workspace...;

 public:
  // Template<First..., all operations>
  template <template <class...> class Template, class... First>
  using Apply = Template<First..., Ops...>;

  explicit KernelTable(const DeviceLimits& limits = {}) : limits_(limits) {}

  // Runs the operation. Throws std::invalid_argument that names the operation and the argument.
  template <class Op>
  void run(const Op& op, Stream stream) {
    validate(op, limits_);
    if constexpr (requires { op.workspace; })
      if (!op.workspace && workspace_bytes(op) > 0) validate(op, {.needs_workspace = true});
    row<Op>().execute(op, stream);
  }
  // Bytes of workspace that the operation needs; its pointers are ignored. Whatever can be prepared
  // for these shapes is prepared here, ahead of run().
  template <class Op>
  size_t workspace_bytes(const Op& op) {
    return row<Op>().wanted_workspace(op);
  }

 private:
  template <class Op>
  KernelRow<Op>& row() {
    return *this;
  }
  DeviceLimits limits_;
};

}  // namespace bv
