// CIFAR-10's binary files: records of a label byte and 32x32 pixels, plane by plane, kept in memory
// in that form.
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/file.h"
#include "data/folder_scan.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr int side = 32, plane = side * side;
constexpr size_t record_bytes = 1 + 3 * plane;
constexpr int class_count = 10;
constexpr uint64_t max_meta_bytes = 64 << 10;
const char* const meta_file = "batches.meta.txt";
const char* const test_file = "test_batch.bin";
const char* const unpacked_folder = "cifar-10-batches-bin";  // in the archive

bool exists(const std::string& path) {
  std::error_code ignored;  // an inaccessible file is reported when it is read
  return fs::exists(path, ignored);
}

std::string batch_file(int number) { return "data_batch_" + std::to_string(number) + ".bin"; }

struct RecordFile {
  std::string path;
  std::vector<uint8_t> bytes;
  int64_t records() const { return static_cast<int64_t>(bytes.size() / record_bytes); }
};

// A thousand times the original's size.
constexpr uint64_t max_file_bytes = uint64_t{10} * 1000 * 1000 * record_bytes;

RecordFile read_records(const std::string& path) try {
  const RegularFile in(path);
  if (in.size() == 0 || in.size() % record_bytes != 0)
    throw DataError(
        path + ": its size, " + std::to_string(in.size()) +
        " bytes, is not a multiple of 3073, the size of a CIFAR-10 record; download or copy it "
        "again");
  RecordFile file{path, read_file(path, max_file_bytes)};
  for (int64_t i = 0; i < file.records(); ++i) {
    const int label = file.bytes[i * record_bytes];
    if (label >= class_count)
      throw DataError(path + ": record " + std::to_string(i) + " has label " +
                      std::to_string(label) + ", above 9; is it a CIFAR-10 file?");
  }
  return file;
} catch (const FileError& e) {
  throw DataError(path + ": " + e.what());
}

class Cifar : public Dataset {
 public:
  Cifar(std::vector<RecordFile> files, std::vector<int> labels)
      : files_(std::move(files)), labels_(std::move(labels)) {
    for (const RecordFile& file : files_) size_ += file.records();
  }
  int64_t size() const override { return size_; }
  int label(int64_t index) const override { return labels_[*at(index).record]; }
  Image image(int64_t index, int) const override {
    const uint8_t* planes = at(index).record + 1;
    Image image = black_image(side, side);
    for (int i = 0; i < plane; ++i)
      for (int c = 0; c < 3; ++c) image.pixels[3 * i + c] = planes[c * plane + i];
    return image;
  }
  std::string name(int64_t index) const override {
    const Place place = at(index);
    return place.file->path + " record " + std::to_string(place.number);
  }
  int64_t files() const override { return static_cast<int64_t>(files_.size()); }
  std::string file(int64_t number) const override { return files_[number].path; }

 private:
  struct Place {
    const RecordFile* file;
    int64_t number;
    const uint8_t* record;
  };
  Place at(int64_t index) const {
    const RecordFile* file = files_.data();
    for (; index >= file->records(); ++file) index -= file->records();
    return {file, index, file->bytes.data() + index * record_bytes};
  }

  std::vector<RecordFile> files_;
  std::vector<int> labels_;  // of the files' labels
  int64_t size_ = 0;
};

std::vector<std::string> class_names(const std::string& path) try {
  std::vector<std::string> names;
  if (!exists(path))
    return {"airplane", "automobile", "bird",  "cat",  "deer",
            "dog",      "frog",       "horse", "ship", "truck"};
  const std::vector<uint8_t> text = read_file(path, max_meta_bytes);
  std::istringstream in(std::string(text.begin(), text.end()));
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() != class_count)
    throw DataError(path + ": has " + std::to_string(names.size()) + " class names, not 10");
  return names;
} catch (const FileError& e) {
  throw DataError(path + ": " + e.what());
}

// The number of the last batch file; 0 if there is none.
int last_batch(const std::string& folder) {
  int n = 99;
  while (n > 0 && !exists(folder + "/" + batch_file(n))) --n;
  return n;
}

std::vector<RecordFile> read_train(const std::string& folder) {
  const int last = last_batch(folder);
  if (last == 0) throw DataError(folder + ": a CIFAR-10 folder without data_batch_1.bin");
  std::vector<RecordFile> files;
  for (int n = 1; n <= last; ++n) {
    const std::string path = folder + "/" + batch_file(n);
    if (!exists(path)) throw DataError(path + ": missing, though later batches exist");
    files.push_back(read_records(path));
  }
  return files;
}

}  // namespace

bool is_cifar_folder(const std::string& path) {
  return exists(path + "/" + meta_file) || exists(path + "/" + test_file) || last_batch(path) > 0;
}

std::string cifar_folder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return "";
  if (is_cifar_folder(path)) return path;
  const std::vector<fs::path> inner = folders_in(path);
  const bool alone = inner.size() == 1 && inner[0].filename() == unpacked_folder;
  return alone && is_cifar_folder(inner[0]) ? inner[0].string() : "";
}

DataSets open_cifar(const DataOptions& given) {
  DataOptions options = given;
  options.path = cifar_folder(given.path);
  ClassList classes = order_classes(class_names(options.path + "/" + meta_file), options);
  std::vector<RecordFile> train = read_train(options.path), val;
  const std::string test = options.path + "/" + test_file;
  if (!exists(test)) throw DataError(test + ": missing; it is CIFAR-10's validation set");
  val.push_back(read_records(test));

  Fingerprint print("cifar", classes.names);
  for (const auto* files : {&train, &val})
    for (const RecordFile& file : *files) {
      print.add(fs::path(file.path).filename().string());
      for (int64_t i = 0; i < file.records(); ++i)
        print.add(classes.labels[file.bytes[i * record_bytes]]);
    }
  DataSets sets{.kind = DataKind::cifar, .fingerprint = print.value()};
  sets.train = std::make_unique<Cifar>(std::move(train), classes.labels);
  sets.val = std::make_unique<Cifar>(std::move(val), classes.labels);
  sets.classes = std::move(classes.names);
  sets.description = describe("CIFAR-10", sets);
  return sets;
}

}  // namespace bv
