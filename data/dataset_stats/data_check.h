// Checks a whole data set for data that can't be trained on, or would distort a run's accuracy.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace bv {

struct FileRemark {
  std::string path, what;
};

// Images with the same pixels, whatever their names, formats and metadata.
struct EqualImages {
  std::vector<std::string> paths;
  bool in_both_parts = false, in_several_classes = false;
};

struct ClassCount {
  std::string name;
  int64_t train = 0, val = 0;  // train: all, if there is no val
};

struct DataCheck {
  int64_t images = 0, other_files = 0;
  int64_t looked_at = 0;  // by the check of an open data set
  bool has_val = false;
  std::vector<ClassCount> classes;  // by name; empty: the images lie in the folder itself
  std::vector<FileRemark> damaged;  // can't be decoded
  std::vector<FileRemark> flawed;   // decoded with a warning
  std::vector<FileRemark> tiny;
  std::vector<FileRemark> not_read;        // images with an extension that isn't read
  std::string not_read_advice;             // "3 .heic: find ... converts them"
  std::vector<std::string> lost;           // lines about files of records that aren't read
  std::vector<std::string> outside;        // images next to the class folders
  std::vector<std::string> empty_classes;  // folders without images, or missing
  std::vector<std::string> alike_classes;  // "'Cat' and 'cat' differ only in ..."
  std::vector<EqualImages> equal;          // in the order of their first images
  std::vector<std::string> left_out;       // lines about folders of systems and links to folders
  int64_t val_in_train = 0;                // images of val that occur in train
  bool clean() const;
};

// Decodes every image completely. `path` is as for --data, or a folder of images without class
// folders; tiny: a side below `min_side` pixels. Throws DataError if there are no images.
DataCheck check_data(const std::string& path, int min_side, int threads,
                     const std::function<void(int64_t done, int64_t images)>& progress);

// The same for the parts of an open data set, whose images count as its own parts have them; looks
// at `most` of them at most, evenly spread. `not_read`, `outside` and `other_files` stay empty.
DataCheck check_data(const DataSets&, int64_t most, int min_side, int threads,
                     const std::function<void(int64_t done, int64_t images)>& progress);

}  // namespace bv
