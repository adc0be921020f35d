#include "engine/model/two_precisions.h"

namespace bv {

const Model& TwoPrecisions::largest() const {
  const auto bytes = [](const Model& m) { return m.saved_bytes() + m.scratch_bytes(); };
  return bytes(*fp32_) > bytes(*sixteen_bits_) ? *fp32_ : *sixteen_bits_;
}

void TwoPrecisions::use(char* saved, char* scratch) {
  sixteen_bits_->use(saved, scratch);
  fp32_->use(saved, scratch);
}

void TwoPrecisions::profile(Profile* to) {
  sixteen_bits_->profile(to);
  fp32_->profile(to);
}

void TwoPrecisions::trace(Trace* to) {
  sixteen_bits_->trace(to);
  fp32_->trace(to);
}

}  // namespace bv
