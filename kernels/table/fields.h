// Collects the fields that an operation describes, to read or change them.
#pragma once
#include <string>
#include <vector>

#include "kernels/arguments.h"

namespace bv {

class Fields final : public Arguments {
 public:
  Fields() = default;  // for describe() to fill
  template <class Op>
  explicit Fields(Op& op) {
    op.describe(*this);
  }
  struct Size {
    std::string name;
    int* value;
  };
  struct Pointer {
    TensorArgument argument;
    const void** field;
  };
  std::string operation;
  std::vector<Size> sizes;
  std::vector<Pointer> pointers;

  void size(const char* name, const int& value) override {
    sizes.push_back({name, const_cast<int*>(&value)});
  }
  void rule(bool, const char*) override {}

 private:
  void begin(const char* name, DType) override { operation = name; }
  void tensor(const TensorArgument& t) override {
    pointers.push_back({t, const_cast<const void**>(t.field)});
  }
};

}  // namespace bv
