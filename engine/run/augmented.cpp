#include "engine/run/augmented.h"

#include <algorithm>
#include <utility>

namespace bv {

std::vector<uint8_t> augmented_images(Backend& backend, const Batch& batch, int rows, int layers,
                                      int size) {
  const auto count = static_cast<size_t>(rows);
  const auto uploaded = [&](const void* from, size_t bytes) {
    DeviceMemory memory(backend, bytes);
    backend.to_device(memory.data(), from, bytes, nullptr);
    return memory;
  };
  // Images are cropped even without operations.
  const std::vector<ImageOp> nothing(count);
  const ImageOp* given = layers > 0 ? batch.ops : nothing.data();
  layers = std::max(layers, 1);
  const DeviceMemory images = uploaded(batch.images, count * 3 * static_cast<size_t>(batch.height) *
                                                         static_cast<size_t>(batch.width));
  const DeviceMemory crops = uploaded(batch.crops, count * sizeof(Crop));
  const DeviceMemory ops = uploaded(given, count * static_cast<size_t>(layers) * sizeof(ImageOp));

  std::vector<uint8_t> result(count * 3 * static_cast<size_t>(size) * static_cast<size_t>(size));
  DeviceMemory from(backend, result.size()), to(backend, result.size());
  for (int layer = 0; layer < layers; ++layer) {
    const bool first = layer == 0;
    backend.kernels().run(AugmentImages{.out = to.data<uint8_t>(),
                                        .images = (first ? images : from).data<uint8_t>(),
                                        .crops = first ? crops.data<Crop>() : nullptr,
                                        .ops = ops.data<ImageOp>(),
                                        .shape = {.B = rows,
                                                  .height = first ? batch.height : size,
                                                  .width = first ? batch.width : size,
                                                  .size = size,
                                                  .layer = layer,
                                                  .layers = layers}},
                          nullptr);
    std::swap(from, to);
  }
  backend.to_host(result.data(), from.data(), result.size(), nullptr);
  backend.synchronize(nullptr);
  return result;
}

std::vector<uint8_t> first_training_images(Backend& backend, const Setup& setup, int count) {
  LoaderOptions options = loader_options(setup, 0, 1);
  options.local_batch = count;
  options.ranks = 1;
  options.cache_bytes = 0;
  options.prefetch = 1;
  Loader loader(*setup.data.train, options, true);
  loader.start(0, 0);
  return augmented_images(backend, loader.next(), count, options.augment.layers(),
                          *setup.options.image_size);
}

}  // namespace bv
