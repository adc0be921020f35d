#include "engine/files/png.h"

#include <new>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace bv {

std::vector<std::byte> encode_png(const uint8_t* pixels, int height, int width) {
  std::vector<std::byte> file;
  const auto append = [](void* to, void* data, int size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    static_cast<std::vector<std::byte>*>(to)->insert(
        static_cast<std::vector<std::byte>*>(to)->end(), bytes, bytes + size);
  };
  if (!stbi_write_png_to_func(append, &file, width, height, 3, pixels, 3 * width))
    throw std::bad_alloc();
  return file;
}

}  // namespace bv
