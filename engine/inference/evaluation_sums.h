// What an evaluation adds up on the device.
#pragma once
#include "comm/communicator.h"
#include "engine/model/memory.h"
#include "kernels/backend.h"

namespace bv {

struct EvaluationSums {  // as they lie on the device
  double loss = 0, count = 0, top1 = 0, top5 = 0;
};

class DeviceSums {
 public:
  static constexpr size_t bytes = align(sizeof(EvaluationSums));
  void allocate(Backend& backend) { memory_ = zeroed_memory(backend, bytes); }
  double* data() const { return memory_.data<double>(); }
  void zero(Backend& backend) { backend.zero(data(), sizeof(EvaluationSums), nullptr); }
  // Over all ranks; waits for the device. No communicator: one rank.
  EvaluationSums read(Backend& backend, Communicator* communicator) const {
    if (communicator) communicator->all_reduce(data(), 4, nullptr);
    EvaluationSums sums;
    backend.to_host(&sums, data(), sizeof sums, nullptr);
    backend.synchronize(nullptr);
    return sums;
  }

 private:
  DeviceMemory memory_;
};

}  // namespace bv
