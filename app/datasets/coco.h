// Turns COCO's annotations into a data set for a classifier: each object, cut out by its box, is an
// image of the object's class.
#pragma once
#include <cstdint>
#include <string>

#include "app/datasets/image_list.h"

namespace bv {

struct CocoList {
  ImageList list;
  int64_t crowds = 0, small = 0, bad = 0;  // objects left out
  std::string first_bad = {};
};
// Classes are the file's categories, sorted by name. Leaves out crowds, objects with a side below
// `min_side` pixels and, if `skip_bad`, bad annotations, such as a box outside of its photo. Throws
// DataError.
CocoList list_coco(const std::string& json, const std::string& images, int min_side, bool skip_bad);

}  // namespace bv
