// Objects in photos, as COCO's annotations have them, for a classifier: each object in its box is
// an image of its class.
#pragma once
#include <cstdint>
#include <string>

#include "app/datasets/image_list.h"

namespace bv {

struct CocoList {
  ImageList list;
  int64_t crowds = 0, small = 0, bad = 0;  // objects that are left out
  std::string first_bad = {};
};
// Classes are the file's categories, sorted by name; objects of a side below `min_side` pixels are
// left out, those with a box outside of their photo only if `skip_bad`. Throws DataError.
CocoList list_coco(const std::string& json, const std::string& images, int min_side, bool skip_bad);

}  // namespace bv
