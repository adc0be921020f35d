// A Problem: one operation on given data with its expected results, independent of any device.
// execute() runs it on a device. The kernel tests consist of Problems.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/kernels/device.h"
#include "tests/kernels/refusals.h"
#include "tests/numerics/compare.h"
#include "tests/numerics/test_values.h"
#include "tests/numerics/tracked.h"

namespace bv::test {

using Bytes = std::vector<std::byte>;
bool is_same(const Bytes&, const Bytes&);  // unlike ==, compares many bytes at a time
using Shape = std::vector<int>;
using Values = std::vector<double>;
using Tensor = std::vector<Tracked>;

struct Argument {
  std::string name;
  Shape shape;
  DType dtype = DType::fp32;
  size_t bytes = 0;
  Bytes before;     // contents before the run; empty: poison
  Tensor expected;  // of an output; other arguments must not change
  std::function<std::string(std::span<const std::byte>)> check;  // of an output that is a struct:
                                                                 // what is wrong, or ""
  bool is_output() const { return !expected.empty() || check; }
};

// An operation's arguments in a device's memory, each between sentinels: bytes of poison, which
// also fill outputs and workspace before the run. 0xFF is NaN in every floating type, so that a
// read is detected; an addition to a NaN isn't, so a second run uses an ordinary number.
class DeviceArguments {
 public:
  DeviceArguments(const Device&, const std::vector<Argument>&, unsigned char poison);
  ~DeviceArguments();
  DeviceArguments(const DeviceArguments&) = delete;
  DeviceArguments& operator=(const DeviceArguments&) = delete;

  // If the problem doesn't have the argument, at() throws and optional() returns null.
  template <class T = void>
  T* at(const std::string& name) {
    return static_cast<T*>(find(name, true));
  }
  template <class T = void>
  T* optional(const std::string& name) {
    return static_cast<T*>(find(name, false));
  }
  void* workspace(size_t bytes);

  Bytes read(const std::string& name) const;
  size_t bytes_at(const void*) const;  // of the block that begins there; 0 if none does

  const Device& device() const { return device_; }
  // with_mistakes is set before the run; launch() then lists mistakes that were accepted.
  bool with_mistakes = false;
  std::vector<std::string> accepted_mistakes;
  // The names of arguments with a write before or after them.
  std::vector<std::string> overwritten_sentinels() const;

 private:
  struct Block {
    std::string name;
    char* base;
    size_t bytes;
  };
  void* find(const std::string& name, bool must) const;
  char* add(const std::string& name, size_t bytes, const Bytes& before);

  const Device& device_;
  unsigned char poison_;
  std::vector<Block> blocks_;
};

// The operation with its tensors bound to the arguments by the names in its describe().
template <class Op>
Op bound(Op op, DeviceArguments& arguments, const std::map<std::string, std::string>& in_place) {
  for (const auto& [tensor, field] : Fields(op).pointers) {
    const auto at = in_place.find(tensor.name);
    *field = arguments.optional(at == in_place.end() ? tensor.name : at->second);
  }
  return op;
}

// Runs an operation with the workspace that it needs; before that, on request, with one wrong
// argument at a time.
template <class Op>
void launch(Kernels& kernels, DeviceArguments& arguments, Op op) {
  if constexpr (requires { op.workspace; })
    op.workspace = arguments.workspace(kernels.workspace_bytes(op));
  if (arguments.with_mistakes)
    arguments.accepted_mistakes = accepted_mistakes(
        kernels, arguments.device(), op, [&](const void* p) { return arguments.bytes_at(p); });
  kernels.run(op, nullptr);
}

class Problem {
 public:
  explicit Problem(DType dtype_of_tensors) : dtype(dtype_of_tensors) {}

  const DType dtype;         // of the tensors that kernels.h calls dtype
  TestValues random{1};      // for its data
  bool exact = false;        // integers: results must be equal
  bool any_threads = false;  // the same bits on any number of threads
  std::function<void(Kernels&, DeviceArguments&)> run;
  // Sets `run` to this operation. Its tensors are bound by the names in its describe(); an optional
  // tensor that the problem lacks is null. `in_place`: a tensor, and the argument whose memory it
  // shares.
  template <class Op>
  void runs(const Op& op, std::map<std::string, std::string> in_place = {}) {
    run = [=](Kernels& k, DeviceArguments& a) { launch(k, a, bound(op, a, in_place)); };
  }
  std::vector<Argument> arguments;
  std::function<std::string(const DeviceArguments&)> check_together;  // like Argument::check, for
                                                                      // several outputs

  // `_fp32`: the tensor is fp32 whatever the dtype. Values must be exact in the tensor's type.
  void input(const std::string& name, Shape, const Values&);
  void input_fp32(const std::string& name, Shape, const Values&);
  // `before`: the contents before an operation that works in place.
  void output(const std::string& name, Shape, Tensor expected, const Values& before = {});
  void output_fp32(const std::string& name, Shape, Tensor expected, const Values& before = {});
  // A gradient: written or, with `accumulate`, added to previous contents.
  void gradient(const std::string& name, Shape, Tensor added, bool accumulate);
  // Structs and integers, which are not converted.
  template <class T>
  void objects(const std::string& name, const std::vector<T>& values) {
    add_bytes(name, std::as_bytes(std::span(values)), {});
  }
  template <class T>
  void changed_objects(const std::string& name, const std::vector<T>& before,
                       std::function<std::string(const T*)> check) {
    add_bytes(name, std::as_bytes(std::span(before)), [check](std::span<const std::byte> after) {
      return check(reinterpret_cast<const T*>(after.data()));
    });
  }
  // Random data: normal or, if the problem is exact, small integers.
  Values data(size_t n, double mean = 0, double deviation = 1);
  Values data_fp32(size_t n, double mean = 0, double deviation = 1);
  // Values rounded as a tensor of the dtype stores them.
  Values held(const Values&) const;

 private:
  void add(const std::string& name, Shape, DType, const Values* before, Tensor expected);
  void add_bytes(const std::string& name, std::span<const std::byte> before,
                 std::function<std::string(std::span<const std::byte>)> check);
};

struct KernelCase {
  std::string name;
  std::function<Problem(DType)> make;
  bool always = false;       // runs even where its size makes it slow
  bool every_dtype = false;  // on every device: set for operations that only convert
  bool cpu_only = false;     // refused by the GPU's kernels, or of interest only on the CPU
};

struct Outcome {
  std::vector<Bytes> outputs;         // in the problem's order
  std::vector<std::string> failures;  // sentences
  double worst_ratio = 0;             // of error to tolerance
};
// threads: of the host; 0: unchanged.
// with_mistakes: also runs with one wrong argument at a time (refusals.h).
Outcome execute(const Problem&, const Device&, int threads, unsigned char poison,
                bool with_mistakes = false);
// The same again: outputs with the bits of `first` aren't compared with what is expected once more.
Outcome execute_again(const Problem&, const Device&, int threads, unsigned char poison,
                      const Outcome& first);

// The largest allowed error of an element. A result in 16 bits is the fp32 result rounded
// once: half an ulp, on top of the error that fp32 may make. Whatever else a 16-bit kernel may
// round is in the oracle's variance (in_16_bits). No element may differ by more: for results
// computed in fp32, that is stricter than 2 max|naive - exact| over the tensor, the usual rule
// (naive: every stored result rounded to 16 bits); for attention see attention_test.cpp, "the
// tolerance". In an exact problem the tolerance is zero: sums of small integers have only one fp32
// result, which is rounded in only one way.
double tolerance(const Tracked& expected, DType);

// "_rows5_C192"
std::string sizes(std::initializer_list<std::pair<const char*, int>>);
// "_accumulate" if set
std::string flag(bool set, const char* name);
// Values as fp32 tensors hold them.
Values rounded(const Tensor&);
Tensor exactly(const Values&);

}  // namespace bv::test
