// A model in 16 bits and in fp32 (--amp-policy), one of which computes at a time. They have the
// same parameters and share their memory.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>

#include "engine/model/model.h"

namespace bv {

class TwoPrecisions final : public Model {
 public:
  TwoPrecisions(std::unique_ptr<Model> sixteen_bits, std::unique_ptr<Model> fp32)
      : sixteen_bits_(std::move(sixteen_bits)), fp32_(std::move(fp32)), now_(sixteen_bits_.get()) {}
  // Sets the precision of the following passes.
  void compute_in(DType dtype) { now_ = dtype == DType::fp32 ? fp32_.get() : sixteen_bits_.get(); }
  const Model& largest() const;  // the one that needs more memory

  const Graph& graph() const override { return now_->graph(); }
  size_t saved_bytes() const override {
    return std::max(sixteen_bits_->saved_bytes(), fp32_->saved_bytes());
  }
  size_t scratch_bytes() const override {
    return std::max(sixteen_bits_->scratch_bytes(), fp32_->scratch_bytes());
  }
  void use(char* saved, char* scratch) override;
  void share_batch(const Feed& feed, const Context& first) override {
    now_->share_batch(feed, first);
  }
  void train(std::span<const Context> micro_batches, const BackwardCallbacks& callbacks) override {
    now_->train(micro_batches, callbacks);
  }
  void evaluate(const Context& context, int micro) override { now_->evaluate(context, micro); }
  bool computes_loss() const override { return now_->computes_loss(); }
  const ModelChunk& last_chunk() const override { return now_->last_chunk(); }
  const Channel* stage_channel() const override { return now_->stage_channel(); }
  void profile(Profile*) override;
  void trace(Trace*) override;

 private:
  std::unique_ptr<Model> sixteen_bits_, fp32_;
  Model* now_;
};

}  // namespace bv
