// All rows of the table from one template, the base of a device and of a recorder.
#pragma once
#include "kernels/kernels.h"

namespace bv {

// Self has, for every operation,
//   void dispatch(const Op&, Stream)
//   size_t workspace(const Op&)         if Op has a `workspace`
// Two functions with a table of pointers, rather than one class per operation derived from the
// previous one: forty such classes make the compiler emit sixteen hundred virtual functions, which
// takes three seconds.
template <class Self, class... Ops>
class RowsOf : public Kernels {
 public:
  using Kernels::Kernels;

 protected:
  void execute(size_t which, const void* op, Stream stream) final {
    using Call = void (*)(Self&, const void*, Stream);
    static constexpr Call rows[] = {[](Self& self, const void* operation, Stream on) {
      self.dispatch(*static_cast<const Ops*>(operation), on);
    }...};
    rows[which](static_cast<Self&>(*this), op, stream);
  }
  size_t wanted_workspace(size_t which, const void* op) final {
    using Ask = size_t (*)(Self&, const void*);
    static constexpr Ask rows[] = {[](Self& self, const void* operation) -> size_t {
      if constexpr (requires(Ops o) { o.workspace; })
        return self.workspace(*static_cast<const Ops*>(operation));
      else
        return 0;
    }...};
    return rows[which](static_cast<Self&>(*this), op);
  }
};

template <class Self>
using KernelRows = Kernels::Apply<RowsOf, Self>;

}  // namespace bv
