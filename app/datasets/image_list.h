// LIST: pictures with their labels, editable by hand, read by `data pack`. Text:
//   # barevision list 1
//   # folder /data/photos              base of the paths; default: the list's own folder
//   # class 0 daisy                    one line per class, in label order; default: numbers
//   daisy/1.jpg 0                      path label; or, for an object in a picture:
//   0001.jpg 12,40,200,100 0           path left,top,width,height label
// The last field is the label, so paths may contain spaces.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/records/example.h"

namespace bv {

struct ListedImage {
  std::string path;  // relative to the list's folder
  int label = 0;
  Region box = {};  // zeros: the whole picture
};

struct ImageList {
  std::string folder;
  std::vector<std::string> classes;
  std::vector<ListedImage> images;
  bool objects = false;                 // true: all have boxes; false: none
  std::vector<std::string> notes = {};  // for the user
};

struct ListOptions {
  std::string labels = {};                // a JSON file {"NAME": label}; empty: sorted names
  std::optional<int> classes, per_class;  // limits: only the first ones; empty: all
};

// Lists a folder of class folders, sorted. Throws DataError, UserError.
ImageList list_folder(const std::string& folder, const ListOptions&);
std::string list_text(const ImageList&);
ImageList parse_list(const std::string& text, const std::string& path);
ImageList read_list(const std::string& path);

}  // namespace bv
