// CIFAR-10 and CIFAR-100. The binary files are records of labels and 32x32 pixels, plane by plane,
// and are kept in memory in that form; the pickles of the version for Python are converted to such
// records.
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/files/file.h"
#include "base/text.h"
#include "data/decode/decode.h"
#include "data/folder_scan.h"
#include "data/numpy_pickle.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr int side = 32, plane = side * side;
constexpr uint64_t max_meta_bytes = 64 << 10;

// A format of CIFAR-10 or CIFAR-100. A record: label bytes, of which the last is used, and pixels.
struct Form {
  const char* name;
  int classes;
  size_t label_bytes;
  const char* meta_file;   // with the classes' names
  const char* test_file;   // the validation set
  const char* unpacked;    // the archive's folder
  const char* train_file;  // null: numbered batches
  const char* extension = ".bin";
  const char *labels = nullptr, *names = nullptr;  // keys of pickles; null: binary files
  size_t record_bytes() const { return label_bytes + 3 * plane; }
  std::string batch_file(int number) const {
    return "data_batch_" + std::to_string(number) + extension;
  }
};
constexpr Form forms[] = {{.name = "CIFAR-10",
                           .classes = 10,
                           .label_bytes = 1,
                           .meta_file = "batches.meta.txt",
                           .test_file = "test_batch.bin",
                           .unpacked = "cifar-10-batches-bin",
                           .train_file = nullptr},
                          {.name = "CIFAR-100",
                           .classes = 100,
                           .label_bytes = 2,  // coarse, fine
                           .meta_file = "fine_label_names.txt",
                           .test_file = "test.bin",
                           .unpacked = "cifar-100-binary",
                           .train_file = "train.bin"},
                          {.name = "CIFAR-10",
                           .classes = 10,
                           .label_bytes = 1,
                           .meta_file = "batches.meta",
                           .test_file = "test_batch",
                           .unpacked = "cifar-10-batches-py",
                           .train_file = nullptr,
                           .extension = "",
                           .labels = "labels",
                           .names = "label_names"},
                          {.name = "CIFAR-100",
                           .classes = 100,
                           .label_bytes = 1,
                           .meta_file = "meta",
                           .test_file = "test",
                           .unpacked = "cifar-100-python",
                           .train_file = "train",
                           .extension = "",
                           .labels = "fine_labels",
                           .names = "fine_label_names"}};

// Whether a file exists; a folder `train` doesn't count.
bool exists(const std::string& path) {
  std::error_code ignored;  // an inaccessible file is reported when it is read
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

struct RecordFile {
  std::string path;
  std::vector<uint8_t> bytes;
  size_t label_bytes, record_bytes;
  int64_t records() const { return static_cast<int64_t>(bytes.size() / record_bytes); }
  const uint8_t* pixels(int64_t i) const { return &bytes[i * record_bytes + label_bytes]; }
  int label(int64_t i) const { return pixels(i)[-1]; }
};

// A thousand times the 10,000 records of a CIFAR-10 file.
constexpr uint64_t max_records = uint64_t{10} * 1000 * 1000;

RecordFile read_pickled(const Form& form, const std::string& path) {
  const Pickle pickle = read_numpy_pickle(path, max_records * form.record_bytes());
  const auto refuse = [&](const std::string& why) {
    throw DataError(path + ": " + why + "; is it a " + form.name + " file?");
  };
  const PickleValue *pixels = pickle.member("data"), *labels = pickle.member(form.labels);
  if (!pixels || pixels->shape.size() != 2 || pixels->shape[0] == 0 ||
      pixels->shape[1] != 3 * plane)
    refuse("its 'data' isn't an array of N x " + std::to_string(3 * plane) + " bytes");
  if (!labels || labels->kind != PickleValue::list)
    refuse("its '" + std::string(form.labels) + "' isn't a list");
  const auto records = static_cast<size_t>(pixels->shape[0]);
  if (labels->items.size() != records)
    refuse("it has " + counted(pixels->shape[0], "image") + " and " +
           counted(static_cast<int64_t>(labels->items.size()), "label"));
  RecordFile file{.path = path,
                  .bytes = {},
                  .label_bytes = form.label_bytes,
                  .record_bytes = form.record_bytes()};
  file.bytes.reserve(records * file.record_bytes);
  for (size_t i = 0; i < records; ++i) {
    const PickleValue& label = pickle.item(*labels, i);
    if (label.kind != PickleValue::integer || label.number < 0 || label.number >= form.classes)
      refuse("label " + std::to_string(i) +
             (label.kind == PickleValue::integer ? ", " + std::to_string(label.number) + "," : "") +
             " isn't a number from 0 to " + std::to_string(form.classes - 1));
    file.bytes.push_back(static_cast<uint8_t>(label.number));
    const std::string_view image = pixels->bytes.substr(i * 3 * plane, 3 * plane);
    file.bytes.insert(file.bytes.end(), image.begin(), image.end());
  }
  return file;
}

RecordFile read_records(const Form& form, const std::string& path) try {
  const RegularFile in(path);
  FileView view(in);
  if (is_git_lfs_pointer(view.at(0, stranger_bytes)))
    throw DataError(path + ": " + std::string(git_lfs_pointer));
  if (form.labels) return read_pickled(form, path);
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
  std::vector<int> labels_;  // the data set's label for each label in the files
  int64_t size_ = 0;
};

std::vector<std::string> listed_names(const std::string& path) {
  std::vector<std::string> names;
  const std::vector<uint8_t> text = read_file(path, max_meta_bytes);
  std::istringstream in(std::string(text.begin(), text.end()));
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

std::vector<std::string> pickled_names(const Form& form, const std::string& path) {
  const Pickle pickle = read_numpy_pickle(path, max_meta_bytes);
  const PickleValue* const list = pickle.member(form.names);
  std::vector<std::string> names;
  for (size_t i = 0; list && list->kind == PickleValue::list && i < list->items.size(); ++i)
    if (const PickleValue& name = pickle.item(*list, i); name.kind == PickleValue::text)
      names.emplace_back(name.bytes);
  return names;
}

std::vector<std::string> class_names(const Form& form, const std::string& path) try {
  if (!exists(path) && form.classes == 10)
    return {"airplane", "automobile", "bird",  "cat",  "deer",
            "dog",      "frog",       "horse", "ship", "truck"};
  if (!exists(path)) throw DataError(path + ": missing; it names the classes of " + form.name);
  std::vector<std::string> names = form.names ? pickled_names(form, path) : listed_names(path);
  if (names.size() != static_cast<size_t>(form.classes))
    throw DataError(path + ": has " + std::to_string(names.size()) + " class names, not " +
                    std::to_string(form.classes));
  return names;
} catch (const FileError& e) {
  throw DataError(path + ": " + e.what());
}

// The number of the last batch file; 0 if there is none.
int last_batch(const Form& form, const std::string& folder) {
  int n = 99;
  while (n > 0 && !exists(folder + "/" + form.batch_file(n))) --n;
  return n;
}

std::vector<RecordFile> read_batches(const Form& form, const std::string& folder) {
  const int last = last_batch(form, folder);
  if (last == 0) throw DataError(folder + ": a CIFAR-10 folder without " + form.batch_file(1));
  std::vector<RecordFile> files;
  for (int n = 1; n <= last; ++n) {
    const std::string path = folder + "/" + form.batch_file(n);
    if (!exists(path)) throw DataError(path + ": missing, though later batches exist");
    files.push_back(read_records(form, path));
  }
  return files;
}

std::vector<RecordFile> read_train(const Form& form, const std::string& folder) {
  if (!form.train_file) return read_batches(form, folder);
  const std::string path = folder + "/" + form.train_file;
  if (!exists(path)) throw DataError(path + ": missing; it is " + form.name + "'s training set");
  std::vector<RecordFile> files;
  files.push_back(read_records(form, path));
  return files;
}

bool has_form(const Form& form, const std::string& folder) {
  const auto has = [&](const char* file) { return exists(folder + "/" + file); };
  if (!form.train_file)
    return has(form.meta_file) || has(form.test_file) || last_batch(form, folder) > 0;
  // A single file with a common name, such as train.bin, doesn't identify a CIFAR folder.
  if (form.names) return has(form.meta_file) && (has(form.train_file) || has(form.test_file));
  return has(form.meta_file) || (has(form.train_file) && has(form.test_file));
}

// The format of a folder's files; null: it isn't a CIFAR folder.
const Form* form_of(const std::string& folder) {
  for (const Form& form : forms)
    if (has_form(form, folder)) return &form;
  return nullptr;
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
