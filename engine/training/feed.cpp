#include "engine/training/feed.h"

namespace bv {
namespace {

size_t image_bytes(int height, int width) {
  return static_cast<size_t>(height) * static_cast<size_t>(width) * 3;
}

}  // namespace

Feed::Feed(Backend& backend, const Sizes& sizes)
    : backend_(&backend),
      images_(static_cast<size_t>(sizes.batch)),
      op_bytes_(images_ * static_cast<size_t>(sizes.layers) * sizeof(ImageOp)),
      mix_bytes_(sizes.mixing ? images_ * sizeof(Mix) : 0),
      crops_at_(align(images_ * image_bytes(sizes.height, sizes.width))),
      ops_at_(crops_at_ + align(images_ * sizeof(Crop))),
      mixes_at_(ops_at_ + align(op_bytes_)),
      labels_at_(mixes_at_ + align(mix_bytes_)),
      slot_bytes_(labels_at_ + align(images_ * sizeof(int32_t))),
      params_in_flight_(static_cast<size_t>(sizes.params_in_flight)) {
  if (!backend.upload_stream()) return;
  for (Event* events : {uploaded_, consumed_})
    for (int i = 0; i < 2; ++i) events[i] = backend.create_event();
}

void Feed::allocate() {
  memory_ = zeroed_memory(*backend_, bytes());
  params_ = host_memory(*backend_, params_in_flight_ * sizeof(StepParams));
}

void Feed::bind(Context& context) const {
  context.params = memory_.data<const StepParams>();
  context.images = reinterpret_cast<const uint8_t*>(slot(0));
  context.crops = reinterpret_cast<const Crop*>(slot(0) + crops_at_);
  context.ops = reinterpret_cast<const ImageOp*>(slot(0) + ops_at_);
  if (mix_bytes_) context.mixes = reinterpret_cast<const Mix*>(slot(0) + mixes_at_);
  context.labels = reinterpret_cast<const int32_t*>(slot(0) + labels_at_);
}

void Feed::copy(const Batch& from, char* slot, Stream stream) {
  backend_->to_device(slot, from.images, images_ * image_bytes(from.height, from.width), stream);
  backend_->to_device(slot + crops_at_, from.crops, images_ * sizeof(Crop), stream);
  if (from.ops) backend_->to_device(slot + ops_at_, from.ops, op_bytes_, stream);
  if (from.mixes) backend_->to_device(slot + mixes_at_, from.mixes, mix_bytes_, stream);
  backend_->to_device(slot + labels_at_, from.labels, images_ * sizeof(int32_t), stream);
}

void Feed::upload(const Batch& batch) {
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
  if (backend_->upload_stream() && uploads_ > 0) backend_->host_wait(uploaded_[(uploads_ - 1) % 2]);
}

void Feed::set_params(const StepParams& params) {
  StepParams& host = static_cast<StepParams*>(params_.get())[params_written_++ % params_in_flight_];
  host = params;
  backend_->to_device(memory_.data(), &host, sizeof host, nullptr);
}

}  // namespace bv
