// Lines for the user about what a scan of folders leaves out.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/folder_scan.h"

namespace bv {

// "2 .heic, 1 .jxl"; empty if there are none.
std::string unread_images(const LeftOut&);
// A command that converts them and leaves them where they are: a scan doesn't name them again.
std::string conversion(const LeftOut&, std::span<const std::string> folders);
// Lines about other things that may have been meant as data: folders and files of systems, links.
std::vector<std::string> left_out_lines(const LeftOut&);
// The lines of a data set for commands that don't check recipes: `notes`, and a warning of images
// that aren't read.
std::vector<std::string> all_notes(const DataSets&);

}  // namespace bv
