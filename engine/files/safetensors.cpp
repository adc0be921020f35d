#include "engine/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "engine/base/json.h"
#include "engine/files/safetensors_header.h"

namespace bv {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's data is little-endian");

constexpr uint64_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100'000'000;  // what the format's own library reads

using Read = std::function<void(uint64_t offset, std::span<std::byte> out)>;

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in fp32
    const float value = float(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent - 15 + 127;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

// Reads in chunks, so that converting needs no second copy of a tensor.
template <class T, std::invocable<T> Convert>
void read_converted(const Read& read, uint64_t offset, std::span<float> out, Convert convert) {
  std::vector<T> chunk(std::min<size_t>(out.size(), 1 << 16));
  while (!out.empty()) {
    const auto part = std::span(chunk).first(std::min(chunk.size(), out.size()));
    read(offset, std::as_writable_bytes(part));
    for (size_t i = 0; i < part.size(); ++i) out[i] = convert(part[i]);
    out = out.subspan(part.size());
    offset += part.size_bytes();
  }
}

void read_tensor(const Read& read, uint64_t offset, FileDType dtype, std::span<float> out) {
  switch (dtype) {
    case FileDType::f32:
      return read(offset, std::as_writable_bytes(out));
    case FileDType::f64:
      return read_converted<double>(read, offset, out, [](double x) { return float(x); });
    case FileDType::i64:
      return read_converted<int64_t>(read, offset, out, [](int64_t x) { return float(x); });
    case FileDType::f16:
      return read_converted<uint16_t>(read, offset, out, from_f16);
    case FileDType::bf16:
      return read_converted<uint16_t>(read, offset, out, from_bf16);
  }
}

TensorFile read_from(const Read& read, uint64_t file_bytes, const std::string& path) {
  uint64_t header_bytes = 0;
  if (file_bytes < length_bytes)
    throw UserError(path + ": not a .safetensors file: " + std::to_string(file_bytes) +
                    " bytes are too few");
  read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > file_bytes - length_bytes || header_bytes > max_header_bytes)
    throw UserError(path + ": not a .safetensors file, or cut short: a header of " +
                    std::to_string(header_bytes) + " bytes in a file of " +
                    std::to_string(file_bytes));
  std::string text(header_bytes, '\0');
  read(length_bytes, std::as_writable_bytes(std::span(text)));
  const uint64_t data = length_bytes + header_bytes;
  SafetensorsHeader header = parse_safetensors_header(text, file_bytes - data, path);

  TensorFile file{.metadata = std::move(header.metadata)};
  for (TensorEntry& entry : header.tensors) {
    HostTensor& tensor = file.tensors[entry.name];
    tensor.shape = std::move(entry.shape);
    tensor.data.resize(entry.elements());
    read_tensor(read, data + entry.begin, entry.dtype, tensor.data);
  }
  return file;
}

std::string header_of(const TensorFile& file) {
  std::string text = "{", list;
  for (const auto& [key, value] : file.metadata)
    list += (list.empty() ? "" : ",") + quote_json(key) + ":" + quote_json(value);
  if (!list.empty()) text += "\"__metadata__\":{" + list + "}";
  uint64_t end = 0;
  for (const auto& [name, tensor] : file.tensors) {
    uint64_t elements = 1;
    std::string shape;
    for (const int64_t n : tensor.shape) {
      elements *= uint64_t(n);
      shape += (shape.empty() ? "" : ",") + std::to_string(n);
    }
    if (elements != tensor.data.size())
      throw std::invalid_argument("write_safetensors: " + name + ": data doesn't match its shape");
    const uint64_t begin = end;
    end += elements * sizeof(float);
    text += (text.size() > 1 ? "," : "") + quote_json(name) + ":{\"dtype\":\"F32\",\"shape\":[" +
            shape + "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) +
            "]}";
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts at a multiple of 8 bytes
  return text;
}

}  // namespace

TensorFile parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const Read read = [file](uint64_t offset, std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
  };
  return read_from(read, file.size(), path);
}

TensorFile read_safetensors(const std::string& path) {
  const InputFile file(path);
  const Read read = [&file](uint64_t offset, std::span<std::byte> out) { file.read(offset, out); };
  return read_from(read, file.size(), path);
}

FileDigest write_safetensors(const std::string& path, const TensorFile& file) {
  const std::string header = header_of(file);
  const uint64_t header_bytes = header.size();
  OutputFile out(path);
  out.write(std::as_bytes(std::span(&header_bytes, 1)));
  out.write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : file.tensors) out.write(std::as_bytes(std::span(tensor.data)));
  return out.finish();
}

}  // namespace bv
