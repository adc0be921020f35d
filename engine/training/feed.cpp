#include "engine/training/feed.h"

#include <algorithm>

namespace bv {
namespace {

size_t image_bytes(int height, int width) {
  return static_cast<size_t>(height) * static_cast<size_t>(width) * 3;
}

}  // namespace

Feed::Feed(Backend& backend, const Sizes& sizes)
    : backend_(&backend),
      sizes_(sizes),
      params_bytes_(align(static_cast<size_t>(sizes.micro_batches) * sizeof(StepParams))),
      images_(static_cast<size_t>(sizes.batch)),
      op_bytes_(images_ * static_cast<size_t>(sizes.layers) * sizeof(ImageOp)),
      mix_bytes_(sizes.mixing ? images_ * sizeof(Mix) : 0),
      crops_at_(sizes.images ? align(images_ * image_bytes(sizes.height, sizes.width)) : 0),
      ops_at_(crops_at_ + (sizes.images ? align(images_ * sizeof(Crop)) : 0)),
      mixes_at_(ops_at_ + (sizes.images ? align(op_bytes_) : 0)),
      labels_at_(mixes_at_ + align(mix_bytes_)),
      slot_bytes_(sizes.images || sizes.targets ? labels_at_ + align(images_ * sizeof(int32_t))
                                                : 0) {
  if (slots() == 1) return;
  for (Event* events : {uploaded_, consumed_})
    for (int i = 0; i < 2; ++i) events[i] = backend.create_event();
}

void Feed::allocate() {
  memory_ = zeroed_memory(*backend_, bytes());
  const int params = sizes_.params_in_flight * sizes_.micro_batches;
  params_ = host_memory(*backend_, static_cast<size_t>(params) * sizeof(StepParams));
}

void Feed::bind(Context& context, int micro) const {
  const auto number = static_cast<size_t>(micro);
  const size_t first = number * (images_ / static_cast<size_t>(sizes_.micro_batches));
  context.params = memory_.data<const StepParams>() + number;
  if (sizes_.images) {
    context.images = reinterpret_cast<const uint8_t*>(slot(0)) + first * image_bytes_;
    context.crops = reinterpret_cast<const Crop*>(slot(0) + crops_at_) + first;
    context.ops = reinterpret_cast<const ImageOp*>(slot(0) + ops_at_) +
                  first * static_cast<size_t>(sizes_.layers);
  }
  if (slot_bytes_ == 0) return;
  if (mix_bytes_) context.mixes = reinterpret_cast<const Mix*>(slot(0) + mixes_at_) + first;
  context.labels = reinterpret_cast<const int32_t*>(slot(0) + labels_at_) + first;
}

std::span<char> Feed::targets() const { return std::span(slot(0), slot_bytes_).subspan(mixes_at_); }

void Feed::copy(const Batch& from, char* slot, Stream stream) {
  backend_->to_device(slot, from.images, images_ * image_bytes(from.height, from.width), stream);
  backend_->to_device(slot + crops_at_, from.crops, images_ * sizeof(Crop), stream);
  if (from.ops) backend_->to_device(slot + ops_at_, from.ops, op_bytes_, stream);
  if (from.mixes) backend_->to_device(slot + mixes_at_, from.mixes, mix_bytes_, stream);
  backend_->to_device(slot + labels_at_, from.labels, images_ * sizeof(int32_t), stream);
}

void Feed::upload(const Batch& batch) {
  if (!sizes_.images) return;
  image_bytes_ = image_bytes(batch.height, batch.width);
  const Stream stream = backend_->upload_stream();
  if (!stream) return copy(batch, slot(0), nullptr);
  const int turn = uploads_++ % 2;
  char* incoming = slot(1 + turn);
  backend_->wait(stream, consumed_[turn]);
  copy(batch, incoming, stream);
  backend_->record(uploaded_[turn], stream);
  backend_->wait(nullptr, uploaded_[turn]);
  backend_->copy(slot(0), incoming, slot_bytes_, nullptr);
  backend_->record(consumed_[turn], nullptr);
}

void Feed::wait_for_upload() {
  if (uploads_ > 0) backend_->host_wait(uploaded_[(uploads_ - 1) % 2]);
}

void Feed::set_params(std::span<const StepParams> params) {
  const size_t turn = params_written_++ % static_cast<size_t>(sizes_.params_in_flight);
  StepParams* const host = static_cast<StepParams*>(params_.get()) + turn * params.size();
  std::ranges::copy(params, host);
  backend_->to_device(memory_.data(), host, params.size_bytes(), nullptr);
}

}  // namespace bv
