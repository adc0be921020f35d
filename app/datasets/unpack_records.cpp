#include "app/datasets/unpack_records.h"

#include <fcntl.h>

#include <cerrno>
#include <span>
#include <string_view>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/decode/decode.h"
#include "data/records/record_parts.h"
#include "data/sources.h"
#include "engine/files/png.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

class Unpacker {
 public:
  Unpacker(const fs::path& folder, bool skip_bad,
           const std::function<bool(int64_t, int64_t)>& go_on)
      : folder_(folder), skip_bad_(skip_bad), go_on_(go_on) {}

  bool records(const std::string& path) {
    const RecordParts parts = find_record_parts(path, skip_bad_);
    result.warnings = parts.lost;
    if (parts.skipped.count() > parts.skipped.records) {
      result.warnings.push_back(parts.skipped.line());
    } else {
      result.skipped = parts.skipped.records;
      result.first_skipped = parts.skipped.first;
    }
    for (const auto& part : parts.all) all_ += static_cast<int64_t>(part->index.rows.size());
    for (const auto& part : parts.all)
      if (!records_of(*part, place_of(parts.all.size(), part == parts.all.front()))) return false;
    return true;
  }

  bool cifar(const std::string& path) {
    const DataSets sets = open_cifar({.path = path});
    all_ = sets.train->size() + sets.val->size();
    return cifar_of(sets, *sets.train, "train") && cifar_of(sets, *sets.val, "val");
  }

  Unpacked result;

 private:
  static std::string place_of(size_t parts, bool first) {
    return parts == 1 ? "" : first ? "train" : "val";
  }

  bool records_of(const Records& records, const fs::path& place) {
    const IndexRow* before = nullptr;
    for (const IndexRow& row : records.index.rows) {
      ++done_;
      if (before && before->file == row.file && before->number == row.number) continue;
      before = &row;
      try {
        const PictureExample picture = records.picture(row);
        write(place / path_of(records.index, row), std::as_bytes(std::span(picture.image)));
      } catch (const BadImage& e) {
        skip(records.files.path(row.file) + ": record " + std::to_string(row.number) + " at byte " +
                 std::to_string(row.offset) + ": ",
             e);
      }
      if (!go_on_(done_, all_)) return false;
    }
    return true;
  }

  // The file's path in its class's folder, unless its name already includes that folder.
  static fs::path path_of(const RecordIndex& index, const IndexRow& row) {
    const std::string name(index.name(row)), class_name = index.classes[row.label];
    const bool placed = !index.boxes.empty() || name.starts_with(class_name + "/");
    const fs::path path = placed ? fs::path(name) : fs::path(class_name) / name;
    for (const auto& part : path)
      if (path.is_absolute() || part == "..")
        throw BadImage("the image '" + printable(name) + "' would be outside the new folder");
    return path;
  }

  bool cifar_of(const DataSets& sets, const Dataset& part, const std::string& place) {
    for (int64_t i = 0; i < part.size(); ++i) {
      const Image image = part.image(i, 0);
      char name[24];
      std::snprintf(name, sizeof name, "%05lld.png", static_cast<long long>(i));
      write(fs::path(place) / sets.classes[part.label(i)] / name,
            encode_png(image.pixels.data(), image.height, image.width));
      if (!go_on_(++done_, all_)) return false;
    }
    return true;
  }

  void skip(const std::string& place, const BadImage& bad) {
    const std::string line = place + bad.what();
    if (!skip_bad_)
      throw DataError(line + advice_for(bad, " (--on-bad-image skip leaves such images out)"));
    if (result.skipped++ == 0) result.first_skipped = line;
  }

  void write(const fs::path& relative, std::span<const std::byte> bytes) {
    const fs::path path = folder_ / relative;
    make_folders(path.parent_path());
    const Descriptor out(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!out && errno == EEXIST)
      throw BadImage("two images are called " + printable(relative.string()));
    ssize_t n = out ? 1 : -1;
    while (n > 0 && !bytes.empty()) {
      n = ::write(out.fd(), bytes.data(), bytes.size());
      if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
    }
    if (n < 0) throw WriteError("write", path, errno);
    ++result.pictures;
  }

  const fs::path& folder_;
  bool skip_bad_;
  const std::function<bool(int64_t, int64_t)>& go_on_;
  int64_t done_ = 0, all_ = 0;
};

}  // namespace

std::optional<Unpacked> unpack_records(const std::string& path, const fs::path& folder,
                                       bool skip_bad,
                                       const std::function<bool(int64_t, int64_t)>& go_on) {
  Unpacker unpacker(folder, skip_bad, go_on);
  const bool cifar = data_kind(path) == DataKind::cifar;
  if (!cifar && !is_records(path)) throw DataError(path + ": neither records nor CIFAR's files");
  if (cifar ? !unpacker.cifar(path) : !unpacker.records(path)) return {};
  return std::move(unpacker.result);
}

}  // namespace bv
