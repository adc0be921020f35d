// NAME.index: the position and label of each image in TFRecords. Text:
//   # barevision index 1
//   # class 0 Black-grass                one line per class, in label order
//   label<TAB>file<TAB>offset<TAB>size<TAB>name[<TAB>left,top,width,height]
// `file` is relative to the index's folder; a record's offset and size include the framing, as in
// FILE.idx. A file's records are listed in order. If images have boxes, a line is one object of an
// image, and a record's lines are adjacent.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/example.h"

namespace bv {

struct IndexRow {
  uint64_t offset = 0, name_at = 0;
  uint32_t size = 0, file = 0, label = 0, name_size = 0;
  uint32_t number = 0;  // of the record, among the listed records of its file
};

struct RecordIndex {
  std::vector<std::string> classes, files;
  std::vector<IndexRow> rows;
  std::vector<Region> boxes = {};  // by row; empty: whole images
  std::string names = {};          // of all rows, concatenated

  std::string_view name(const IndexRow& row) const {
    return std::string_view(names).substr(row.name_at, row.name_size);
  }
  std::vector<uint64_t> ends() const;  // end of each file's last record
  void add(IndexRow row, std::string_view name);
};

// Checks that these names can replace an index's classes, which must still be numbers. There may be
// more names than classes. Throws DataError naming `option`: "--class-names names.txt".
void check_class_names(const RecordIndex&, const std::vector<std::string>& names,
                       const std::string& option, const std::string& folder);

// "7 of 10 classes have no image: b, c, ..."; empty if all of them have one, in any of the parts.
std::string empty_classes(const std::vector<std::string>& classes,
                          std::span<const RecordIndex* const> parts);

// Parses an index of one class or more. Throws DataError that names the line.
RecordIndex parse_index(std::string_view text, const std::string& path);
RecordIndex read_index(const std::string& path);
std::string index_text(const RecordIndex&);
bool is_index(const std::string& path);  // by its first line

// The contents of each file's FILE.idx for DALI: a line "offset size" per record.
std::vector<std::string> idx_texts(const RecordIndex&);

}  // namespace bv
