// Runs every operation of the models once on every device, which must accept its shape and compute
// finite results from ordinary inputs. KernelTable checks that they are right. `make resources`
// gets the block sizes of each kernel from here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/recorded_model.h"
#include "engine/options/model_config.h"
#include "tests/kernels/device.h"
#include "tests/numerics/format.h"

namespace bv::test {
namespace {

struct ModelRun {
  Device device;
  DType dtype;
  std::string name;
  std::vector<std::string> arguments;
};
void PrintTo(const ModelRun& run, std::ostream* stream) { *stream << run.name; }

// The models at sizes that take seconds on the stand-in.
std::vector<ModelRun> model_runs() {
  std::vector<std::vector<std::string>> models{{"vit_tiny", "--image-size", "224", "--drop-rate",
                                                "0.1", "--attn-drop-rate", "0.1",
                                                "--drop-path-rate", "0.1", "--layer-decay", "0.7",
                                                "--ema", "0.9", "--representation-size", "192"}};
  // All operations of these also occur in vit_large and vit_tiny_distilled, resnet34 or resnet50.
  const std::set<std::string> covered{"vit_large_distilled", "resnet18", "resnet101", "resnet152"};
  for (const std::string& model : known_models())
    if (!covered.contains(model))
      models.push_back({model, "--image-size", model == "vit_tiny" ? "224" : "64"});
  std::vector<ModelRun> runs;
  for (const Device& device : devices_to_test())
    for (const DType dtype : device.dtypes)
      for (std::vector<std::string> arguments : models) {
        const std::string precision = dtype == DType::fp32   ? "fp32"
                                      : dtype == DType::fp16 ? "fp16"
                                                             : "bf16";
        std::string name = device.name + "_" + arguments[0] + "_" + precision;
        if (arguments.size() > 3) name += "_dropout";
        arguments.insert(arguments.end(), {"--batch", "1", "--precision", precision});
        if (device.unavailable.empty()) runs.push_back({device, dtype, name, arguments});
      }
  return runs;
}

class ModelOperations : public testing::TestWithParam<ModelRun> {
 protected:
  struct Block {
    TensorArgument argument;
    void* data;
  };

  void* memory(const TensorArgument& t) {
    const auto bytes = static_cast<size_t>(t.bytes);
    void* data = device.allocate(bytes);
    const std::vector<std::byte> values = usual_values(t);
    for (size_t at = 0; at < bytes; at += values.size())
      device.upload(static_cast<char*>(data) + at, values.data(),
                    std::min(values.size(), bytes - at));
    blocks.push_back({t, data});
    return data;
  }

  void expect_finite(const TensorArgument& t, const void* data) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes));
    device.download(bytes.data(), data, bytes.size());
    EXPECT_TRUE(all_finite(bytes, t.dtype)) << t.name;
  }

  template <class Op>
  void run(Op op) {
    // If a device has a list of operations, another device runs the rest.
    if (device.operations &&
        !std::ranges::count(*device.operations, std::string(Fields(op).operation)))
      return;
    if constexpr (requires { op.count; }) op.count = std::min<size_t>(op.count, 300'007);
    op = in_new_memory(op, [this](const TensorArgument& t) { return memory(t); });
    void* workspace = nullptr;
    if constexpr (requires { op.workspace; })
      if (const size_t bytes = kernels->workspace_bytes(op))
        op.workspace = workspace = device.allocate(bytes);
    kernels->run(op, nullptr);
    for (const auto& [argument, data] : blocks) {
      if (argument.floating) expect_finite(argument, data);
      device.release(data);
    }
    blocks.clear();
    if (workspace) device.release(workspace);
  }

  const Device& device = GetParam().device;
  StandInChip chip{device.chip};
  std::shared_ptr<Kernels> kernels = device.make_kernels();
  std::vector<Block> blocks;
};

TEST_P(ModelOperations, Run) {
  for (const RecordedOperation& o : record_model(GetParam().arguments)) {
    SCOPED_TRACE(o.name + " " + o.shape);
    std::visit([this](const auto& op) { run(op); }, o.operation);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelOperations, testing::ValuesIn(model_runs()),
                         [](const auto& run) { return run.param.name; });

}  // namespace
}  // namespace bv::test
