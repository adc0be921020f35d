#include "kernels/cuda/hopper/hopper_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ranges>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/dependent_launches.h"
#include "kernels/cuda/endless_wait.h"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/table/fields.h"

namespace bv::BAREVISION_GPU {
namespace {

// The two operations that `op` consists of, which run one by one if no kernel computes both.
template <class Op>
auto product_of(const Op& op) -> decltype(op.product()) {
  return op.product();
}
template <class Op>
auto norm_of(const Op& op) -> decltype(op.norm()) {
  return op.norm();
}
template <class Weight, class Input>
auto product_of(const BothGradients<Weight, Input>& op)
    -> BothGradients<Weight, decltype(op.input.product())> {
  return {op.weight, op.input.product(), op.workspace};
}
template <class Weight, class Input>
auto norm_of(const BothGradients<Weight, Input>& op) -> decltype(op.input.norm()) {
  auto norm = op.input.norm();
  norm.workspace = op.workspace;
  return norm;
}
template <class Op>
concept InTwo = requires(const Op& op) {
  product_of(op);
  norm_of(op);
};

const std::logic_error not_taken("RowsOf runs both gradients one by one unless they are taken");

// Whether a kernel may begin before the kernel ahead of it has ended.
// BAREVISION_DEPENDENT_LAUNCHES=0: no.
bool dependent_launches() {
  const char* const set = std::getenv("BAREVISION_DEPENDENT_LAUNCHES");
  return !set || std::string_view(set) != "0";
}

// Operations that are left to the other kernels although Hopper's support them, each with its sizes
// except the first (rows or images), sizes of 1 and image_rows: "LinearForward N576 K192". Reads
// them from the file that BAREVISION_HOPPER_EXCEPT names, one per line; bench/gpu_check writes it.
std::set<std::string> left_to_others() {
  const char* const path = std::getenv("BAREVISION_HOPPER_EXCEPT");
  if (!path || !*path) return {};
  const std::vector<std::string> known = hopper_operations();
  std::set<std::string> operations;
  try {
    std::istringstream lines(read_text_file(path));
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      line.erase(line.find_last_not_of(" \r") + 1);
      if (line.empty()) continue;
      const std::string operation = line.substr(0, line.find(' '));
      if (std::ranges::find(known, operation) == known.end())
        throw UserError(std::string(path) + ":" + std::to_string(number) + ": '" +
                        printable(operation) +
                        "' is not an operation with a kernel made for sm_90");
      operations.insert(line);
    }
  } catch (const UserError& e) {
    throw UserError(std::string("BAREVISION_HOPPER_EXCEPT: ") + e.what());
  }
  return operations;
}

// The table: Hopper's kernels for the operations that they support, else the other kernels. All but
// a library's kernels use dependent launches, which hide launch latency behind the kernel ahead.
class HopperTable final : public KernelRows<HopperTable> {
 public:
  HopperTable(cudaStream_t compute, int sms, bool collectives)
      : KernelRows<HopperTable>(gpu_alignments),
        compute_(compute),
        rest_(compute, false),
        hopper_(with_sms(rest_.props(), sms, collectives)) {}

  template <class Op>
  bool takes([[maybe_unused]] const Op& op) const {
    const By by = runs(op);
    if constexpr (InTwo<Op>)
      if (by == By::parts) return takes(product_of(op));
    return by == By::hopper;
  }
  template <class Op>
  size_t workspace(const Op& op) {
    [[maybe_unused]] const By by = runs(op);
    if constexpr (has_hopper_kernel<Op>)
      if (by == By::hopper) return hopper_.workspace(op);
    if constexpr (InTwo<Op>)
      if (by == By::parts) {
        size_t norm = 0;
        if constexpr (requires { norm_of(op).workspace; }) norm = workspace(norm_of(op));
        return std::max(workspace(product_of(op)), norm);
      }
    if constexpr (is_both_gradients<Op>)
      throw not_taken;
    else
      return rest_.workspace(op);
  }
  template <class Op>
  void dispatch(const Op& op, Stream stream) {
    const DependentLaunches scope(dependent_);
    const auto on = stream ? reinterpret_cast<cudaStream_t>(stream) : compute_;
    [[maybe_unused]] const By by = runs(op);
    if constexpr (has_hopper_kernel<Op>)
      if (by == By::hopper) return hopper_.run(op, on);
    if constexpr (InTwo<Op>)
      if (by == By::parts) {
        dispatch(product_of(op), stream);
        return dispatch(norm_of(op), stream);
      }
    if constexpr (is_both_gradients<Op>)
      throw not_taken;
    else
      rest_.run(op, on);
  }

 protected:
  bool is_by_hopper(size_t which, const void* op) const override;

 private:
  // parts: as a product and a norm, each by Hopper's or by the other kernels.
  enum class By : uint8_t { hopper, parts, rest };
  template <class Op>
  By runs([[maybe_unused]] const Op& op) const {
    if constexpr (has_hopper_kernel<Op>) {
      if (is_left_to_others(op)) return By::rest;
      if (hopper_.takes(op)) return By::hopper;
    }
    return InTwo<Op> ? By::parts : By::rest;
  }
  template <class Weight, class Input>
  bool is_left_to_others(const BothGradients<Weight, Input>& op) const {
    return is_left_to_others(op.weight) || is_left_to_others(op.input);
  }
  template <class Op>
  bool is_left_to_others(const Op& op) const {
    if (left_to_others_.empty()) return false;
    const Fields fields(op);
    std::string line = fields.operation;
    for (const auto& [name, value] : fields.sizes | std::views::drop(1))
      if (*value != 1 && name != "image_rows") line += " " + name + std::to_string(*value);
    return left_to_others_.contains(line);
  }
  // A block that has to wait for a collective's SM would double its kernel's time. An eighth is 16
  // of an H100's SMs, as many as NCCL's blocks for NVLink SHARP.
  static DeviceProps with_sms(DeviceProps props, int sms, bool collectives) {
    if (sms) props.sms = sms;
    props.blocks = collectives ? props.sms - props.sms / 8 : props.sms;
    return props;
  }
  cudaStream_t compute_;  // the stream that null stands for
  bool dependent_ = dependent_launches();
  std::set<std::string> left_to_others_ = left_to_others();
  CudaKernels rest_;
  HopperKernels hopper_;
};

template <class... Ops>
struct Rows {
  using Ask = bool (*)(const HopperTable&, const void*);
  static constexpr Ask takes[] = {[](const HopperTable& table, const void* op) {
    return table.takes(*static_cast<const Ops*>(op));
  }...};
  static std::vector<std::string> hopper_operations() {
    std::vector<std::string> names;
    const auto add = [&]<class Op>(Op op) {
      if constexpr (has_hopper_kernel<Op>) {
        const auto make_valid = [](auto& shape) {
          if constexpr (requires { shape.groups; }) shape.stride = shape.groups = 1;
        };
        if constexpr (is_both_gradients<Op>)
          make_valid(op.weight.shape), make_valid(op.input.shape);
        else
          make_valid(op.shape);
        names.push_back(Fields(op).operation);
      }
    };
    (add(Ops{}), ...);
    return names;
  }
};

bool HopperTable::is_by_hopper(size_t which, const void* op) const {
  return Kernels::Apply<Rows>::takes[which](*this, op);
}

int of_device(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

HopperSupport hopper_support(int device) {
  return {.arch = 10 * of_device(cudaDevAttrComputeCapabilityMajor, device) +
                  of_device(cudaDevAttrComputeCapabilityMinor, device),
          .compiled = has_sm90_code(),
          .makes_tensor_maps = driver_makes_maps()};
}

std::vector<std::string> hopper_operations() { return Kernels::Apply<Rows>::hopper_operations(); }

std::unique_ptr<Kernels> make_hopper_kernels(Stream compute, int sms, bool collectives) {
  if (const int arch = compute_capability(); arch != 90)
    throw std::runtime_error("the kernels made for sm_90 don't run on an sm_" +
                             std::to_string(arch));
  hear_endless_waits();
  return std::make_unique<HopperTable>(reinterpret_cast<cudaStream_t>(compute), sms, collectives);
}

}  // namespace bv::BAREVISION_GPU
