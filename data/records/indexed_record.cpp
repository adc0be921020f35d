// A record in the place that an index names. It says itself whether it is the one that was indexed:
// a file in another one's place may have records of the same sizes, with other labels.
#include "data/records/indexed_record.h"

#include <algorithm>

#include "base/text.h"
#include "data/dataset.h"
#include "data/records/scan_records.h"

namespace bv {
namespace {

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

// A record's statement and a row's that differ; both empty if none do.
struct Contradiction {
  std::string found, listed;
};
Contradiction compare(const PictureExample& picture, const RecordIndex& index,
                      const IndexRow& row) {
  const std::string_view name = index.name(row);
  const std::string& class_name = index.classes[row.label];
  if (!picture.name.empty() && printable(picture.name, picture.name.npos) == picture.name &&
      file_name(picture.name) != file_name(name))
    return {"is called " + in_quotes(picture.name), in_quotes(name)};
  if (!index.boxes.empty()) return {};  // the labels are those of objects
  const std::string row_class = "one of the class " + in_quotes(class_name);
  if (!picture.text.empty() && picture.text != class_name &&
      std::ranges::count(index.classes, picture.text) > 0)
    return {"has the class " + in_quotes(picture.text), row_class};
  // The index counts labels from 0, the records from 0 or 1.
  if (picture.label && *picture.label != row.label && *picture.label != int64_t{row.label} + 1)
    return {"has the label " + std::to_string(*picture.label),
            row_class + ", label " + std::to_string(row.label) + " counted from 0"};
  return {};
}

}  // namespace

Records::Records(std::string named, const std::string& in, RecordIndex&& of)
    : path(std::move(named)), folder(in), index(std::move(of)), files(folder, index, path) {}

PictureExample Records::picture(const IndexRow& row) const {
  std::string record;
  PictureExample picture = parse_example(files.read(row, record));
  const auto [found, listed] = compare(picture, index, row);
  if (!found.empty())
    throw DataError(files.path(row.file) + ": record " + std::to_string(row.number) + " at byte " +
                    std::to_string(row.offset) + " " + found + ", " + path + " lists " + listed +
                    " there: it is not the file that was indexed" +
                    (path == folder ? ""
                                    : "; put that back, or index this one: " +
                                          way_to_rebuild(path, folder, index.files)));
  return picture;
}

}  // namespace bv
