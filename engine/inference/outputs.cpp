#include "engine/inference/outputs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/model/memory.h"

namespace bv {
namespace {

float to_float(uint16_t bits, DType dtype) {
  return dtype == DType::fp16 ? static_cast<float>(std::bit_cast<_Float16>(bits))
                              : std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace

void append_predictions(const BatchOutputs& batch, std::vector<Prediction>& to) {
  for (int row = 0; row < batch.count; ++row) {
    const std::span<const float> logits = batch.logits_of(row);
    const int32_t top = top_class(logits);
    to.push_back({.index = batch.first + row,
                  .label = batch.labels[static_cast<size_t>(row)],
                  .top = top,
                  .loss = batch.loss[static_cast<size_t>(row)],
                  .probability = static_cast<float>(softmax(logits)[static_cast<size_t>(top)])});
  }
}

Outputs::Outputs(Backend& backend, const Graph& largest) : backend_(&backend), largest_(&largest) {}

void Outputs::begin(Receive receive) {
  receive_ = std::move(receive);
  if (slots_[0].copied) return;
  for (Slot& slot : slots_) {
    slot.logits = host_memory(*backend_, largest_->info(largest_->logits()).bytes());
    slot.loss = host_memory(*backend_, largest_->info(largest_->loss()).bytes());
    slot.copied = backend_->create_event();
  }
}

void Outputs::add(const Batch& batch, const ModelChunk& stage, const int32_t* device_labels) {
  if (!receive_) return;
  Slot& slot = slots_[turn_];
  turn_ = 1 - turn_;
  deliver(slot);
  const Graph& graph = stage.graph();
  const auto copy = [&](void* to, Tensor from) {
    backend_->to_host(to, stage.place(0, from), graph.info(from).bytes(), nullptr);
  };
  copy(slot.logits.get(), graph.logits());
  copy(slot.loss.get(), graph.loss());
  const auto count = static_cast<size_t>(batch.count);
  slot.labels.resize(count);
  if (!device_labels) {
    std::copy_n(batch.labels, count, slot.labels.begin());
  } else {
    if (!slot.device_labels)
      slot.device_labels = host_memory(*backend_, graph.info(graph.loss()).bytes());
    backend_->to_host(slot.device_labels.get(), device_labels, count * sizeof(int32_t), nullptr);
  }
  backend_->record(slot.copied, nullptr);
  slot.graph = &graph;
  slot.first = batch.position;
  slot.full = true;
}

void Outputs::deliver(Slot& slot) {
  if (!std::exchange(slot.full, false)) return;
  backend_->host_wait(slot.copied);
  if (slot.device_labels)
    std::copy_n(static_cast<const int32_t*>(slot.device_labels.get()), slot.labels.size(),
                slot.labels.begin());
  const TensorInfo& logits = slot.graph->info(slot.graph->logits());
  const size_t count = slot.labels.size(), classes = static_cast<size_t>(logits.shape.back());
  const auto* floats = static_cast<const float*>(slot.logits.get());
  if (logits.dtype != DType::fp32) {
    const auto* bits = static_cast<const uint16_t*>(slot.logits.get());
    logits_.resize(count * classes);
    for (size_t i = 0; i < logits_.size(); ++i) logits_[i] = to_float(bits[i], logits.dtype);
    floats = logits_.data();
  }
  receive_({.first = slot.first,
            .count = static_cast<int>(count),
            .classes = static_cast<int>(classes),
            .logits = {floats, count * classes},
            .loss = {static_cast<const float*>(slot.loss.get()), count},
            .labels = slot.labels});
}

void Outputs::finish() {
  for (int i = 0; i < 2; ++i) deliver(slots_[(turn_ + i) % 2]);
  receive_ = {};
}

}  // namespace bv
