// Parsed event by event rather than as a tree: duplicate names are seen, nesting goes no deeper
// than the format, and a hostile header never grows beyond its own size.
#include "engine/files/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace bv {
namespace {

constexpr size_t max_dimensions = 16;

std::optional<FileDType> dtype_named(std::string_view name) {
  if (name == "F64") return FileDType::f64;
  if (name == "F32") return FileDType::f32;
  if (name == "F16") return FileDType::f16;
  if (name == "BF16") return FileDType::bf16;
  if (name == "I64") return FileDType::i64;
  return std::nullopt;
}

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  SafetensorsHeader header;

  bool start_object(std::size_t) override {
    if (place_ == Place::start) return go(Place::top);
    if (place_ == Place::top && key_ == "__metadata__") return go(Place::metadata);
    if (place_ != Place::top) fail("has an object in the wrong place");
    tensor_ = {.name = key_};
    dtype_.clear();
    offsets_.clear();
    seen_.clear();
    return go(Place::tensor);
  }

  bool key(string_t& name) override {
    key_ = name;
    if (place_ == Place::top && !names_.insert(name).second) fail("names " + quoted() + " twice");
    if (place_ == Place::metadata && header.metadata.count(name))
      fail("has the metadata " + quoted() + " twice");
    if (place_ == Place::tensor && !seen_.insert(name).second) fail_tensor("has a key twice");
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata)
      header.metadata[key_] = value;
    else if (place_ == Place::tensor && key_ == "dtype")
      dtype_ = value;
    else
      fail("has a text in the wrong place");
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && key_ == "shape") return go(Place::shape);
    if (place_ == Place::tensor && key_ == "data_offsets") return go(Place::offsets);
    fail("has a list in the wrong place");
  }

  bool number_unsigned(number_unsigned_t value) override {
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
  bool number_integer(number_integer_t v) override {
    fail("has the number " + std::to_string(v) + " in place of a size or an offset");
  }
  bool number_float(number_float_t, const string_t& text) override {
    fail("has the number " + printable(text) + " in place of a size or an offset");
  }
  bool binary(binary_t&) override { fail("has binary data"); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
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
    const auto dtype = dtype_named(dtype_);
    if (!dtype)
      throw UserError(path_ + ": tensor '" + printable(tensor_.name) + "' is of dtype " +
                      printable(dtype_) + "; F64, F32, F16, BF16 and I64 can be read");
    tensor_.dtype = *dtype;
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    if (tensor_.begin > tensor_.end) fail_tensor("ends before it begins");
    check_bytes();
    header.tensors.push_back(std::move(tensor_));
  }

  void check_bytes() const {
    uint64_t bytes = size_of(tensor_.dtype);
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

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           const std::string& path) {
  HeaderReader reader(path);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  check_layout(reader.header.tensors, data_bytes, path);
  return std::move(reader.header);
}

}  // namespace bv
