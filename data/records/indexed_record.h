// Records with their index, each read by its row.
#pragma once
#include <string>

#include "data/records/example.h"
#include "data/records/record_files.h"
#include "data/records/record_index.h"

namespace bv {

struct Records {
  Records(std::string named, const std::string& in, RecordIndex&& of);
  // The record of a row. Throws BadImage if it is damaged, DataError if it is another one's.
  PictureExample picture(const IndexRow&) const;
  const std::string path;    // of the index, or of the folder without one
  const std::string folder;  // of the files
  const RecordIndex index;
  const RecordFiles files;
};

}  // namespace bv
