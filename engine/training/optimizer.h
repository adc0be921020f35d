// The update: norm, clipping and step of all parameters. The device decides, in its UpdateState.
#pragma once
#include <memory>

#include "engine/model/channel.h"
#include "engine/model/memory.h"
#include "engine/model/parameters.h"
#include "engine/trace/trace.h"

namespace bv {

// The outcome of an update, over all replicas.
struct UpdateResult {
  double loss_sum = 0, count = 0;  // of the images trained on
  double top1 = 0;                 // of them, those whose own label came first
  float grad_norm = 0;             // before clipping
  bool skipped = false;            // the gradient was not finite; nothing was updated
  int skipped_in_a_row = 0;
  float loss_scale = 1;  // for the next step
  bool stop = false;     // some process was asked to stop
};

class Optimizer {
 public:
  // update: its kind and numbers; memory and size are filled in here. decay_all: every parameter
  // decays. layer_decay multiplies the rate once per layer below the head; 1 changes nothing.
  Optimizer(Backend&, const Parameters&, const OptimizerUpdate& update, bool decay_all,
            double layer_decay);
  size_t bytes() const { return state_bytes + decay_bytes_ + scale_bytes_ + squares_bytes_; }
  void allocate();

  UpdateState* device_state() const { return memory_.data<UpdateState>(); }
  UpdateState state() const;
  void set_state(const UpdateState&);

  // Updates by the gradients. dtype: what computed them; the loss scale is fp16's alone to change.
  // stages: connects the processes that hold the model's parts, one each; null: this one holds all
  // of it.
  void run(const StepParams*, DType, const Channel* stages);
  // The result comes to the host, which has room for two: turn 0 or 1.
  void send_result(int turn) const;
  UpdateResult result(int turn) const;  // once the device has done so
  void trace(Trace* to) { trace_ = to; }

 private:
  struct HostBlock {
    UpdateState state;
    float tail[4];
  };
  HostBlock& host(int turn) const { return static_cast<HostBlock*>(host_.get())[turn]; }
  static constexpr size_t state_bytes = align(sizeof(UpdateState));
  void measure(const StepParams*, const Channel* stages);  // the norm of the whole model's gradient

  Backend* backend_;
  const Parameters* parameters_;
  OptimizerUpdate update_;
  bool decay_all_;
  double layer_decay_;
  size_t decay_bytes_, scale_bytes_, squares_bytes_;
  DeviceMemory memory_;         // state, decay flags, scales, squares of the model's norm_blocks
  std::shared_ptr<void> host_;  // HostBlocks, by turn
  Trace* trace_ = nullptr;
};

}  // namespace bv
