// tf.train.Example of an image, the payload of a record, with TensorFlow's and TF-Slim's keys.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/image/image.h"

namespace bv {

// Whether this build has protobuf, which records need.
constexpr bool have_records = BAREVISION_RECORDS;
// "this build can't read records: ...; make deps && make adds it": for a build without protobuf.
std::string without_records();

struct RecordedObject {
  Region box;
  int64_t label;
  std::string text;
};

struct PictureExample {
  std::string image = {};             // image/encoded, or image, or jpeg: the file's bytes
  std::optional<int64_t> label = {};  // image/class/label, or label
  // The contents of a label's key if they aren't one integer: "image/class/label holds a string, 'cat'".
  std::string unread_label = {};
  std::string text = {};                     // image/class/text
  std::string name = {};                     // image/filename; read, not written
  std::string format = {};                   // image/format; written, not read
  int height = 0, width = 0;                 // image/height, image/width; written, not read
  std::vector<RecordedObject> objects = {};  // image/object/...; written, not read
};

std::string write_example(const PictureExample&);
// Ignores other keys. Throws BadImage.
PictureExample parse_example(std::string_view payload);

}  // namespace bv
