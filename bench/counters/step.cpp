#include "bench/counters/step.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>

#include "bench/recorded_model.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "simt/device/control.h"

namespace bv::counting {
namespace {

using simt_gpu::check;

std::vector<RecordedOperation> operations_of(const Step& step) {
  std::vector<RecordedOperation> all =
      record_model({step.model, "--precision", step.precision, "--image-size",
                    std::to_string(step.image_size), "--batch", std::to_string(step.batch)},
                   /*together=*/step.set == KernelSet::hopper);
  std::erase_if(all, [](const RecordedOperation& o) { return o.count == 0; });  // evaluation only
  return all;
}

class Memory {
 public:
  ~Memory() {
    for (void* p : all_) cudaFree(p);
  }
  void* allocate(size_t bytes) {
    if (!bytes) return nullptr;
    check(cudaMalloc(&all_.emplace_back(), bytes), "cudaMalloc");
    return all_.back();
  }
  void* tensor(const TensorArgument& t) {
    const auto bytes = static_cast<size_t>(t.bytes);
    const std::vector<std::byte> values = usual_values(t);
    auto* const p = static_cast<char*>(allocate(bytes));
    for (size_t at = 0; at < bytes; at += values.size())
      check(cudaMemcpy(p + at, values.data(), std::min(values.size(), bytes - at),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
    if (p) simt::label(p, t.name, t.floating ? size_of(t.dtype) : 0);
    return p;
  }

 private:
  std::vector<void*> all_;
};

bool has(const std::string& text, const std::string& word) {
  const auto same_letter = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  return word.empty() || !std::ranges::search(text, word, same_letter).empty();
}

// Runs the operations, with memory for tensors from `tensor` and for workspaces from `workspace`.
StepCounts count(const Step& step, const std::vector<RecordedOperation>& operations,
                 const std::function<void*(Memory&, const TensorArgument&)>& tensor,
                 const std::function<void*(Memory&, size_t)>& workspace) {
  simt::multiprocessors = step.multiprocessors;
  const std::unique_ptr<Kernels> kernels = simt_gpu::make_cuda_kernels(nullptr, step.set);
  StepCounts counts;
  for (const RecordedOperation& recorded : operations) {
    Memory memory;
    const auto run = [&](const auto& recorded_op) {
      auto op =
          in_new_memory(recorded_op, [&](const TensorArgument& t) { return tensor(memory, t); });
      if constexpr (requires { op.workspace; })
        if (const size_t bytes = kernels->workspace_bytes(op))
          op.workspace = workspace(memory, bytes);
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      simt::take_counters();
      kernels->run(op, nullptr);
      check(cudaDeviceSynchronize(), recorded.name.c_str());
    };
    std::visit(run, recorded.operation);
    counts.operations.push_back(
        {recorded.name, recorded.shape, recorded.count, recorded.cost, simt::take_counters()});
  }
  return counts;
}

StepCounts count_runs(const Step& step, const std::vector<RecordedOperation>& operations) {
  return count(
      step, operations, [](Memory& memory, const TensorArgument& t) { return memory.tensor(t); },
      [](Memory& memory, size_t bytes) { return memory.allocate(bytes); });
}

}  // namespace

simt::Counters OperationCounts::all() const {
  simt::Counters sum;
  for (const auto& kernel : kernels) sum += kernel.second;
  return sum;
}

std::map<std::string, simt::Counters> StepCounts::kernels() const {
  std::map<std::string, simt::Counters> sums;
  for (const OperationCounts& o : operations)
    for (const auto& [name, counters] : o.kernels) sums[name] += counters * uint64_t(o.count);
  return sums;
}

double StepCounts::moved() const {
  double sum = 0;
  for (const OperationCounts& o : operations) sum += o.count * double(o.all().moved());
  return sum;
}
double StepCounts::needed() const {
  double sum = 0;
  for (const OperationCounts& o : operations) sum += o.count * o.cost.bytes;
  return sum;
}
double StepCounts::flops() const {
  double sum = 0;
  for (const OperationCounts& o : operations) sum += o.count * o.cost.flops;
  return sum;
}
uint64_t StepCounts::launches() const {
  uint64_t sum = 0;
  for (const OperationCounts& o : operations) sum += uint64_t(o.count) * o.all().launches;
  return sum;
}

StepCounts count_step(const Step& step, const std::string& word) {
  std::vector<RecordedOperation> operations = operations_of(step);
  if (!word.empty()) {
    const StepCounts launched = count_launches(step);  // to find each operation's kernels
    size_t i = 0;
    std::erase_if(operations, [&](const RecordedOperation&) {
      const OperationCounts& o = launched.operations[i++];
      return !has(o.name, word) &&
             std::ranges::none_of(o.kernels, [&](const auto& k) { return has(k.first, word); });
    });
  }
  return count_runs(step, operations);
}

OperationCounts count_operation(const Step& step, size_t number) {
  return count_runs(step, {operations_of(step).at(number)}).operations.front();
}

StepCounts count_launches(const Step& step) {
  Memory memory;
  void* const anywhere = memory.allocate(4096);
  simt::kernels_run_at_all = false;
  StepCounts counts = count(
      step, operations_of(step), [&](Memory&, const TensorArgument&) { return anywhere; },
      [&](Memory&, size_t) { return anywhere; });
  simt::kernels_run_at_all = true;
  return counts;
}

}  // namespace bv::counting
