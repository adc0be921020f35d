#include "kernels/cuda/hopper/hopper_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/dependent_launches.h"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/table/fields.h"

namespace bv::BAREVISION_GPU {
namespace {

// An operation of two, which run one after the other where no kernel takes both.
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

// Whether kernels may begin before the one ahead has ended. BAREVISION_DEPENDENT_LAUNCHES=0: no.
bool dependent_launches() {
  const char* const set = std::getenv("BAREVISION_DEPENDENT_LAUNCHES");
  return !set || std::string_view(set) != "0";
}

// The operations that are left to the other kernels though Hopper's take them, by shape without
// its rows or images, the first size: "LinearForward N576 K192". They are the lines of the file that
// BAREVISION_HOPPER_EXCEPT names, as bench/gpu_check writes it where the others were faster.
std::set<std::string> left_to_others() {
  const char* const path = std::getenv("BAREVISION_HOPPER_EXCEPT");
  if (!path || !*path) return {};
  std::set<std::string> operations;
  try {
    std::istringstream lines(read_text_file(path));
    for (std::string line; std::getline(lines, line);) operations.insert(line);
  } catch (const UserError& e) {
    throw UserError(std::string("BAREVISION_HOPPER_EXCEPT: ") + e.what());
  }
  return operations;
}

// The table: Hopper's kernels where they take an operation, else the others. All but a library's
// are dependent launches, which hide a launch's latency behind the end of the kernel ahead.
class HopperTable final : public KernelRows<HopperTable> {
 public:
  HopperTable(cudaStream_t compute, int sms)
      : KernelRows<HopperTable>(gpu_alignments),
        compute_(compute),
        rest_(compute, false),
        hopper_(with_sms(rest_.props(), sms)) {}

  template <class Op>
  bool takes([[maybe_unused]] const Op& op) const {
    if constexpr (has_hopper_kernel<Op>)
      if (uses_hopper(op)) return true;
    if constexpr (InTwo<Op>)
      return takes(product_of(op));
    else
      return false;
  }
  template <class Op>
  size_t workspace(const Op& op) {
    if constexpr (has_hopper_kernel<Op>)
      if (uses_hopper(op)) return hopper_.workspace(op);
    if constexpr (InTwo<Op>) {
      size_t norm = 0;
      if constexpr (requires { norm_of(op).workspace; }) norm = workspace(norm_of(op));
      return std::max(workspace(product_of(op)), norm);
    } else if constexpr (is_both_gradients<Op>) {
      throw not_taken;
    } else {
      return rest_.workspace(op);
    }
  }
  template <class Op>
  void dispatch(const Op& op, Stream stream) {
    const DependentLaunches scope(dependent_);
    const auto on = stream ? reinterpret_cast<cudaStream_t>(stream) : compute_;
    if constexpr (has_hopper_kernel<Op>)
      if (uses_hopper(op)) return hopper_.run(op, on);
    if constexpr (InTwo<Op>) {
      dispatch(product_of(op), stream);
      dispatch(norm_of(op), stream);
    } else if constexpr (is_both_gradients<Op>) {
      throw not_taken;
    } else {
      rest_.run(op, on);
    }
  }

 protected:
  bool is_by_hopper(size_t which, const void* op) const override;

 private:
  template <class Op>
  bool uses_hopper(const Op& op) const {
    return hopper_.takes(op) && !is_left_to_others(op);
  }
  template <class Weight, class Input>
  bool is_left_to_others(const BothGradients<Weight, Input>& op) const {
    return is_left_to_others(op.weight) || is_left_to_others(op.input);
  }
  template <class Op>
  bool is_left_to_others(Op op) const {
    if (left_to_others_.empty()) return false;
    const Fields fields(op);
    return left_to_others_.contains(fields.operation + " " + fields.shape(1));
  }
  static DeviceProps with_sms(DeviceProps props, int sms) {
    if (sms) props.sms = sms;
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

std::unique_ptr<Kernels> make_hopper_kernels(Stream compute, int sms) {
  if (const int arch = compute_capability(); arch != 90)
    throw std::runtime_error("the kernels made for sm_90 don't run on an sm_" +
                             std::to_string(arch));
  return std::make_unique<HopperTable>(reinterpret_cast<cudaStream_t>(compute), sms);
}

}  // namespace bv::BAREVISION_GPU
