#include "engine/model/feed.h"

#include <cstring>

namespace bv {
namespace {

constexpr size_t params_each = align(sizeof(StepParams));

size_t image_bytes(int height, int width) {
  return static_cast<size_t>(height) * static_cast<size_t>(width) * 3;
}

}  // namespace

Feed::Feed(Backend& backend, const Sizes& sizes)
    : backend_(&backend),
      sizes_(sizes),
      rows_(static_cast<size_t>(sizes.batch / sizes.micro_batches)),
      images_(field(0, sizes.images, image_bytes(sizes.height, sizes.width))),
      crops_(field(images_.end(sizes.micro_batches), sizes.images, sizeof(Crop))),
      ops_(field(crops_.end(sizes.micro_batches), sizes.images,
                 static_cast<size_t>(sizes.layers) * sizeof(ImageOp))),
      mixes_(field(ops_.end(sizes.micro_batches), sizes.mixing && (sizes.images || sizes.targets),
                   sizeof(Mix))),
      labels_(
          field(mixes_.end(sizes.micro_batches), sizes.images || sizes.targets, sizeof(int32_t))),
      params_bytes_(static_cast<size_t>(sizes.micro_batches) * params_each),
      slot_bytes_(labels_.end(sizes.micro_batches)) {
  if (slots() == 1) return;
  for (Event* events : {uploaded_, consumed_})
    for (int i = 0; i < 2; ++i) events[i] = backend.create_event();
}

Feed::Field Feed::field(size_t at, bool wanted, size_t bytes_of_row) const {
  const size_t bytes = wanted ? rows_ * bytes_of_row : 0;
  return {at, align(bytes), bytes};
}

void Feed::allocate() {
  memory_ = zeroed_memory(*backend_, bytes());
  const auto sets = static_cast<size_t>(sizes_.params_in_flight);
  params_ = host_memory(*backend_, sets * params_bytes_);
}

void Feed::bind(Context& context, int micro) const {
  const auto number = static_cast<size_t>(micro);
  const auto place = [&]<class T>(const Field& field, const T*& to) {
    if (field.used) to = reinterpret_cast<const T*>(slot(0) + field.at + number * field.each);
  };
  context.params = params(micro);
  place(images_, context.images);
  place(crops_, context.crops);
  place(ops_, context.ops);
  place(mixes_, context.mixes);
  place(labels_, context.labels);
}

const StepParams* Feed::params(int micro) const {
  return reinterpret_cast<const StepParams*>(memory_.data() +
                                             static_cast<size_t>(micro) * params_each);
}

std::span<char> Feed::targets() const { return std::span(slot(0), slot_bytes_).subspan(mixes_.at); }

void Feed::copy(char* slot, const Field& field, const void* from, size_t used, Stream stream) {
  if (!from || used == 0) return;
  for (int micro = 0; micro < sizes_.micro_batches; ++micro) {
    const auto number = static_cast<size_t>(micro);
    backend_->to_device(slot + field.at + number * field.each,
                        static_cast<const char*>(from) + number * used, used, stream);
  }
}

void Feed::copy(const Batch& from, char* slot, Stream stream) {
  copy(slot, images_, from.images, rows_ * image_bytes(from.height, from.width), stream);
  copy(slot, crops_, from.crops, crops_.used, stream);
  copy(slot, ops_, from.ops, ops_.used, stream);
  copy(slot, mixes_, from.mixes, mixes_.used, stream);
  copy(slot, labels_, from.labels, labels_.used, stream);
}

void Feed::upload(const Batch& batch) {
  if (!sizes_.images) return;
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
  char* const host = static_cast<char*>(params_.get()) + turn * params_bytes_;
  for (size_t i = 0; i < params.size(); ++i)
    std::memcpy(host + i * params_each, &params[i], sizeof params[i]);
  backend_->to_device(memory_.data(), host, params_bytes_, nullptr);
}

}  // namespace bv
