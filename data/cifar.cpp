// The binary files of CIFAR-10 and CIFAR-100: records of a label and 32x32 pixels, plane by plane,
// kept in memory in that form.
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
constexpr uint64_t max_meta_bytes = 64 << 10;

// CIFAR-10 or CIFAR-100. A record is its label bytes, the last of which is read, and the pixels.
struct Form {
  const char* name;
  int classes;
  size_t label_bytes;
  const char* meta_file;  // with the classes' names
  const char* test_file;  // its validation set
  const char* unpacked;   // the archive's folder
  size_t record_bytes() const { return label_bytes + 3 * plane; }
};
constexpr Form cifar10 = {.name = "CIFAR-10",
                          .classes = 10,
                          .label_bytes = 1,
                          .meta_file = "batches.meta.txt",
                          .test_file = "test_batch.bin",
                          .unpacked = "cifar-10-batches-bin"};
constexpr Form cifar100 = {.name = "CIFAR-100",
                           .classes = 100,
                           .label_bytes = 2,  // coarse, fine
                           .meta_file = "fine_label_names.txt",
                           .test_file = "test.bin",
                           .unpacked = "cifar-100-binary"};
const char* const train_file_of_100 = "train.bin";

bool exists(const std::string& path) {
  std::error_code ignored;  // an inaccessible file is reported when it is read
  return fs::exists(path, ignored);
}

std::string batch_file(int number) { return "data_batch_" + std::to_string(number) + ".bin"; }

struct RecordFile {
  std::string path;
  std::vector<uint8_t> bytes;
  size_t label_bytes, record_bytes;
  int64_t records() const { return static_cast<int64_t>(bytes.size() / record_bytes); }
  const uint8_t* pixels(int64_t i) const { return &bytes[i * record_bytes + label_bytes]; }
  int label(int64_t i) const { return pixels(i)[-1]; }
};

// A thousand times those of a file of CIFAR-10.
constexpr uint64_t max_records = uint64_t{10} * 1000 * 1000;

RecordFile read_records(const Form& form, const std::string& path) try {
  const RegularFile in(path);
  const size_t record_bytes = form.record_bytes();
  if (in.size() == 0 || in.size() % record_bytes != 0)
    throw DataError(path + ": its size, " + std::to_string(in.size()) +
                    " bytes, is not a multiple of " + std::to_string(record_bytes) +
                    ", the size of a " + form.name + " record; download or copy it again");
  RecordFile file{.path = path,
                  .bytes = read_file(path, max_records * record_bytes),
                  .label_bytes = form.label_bytes,
                  .record_bytes = record_bytes};
  for (int64_t i = 0; i < file.records(); ++i)
    if (file.label(i) >= form.classes)
      throw DataError(path + ": record " + std::to_string(i) + " has label " +
                      std::to_string(file.label(i)) + ", above " +
                      std::to_string(form.classes - 1) + "; is it a " + form.name + " file?");
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
  int label(int64_t index) const override {
    const Place place = at(index);
    return labels_[place.file->label(place.number)];
  }
  Image image(int64_t index, int) const override {
    const Place place = at(index);
    const uint8_t* planes = place.file->pixels(place.number);
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
  };
  Place at(int64_t index) const {
    const RecordFile* file = files_.data();
    for (; index >= file->records(); ++file) index -= file->records();
    return {file, index};
  }

  std::vector<RecordFile> files_;
  std::vector<int> labels_;  // of the files' labels
  int64_t size_ = 0;
};

std::vector<std::string> class_names(const Form& form, const std::string& path) try {
  std::vector<std::string> names;
  if (!exists(path) && &form == &cifar10)
    return {"airplane", "automobile", "bird",  "cat",  "deer",
            "dog",      "frog",       "horse", "ship", "truck"};
  if (!exists(path)) throw DataError(path + ": missing; it names the classes of " + form.name);
  const std::vector<uint8_t> text = read_file(path, max_meta_bytes);
  std::istringstream in(std::string(text.begin(), text.end()));
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() != static_cast<size_t>(form.classes))
    throw DataError(path + ": has " + std::to_string(names.size()) + " class names, not " +
                    std::to_string(form.classes));
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

std::vector<RecordFile> read_batches(const std::string& folder) {
  const int last = last_batch(folder);
  if (last == 0) throw DataError(folder + ": a CIFAR-10 folder without data_batch_1.bin");
  std::vector<RecordFile> files;
  for (int n = 1; n <= last; ++n) {
    const std::string path = folder + "/" + batch_file(n);
    if (!exists(path)) throw DataError(path + ": missing, though later batches exist");
    files.push_back(read_records(cifar10, path));
  }
  return files;
}

std::vector<RecordFile> read_train(const Form& form, const std::string& folder) {
  if (&form == &cifar10) return read_batches(folder);
  const std::string path = folder + "/" + train_file_of_100;
  if (!exists(path)) throw DataError(path + ": missing; it is " + form.name + "'s training set");
  std::vector<RecordFile> files;
  files.push_back(read_records(form, path));
  return files;
}

// The form of a folder's files; null: they are others. A lone train.bin may be anything's.
const Form* form_of(const std::string& folder) {
  const auto has = [&](const char* file) { return exists(folder + "/" + file); };
  if (has(cifar10.meta_file) || has(cifar10.test_file) || last_batch(folder) > 0) return &cifar10;
  const bool both = has(train_file_of_100) && has(cifar100.test_file);
  return both || has(cifar100.meta_file) ? &cifar100 : nullptr;
}

}  // namespace

std::string cifar_name(const std::string& folder) {
  const Form* form = form_of(folder);
  return form ? form->name : "";
}

std::string cifar_folder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return "";
  if (form_of(path)) return path;
  const std::vector<fs::path> inner = folders_in(path);
  if (inner.size() != 1) return "";
  const Form* form = form_of(inner[0]);
  return form && inner[0].filename() == form->unpacked ? inner[0].string() : "";
}

DataSets open_cifar(const DataOptions& given) {
  DataOptions options = given;
  options.path = cifar_folder(given.path);
  const Form& form = *form_of(options.path);
  ClassList classes =
      order_classes(class_names(form, options.path + "/" + form.meta_file), options);
  std::vector<RecordFile> train = read_train(form, options.path), val;
  const std::string test = options.path + "/" + form.test_file;
  if (!exists(test)) throw DataError(test + ": missing; it is " + form.name + "'s validation set");
  val.push_back(read_records(form, test));

  Fingerprint print("cifar", classes.names);
  for (const auto* files : {&train, &val})
    for (const RecordFile& file : *files) {
      print.add(fs::path(file.path).filename().string());
      for (int64_t i = 0; i < file.records(); ++i) print.add(classes.labels[file.label(i)]);
    }
  DataSets sets{.kind = DataKind::cifar, .fingerprint = print.value()};
  sets.train = std::make_unique<Cifar>(std::move(train), classes.labels);
  sets.val = std::make_unique<Cifar>(std::move(val), classes.labels);
  sets.classes = std::move(classes.names);
  sets.description = describe(form.name, sets);
  return sets;
}

}  // namespace bv
