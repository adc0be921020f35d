// All rows of the table by one template: what a device, or a recorder, derives from.
#pragma once
#include "kernels/kernels.h"

namespace bv {

// Self has, for every operation,
//   void dispatch(const Op&, Stream)
//   size_t workspace(const Op&)         where Op has a `workspace`
template <class Self, class... Ops>
class RowsOf : public Kernels {  // with no operation left
 public:
  using Kernels::Kernels;
};

template <class Self, class Op, class... Rest>
class RowsOf<Self, Op, Rest...> : public RowsOf<Self, Rest...> {
 public:
  using RowsOf<Self, Rest...>::RowsOf;

 protected:
  using RowsOf<Self, Rest...>::execute;
  using RowsOf<Self, Rest...>::wanted_workspace;
  size_t wanted_workspace(const Op& op) final {
    if constexpr (requires { op.workspace; })
      return static_cast<Self*>(this)->workspace(op);
    else
      return 0;
  }
  void execute(const Op& op, Stream stream) final {
    static_cast<Self*>(this)->dispatch(op, stream);
  }
};

template <class Self>
using KernelRows = Kernels::Apply<RowsOf, Self>;

}  // namespace bv
