#include "data/loader_options.h"

namespace bv {

int stored_size(DataKind kind, const Cropping& crop, int image_size, bool train) {
  constexpr int cifar_size = 32;
  const bool as_it_is = train && crop.train == TrainCrop::pad_if_needed;
  return as_it_is && kind == DataKind::cifar ? cifar_size : image_size;
}

}  // namespace bv
