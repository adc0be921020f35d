// Reads .safetensors files; safetensors_write.cpp writes them.
#include "engine/files/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "engine/files/element_types.h"

namespace bv {
namespace {

constexpr uint64_t length_bytes = 8;
constexpr size_t max_dimensions = 16;
constexpr uint64_t max_header_bytes = 100'000'000;  // the limit of the safetensors library

struct TensorEntry {
  std::string name;
  const ElementType* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

// Parses the header event by event rather than as a tree: this detects duplicate names, limits the
// nesting, and keeps a hostile header from taking more memory than its own size.
class HeaderReader final : public JsonEvents {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;

  bool start_object(size_t) override {
    if (place_ == Place::start) return go(Place::top);
    if (place_ == Place::top && key_ == "__metadata__") return go(Place::metadata);
    if (place_ != Place::top) fail("has an object in the wrong place");
    tensor_ = {.name = key_};
    dtype_.clear();
    offsets_.clear();
    seen_.clear();
    return go(Place::tensor);
  }

  bool key(std::string& name) override {
    key_ = name;
    if (place_ == Place::top && !names_.insert(name).second) fail("names " + quoted() + " twice");
    if (place_ == Place::metadata && metadata.count(name))
      fail("has the metadata " + quoted() + " twice");
    if (place_ == Place::tensor && !seen_.insert(name).second) fail_tensor("has a key twice");
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata)
      metadata[key_] = value;
    else if (place_ == Place::tensor && key_ == "dtype")
      dtype_ = value;
    else
      fail("has a string in the wrong place");
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::tensor && key_ == "shape") return go(Place::shape);
    if (place_ == Place::tensor && key_ == "data_offsets") return go(Place::offsets);
    fail("has a list in the wrong place");
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::shape) {
      if (tensor_.shape.size() == max_dimensions) fail_tensor("has too many dimensions");
      if (value > INT64_MAX) fail_tensor("has a dimension of " + std::to_string(value));
      tensor_.shape.push_back(int64_t(value));
    } else if (place_ == Place::offsets && offsets_.size() < 2) {
      offsets_.push_back(value);
    } else {
      fail("has a number in the wrong place");
    }
    return true;
  }

  bool end_array() override { return go(Place::tensor); }

  bool end_object() override {
    if (place_ == Place::tensor) finish_tensor();
    return go(place_ == Place::top ? Place::done : Place::top);
  }

  bool null() override { fail("has a null in the wrong place"); }
  bool boolean(bool) override { fail("has a boolean in the wrong place"); }
  bool number_integer(int64_t v) override {
    fail("has the number " + std::to_string(v) + " in place of a size or an offset");
  }
  bool number_float(double, const std::string& text) override {
    fail("has the number " + printable(text) + " in place of a size or an offset");
  }
  bool binary(Json::binary_t&) override { return false; }
  bool parse_error(size_t at, const std::string&, const Json::exception&) override {
    fail("is not JSON at its byte " + std::to_string(at));
  }

 private:
  enum class Place { start, top, metadata, tensor, shape, offsets, done };

  bool go(Place place) {
    place_ = place;
    return true;
  }
  std::string quoted() const { return "'" + printable(key_) + "'"; }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(path_ + ": not a valid .safetensors file: its header " + what);
  }
  [[noreturn]] void fail_tensor(const std::string& what) const {
    throw UserError(path_ + ": not a valid .safetensors file: tensor '" + printable(tensor_.name) +
                    "' " + what);
  }

  void finish_tensor() {
    if (seen_ != std::set<std::string>{"dtype", "shape", "data_offsets"} || offsets_.size() != 2)
      fail_tensor("needs a dtype, a shape and two data_offsets, and nothing else");
    tensor_.dtype = find_element_type(dtype_);
    if (!tensor_.dtype)
      throw UserError(path_ + ": tensor '" + printable(tensor_.name) + "' has dtype " +
                      printable(dtype_) +
                      "; floats of 16 to 64 bits, integers and BOOL can be read");
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    if (tensor_.begin > tensor_.end) fail_tensor("ends before it begins");
    check_bytes();
    tensors.push_back(std::move(tensor_));
  }

  void check_bytes() const {
    uint64_t bytes = tensor_.dtype->bytes;
    for (const int64_t n : tensor_.shape)
      if (__builtin_mul_overflow(bytes, uint64_t(n), &bytes))
        fail_tensor("has a shape of more elements than can be counted");
    if (bytes != tensor_.end - tensor_.begin)
      fail_tensor("has " + std::to_string(tensor_.end - tensor_.begin) +
                  " bytes of data but its shape needs " + std::to_string(bytes));
  }

  const std::string& path_;
  Place place_ = Place::start;
  std::string key_, dtype_;
  std::vector<uint64_t> offsets_;
  std::set<std::string> names_, seen_;
  TensorEntry tensor_;
};

// The tensors must fill the data without gaps or overlap.
void check_layout(std::vector<TensorEntry>& tensors, uint64_t data_bytes, const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const std::string invalid = path + ": not a valid .safetensors file: ";
  uint64_t filled = 0;
  for (const TensorEntry& t : tensors) {
    if (t.end > data_bytes)
      throw UserError(path + ": cut short: tensor '" + printable(t.name) + "' ends at byte " +
                      std::to_string(t.end) + " of the data, which has " +
                      std::to_string(data_bytes) + "; get the file again");
    if (t.begin != filled)
      throw UserError(invalid + "tensor '" + printable(t.name) + "' begins at byte " +
                      std::to_string(t.begin) + " but the data before it ends at " +
                      std::to_string(filled));
    filled = t.end;
  }
  if (filled != data_bytes)
    throw UserError(invalid + std::to_string(data_bytes - filled) +
                    " bytes after the last tensor belong to no tensor");
}

// A sparse file may be larger than any memory.
void require_memory(const std::vector<TensorEntry>& tensors, const std::string& path) {
  uint64_t bytes = 0;
  for (const TensorEntry& t : tensors) bytes += (t.end - t.begin) / t.dtype->bytes * sizeof(float);
  const uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  if (bytes > memory)
    throw UserError(path + ": its tensors take " + std::to_string(bytes >> 20) +
                    " MiB, this machine has " + std::to_string(memory >> 20));
}

TensorFile read_from(const ReadBytes& read, uint64_t file_bytes, const std::string& path) {
  uint64_t header_bytes = 0;
  if (file_bytes < length_bytes)
    throw UserError(path + ": not a .safetensors file: " + std::to_string(file_bytes) +
                    " bytes are too few");
  read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  const bool too_long = header_bytes > file_bytes - length_bytes || header_bytes > max_header_bytes;
  if (too_long)
    throw UserError(path + ": not a .safetensors file, or cut short" +
                    (header_bytes > max_header_bytes
                         ? ""
                         : ": a header of " + std::to_string(header_bytes) +
                               " bytes in a file of " + std::to_string(file_bytes)));
  std::string text(header_bytes, '\0');
  read(length_bytes, std::as_writable_bytes(std::span(text)));
  const uint64_t data = length_bytes + header_bytes;
  HeaderReader header(path);
  Json::sax_parse(text, &header);
  check_layout(header.tensors, file_bytes - data, path);

  require_memory(header.tensors, path);

  TensorFile file{.metadata = std::move(header.metadata)};
  for (TensorEntry& entry : header.tensors) {
    HostTensor& tensor = file.tensors[entry.name];
    tensor.shape = std::move(entry.shape);
    tensor.integers = holds_integers(*entry.dtype);
    tensor.data.resize((entry.end - entry.begin) / entry.dtype->bytes);
    entry.dtype->read(read, data + entry.begin, tensor.data);
  }
  return file;
}

}  // namespace

TensorFile parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const ReadBytes read = [file](uint64_t offset, std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
  };
  return read_from(read, file.size(), path);
}

TensorFile read_safetensors(const std::string& path) {
  const InputFile file(path);
  const ReadBytes read = [&file](uint64_t offset, std::span<std::byte> out) {
    file.read(offset, out);
  };
  return read_from(read, file.size(), path);
}

}  // namespace bv
