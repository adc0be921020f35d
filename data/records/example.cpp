#include "data/records/example.h"

#include <algorithm>

#include "base/text.h"
#include "data/dataset.h"

#if BAREVISION_RECORDS
#include "data/records/example.pb.h"
#endif

namespace bv {

std::string without_records() {
  return "this build can't read records: it lacks protobuf; make deps && make adds it";
}

#if !BAREVISION_RECORDS
std::string write_example(const PictureExample&) { throw DataError(without_records()); }
PictureExample parse_example(std::string_view) { throw DataError(without_records()); }
#else

namespace {

using records::Example, records::Feature, records::Features;

class Writer {
 public:
  void text(const char* key, const std::string& value) {
    add(key).mutable_bytes_list()->add_value(value);
  }
  void number(const char* key, int64_t value) { add(key).mutable_int64_list()->add_value(value); }
  Feature& add(const char* key) {
    auto& entry = *example_.mutable_features()->add_feature();
    entry.set_key(key);
    return *entry.mutable_value();
  }
  std::string bytes() const { return example_.SerializeAsString(); }

 private:
  Example example_;
};

void write_objects(const PictureExample& picture, Writer& out) {
  const auto side = [&](const char* key, int Region::*begin, int Region::*length, int of) {
    auto& values = *out.add(key).mutable_float_list();
    for (const RecordedObject& object : picture.objects)
      values.add_value(static_cast<float>(object.box.*begin + (length ? object.box.*length : 0)) /
                       static_cast<float>(of));
  };
  side("image/object/bbox/xmin", &Region::left, nullptr, picture.width);
  side("image/object/bbox/ymin", &Region::top, nullptr, picture.height);
  side("image/object/bbox/xmax", &Region::left, &Region::width, picture.width);
  side("image/object/bbox/ymax", &Region::top, &Region::height, picture.height);
  auto& labels = *out.add("image/object/class/label").mutable_int64_list();
  for (const RecordedObject& object : picture.objects) labels.add_value(object.label);
  auto& texts = *out.add("image/object/class/text").mutable_bytes_list();
  for (const RecordedObject& object : picture.objects) texts.add_value(object.text);
}

// The single value of a feature, moved out; empty if it isn't one byte string.
std::string take_bytes(Feature& feature) {
  if (!feature.has_bytes_list() || feature.bytes_list().value_size() != 1) return "";
  return std::move(*feature.mutable_bytes_list()->mutable_value(0));
}

std::string listed(int count, std::string_view noun, const std::string& values) {
  if (count == 1) return "a " + std::string(noun) + ", " + values;
  return counted(count, noun) + (count > 0 ? ": " + values : "");
}

// The first values of a list, as text.
template <class List>
std::string first_values(const List& list) {
  constexpr int most = 4;
  std::string text;
  for (int i = 0; i < std::min(list.value_size(), most); ++i) {
    if (i > 0) text += ' ';
    if constexpr (requires { list.value(i).size(); })
      text += "'" + printable(list.value(i), 30) + "'";
    else if constexpr (requires { list.value(i) % 1; })
      text += std::to_string(list.value(i));
    else
      text += format_number(double(list.value(i)), 6);
  }
  return text + (list.value_size() > most ? " ..." : "");
}

// "a string, '2'", "3 integers: 0 1 0"
std::string description_of(const Feature& feature) {
  if (feature.has_bytes_list())
    return listed(feature.bytes_list().value_size(), "string", first_values(feature.bytes_list()));
  if (feature.has_float_list())
    return listed(feature.float_list().value_size(), "float", first_values(feature.float_list()));
  if (feature.has_int64_list()) {
    const auto& values = feature.int64_list().value();
    const bool one_hot = values.size() > 1 && std::ranges::count(values, 1) == 1 &&
                         std::ranges::count(values, 0) == values.size() - 1;
    return listed(values.size(), "integer", first_values(feature.int64_list())) +
           (one_hot ? " (one-hot)" : "");
  }
  return "nothing";
}

// The rank of a key in the list of preferred keys: 0 is best, -1 not in the list.
template <size_t N>
int rank_of(std::string_view key, const std::string_view (&keys)[N]) {
  for (size_t i = 0; i < N; ++i)
    if (key == keys[i]) return static_cast<int>(i);
  return -1;
}

constexpr std::string_view image_keys[] = {"image/encoded", "image", "jpeg"};
constexpr std::string_view label_keys[] = {"image/class/label", "label"};

}  // namespace

std::string write_example(const PictureExample& picture) {
  Writer out;
  out.text("image/encoded", picture.image);
  if (picture.label) {
    out.number("image/class/label", *picture.label);
    out.text("image/class/text", picture.text);
  }
  out.number("image/height", picture.height);
  out.number("image/width", picture.width);
  out.text("image/format", picture.format);
  if (!picture.objects.empty()) write_objects(picture, out);
  return out.bytes();
}

PictureExample parse_example(std::string_view payload) {
  Example example;
  if (payload.size() > INT32_MAX ||
      !example.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    throw BadImage("not a tf.train.Example");
  PictureExample picture;
  std::string unread_image = "it has none of image/encoded, image and jpeg";
  int image_rank = std::size(image_keys), label_rank = std::size(label_keys);
  for (Features::Entry& entry : *example.mutable_features()->mutable_feature()) {
    const std::string& key = entry.key();
    Feature& value = *entry.mutable_value();
    if (const int rank = rank_of(key, image_keys); rank >= 0 && rank <= image_rank) {
      picture.image = take_bytes(value);
      if (picture.image.empty()) unread_image = key + " holds " + description_of(value);
      image_rank = rank;
    } else if (const int of_label = rank_of(key, label_keys);
               of_label >= 0 && of_label <= label_rank) {
      if (value.has_int64_list() && value.int64_list().value_size() == 1) {
        picture.label = value.int64_list().value(0);
        label_rank = of_label;
      } else {
        picture.unread_label = key + " holds " + description_of(value);
      }
    } else if (key == "image/class/text") {
      picture.text = take_bytes(value);
    } else if (key == "image/filename") {
      picture.name = take_bytes(value);
    }
  }
  if (picture.image.empty()) throw BadImage("an Example without an image: " + unread_image);
  return picture;
}

#endif

}  // namespace bv
