#include <stdexcept>

#include "base/json.h"
#include "engine/files/channels_last.h"
#include "engine/files/safetensors.h"

namespace bv {
namespace {

std::string header_of(const std::map<std::string, std::string>& metadata,
                      const TensorViews& tensors) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t end = 0;
  for (const TensorView& tensor : tensors) {
    uint64_t elements = 1;
    for (const int64_t n : tensor.shape) elements *= uint64_t(n);
    if (elements != tensor.data.size())
      throw std::invalid_argument("write_safetensors: " + tensor.name +
                                  ": data doesn't match its shape");
    const uint64_t begin = end;
    end += elements * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = to_line(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts at a multiple of 8 bytes
  return text;
}

}  // namespace

TensorViews views_of(const Tensors& tensors) {
  TensorViews views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, tensor.shape, tensor.data});
  return views;
}

FileDigest write_safetensors(const std::string& path,
                             const std::map<std::string, std::string>& metadata,
                             const TensorViews& tensors) {
  const std::string header = header_of(metadata, tensors);
  const uint64_t header_bytes = header.size();
  OutputFile out(path);
  out.write(std::as_bytes(std::span(&header_bytes, 1)));
  out.write(std::as_bytes(std::span(header)));
  std::vector<float> reordered;
  for (const TensorView& tensor : tensors) {
    std::span<const float> data = tensor.data;
    if (tensor.channels_last) {
      reordered.resize(data.size());
      to_file_order(tensor.shape, data.data(), reordered.data());
      data = reordered;
    }
    out.write(std::as_bytes(data));
  }
  return out.finish();
}

}  // namespace bv
