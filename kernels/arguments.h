// An operation's description of its own arguments: describe() in kernels/table/operations.cpp names
// each size and each tensor once. The check before every run, the count of flops and bytes, and the
// tests that invalidate one argument at a time are all derived from it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/types.h"

namespace bv {

// A lower bound on the flops, and on the bytes moved to and from memory.
struct Cost {
  double flops, bytes;
};

// Whether the pointer may be null. A workspace may be null if the device needs none.
enum class Need : uint8_t { required, optional, workspace };

// A pointer among an operation's arguments.
struct TensorArgument {
  const char* name;
  const void* const* field;  // where the operation holds the pointer
  bool floating;             // its elements are of `dtype`; otherwise integers or a struct
  DType dtype;
  double bytes;  // its size
  double moved;  // bytes read from it and written to it
  Need need;
};

class Arguments {
 public:
  // Called first. `dtype`: the element type of tensors passed as void*.
  Arguments& operation(const char* name, DType dtype) {
    dtype_ = dtype;
    begin(name, dtype);
    return *this;
  }
  virtual void size(const char* name, const int& value) = 0;  // must be positive
  virtual void flops(double) {}
  virtual void rule(bool holds, const char* otherwise) = 0;  // "padding must be in 0 .. R / 2"

  // Tensors of `count` elements that are read, written, or both.
  template <class T>
  void read(const char* name, T* const& field, double count, Need need = Need::required) {
    add(name, field, count, count, need);
  }
  template <class T>  // `count` of the tensor's `of` elements
  void read_part(const char* name, T* const& field, double count, double of,
                 Need need = Need::required) {
    add(name, field, of, count, need);
  }
  template <class T>
  void write_part(const char* name, T* const& field, double count, double of) {
    add(name, field, of, count, Need::required);
  }
  template <class T>
  void write(const char* name, T* const& field, double count, Need need = Need::required) {
    add(name, field, count, count, need);
  }
  template <class T>
  void update(const char* name, T* const& field, double count, Need need = Need::required) {
    add(name, field, count, 2 * count, need);
  }
  // A gradient that is overwritten (=) or, with `accumulate`, added to (+=).
  template <class T>
  void gradient(const char* name, T* const& field, double count, bool accumulate,
                Need need = Need::required) {
    add(name, field, count, accumulate ? 2 * count : count, need);
  }
  void workspace(void* const& field) { add("workspace", field, 0, 0, Need::workspace); }

 protected:
  friend class OneOfTwo;
  ~Arguments() = default;
  virtual void begin(const char* name, DType dtype) = 0;
  virtual void tensor(const TensorArgument&) = 0;

 private:
  template <class T>
  void add(const char* name, T* const& field, double count, double moved, Need need) {
    constexpr bool of_dtype = std::is_void_v<T>,
                   fp32 = std::is_same_v<std::remove_const_t<T>, float>;
    double bytes = field ? static_cast<double>(size_of(dtype_)) : 0;
    if constexpr (!of_dtype) bytes = field ? sizeof(T) : 0;
    tensor({name, reinterpret_cast<const void* const*>(&field), of_dtype || fp32,
            fp32 ? DType::fp32 : dtype_, bytes * count, bytes * moved, need});
  }
  DType dtype_ = DType::fp32;
};

// True for operations that only convert elements to or from their dtype, for example for messages.
template <class Op>
constexpr bool every_device_has_its_dtypes = requires {
  Op::converts;
};

constexpr int max_size = 1 << 30;  // the limit of every size, on every device

// Restrictions of one device beyond the common ones.
struct DeviceLimits {
  bool only_fp32 = false;
  size_t alignment = 1;            // in bytes, for every pointer but a workspace
  size_t workspace_alignment = 1;  // in bytes
  bool needs_workspace = false;
};

// Throws a std::invalid_argument that names the operation and the argument.
class Validation final : public Arguments {
 public:
  explicit Validation(const DeviceLimits& limits) : limits_(limits) {}
  void size(const char* name, const int& value) override;
  void rule(bool holds, const char* otherwise) override;

 private:
  void begin(const char* name, DType dtype) override;
  void tensor(const TensorArgument&) override;

  DeviceLimits limits_;
  const char* operation_ = "";
};

class CostCount final : public Arguments {
 public:
  Cost cost{};
  void flops(double n) override { cost.flops = n; }
  void size(const char*, const int&) override {}
  void rule(bool, const char*) override {}

 private:
  void begin(const char*, DType) override {}
  void tensor(const TensorArgument& t) override { cost.bytes += t.moved; }
};

template <class Op>
void validate(const Op& op, DeviceLimits limits = {}) {
  if constexpr (every_device_has_its_dtypes<Op>) limits.only_fp32 = false;
  Validation check(limits);
  op.describe(check);
}

// The cost of an operation whose pointers are set: a tensor with a null pointer moves no bytes.
template <class Op>
Cost cost_of(const Op& op) {
  CostCount count;
  op.describe(count);
  return count.cost;
}

}  // namespace bv
