// The lists of images in a run's folder, one path per line: train.txt and val.txt have the images
// that the run uses, skipped.txt those that it couldn't read: relative to the data's folder if they
// are in it, with \\ and \n for a backslash and a newline.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace bv {

inline constexpr const char *train_list_name = "train.txt", *val_list_name = "val.txt",
                            *skipped_list_name = "skipped.txt";

// Writes the lists of photos, which are in the folder `data`, or in that of --val. A set of more
// than two million training images gets no train.txt.
void write_image_lists(const std::string& folder, const std::string& data, const DataSets&,
                       const BadImages&);

// Absolute paths, of data that is in the folder `data` now; none if the run has skipped nothing, or
// is an older version's.
std::vector<std::string> skipped_images(const std::string& folder, const std::string& data);

// How a part of the data differs from the list that the run wrote. Compares only class and file
// name: the run may have used another path to the same data.
struct ListChange {
  int64_t others = 0, missing = 0;  // images that are not in the list, and that only it has
  std::string other, gone;          // the first of each
};
// bad: numbers of the images to leave out. Nothing if the run has no such list.
std::optional<ListChange> change_since(const std::string& list, const Dataset&,
                                       const std::vector<int64_t>& bad);

// " (photos/cat/1.jpg is gone)": the first change of the run's images, if its lists show one.
std::string first_change(const std::string& folder, const std::string& data, const DataSets&);

}  // namespace bv
