// Data sets, the source of images and labels. open_dataset recognises:
//   CIFAR-10 binary folder   data_batch_*.bin, test_batch.bin, batches.meta.txt
//   CIFAR-100 binary folder  train.bin, test.bin, fine_label_names.txt; the fine labels
//   CIFAR for Python         data_batch_*, test_batch, batches.meta; train, test, meta: pickles
//   parent of these folders  if its only subfolder is the archive's, like cifar-10-batches-bin
//   train/ and val/          in any case, or named training/ and valid/, validation/, test/ or
//                            testing/; DataOptions::val may name another folder in place of val/.
//                            Each has one folder per class; train/ alone is split
//   class folders            split by val_fraction, by hashes of the file names, so that adding or
//                            removing files moves few others from one part to the other
//   NAME.index, or a folder  of TFRecords (data/records): one set, which is split; train.index and
//                            val.index or validation.index; or unindexed files of other programs
//   ""                       built-in images, drawn on demand at any size
//   "synthetic"              a pool of random images
// Throws DataError naming the path and what is wrong with it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/built_in_set.h"
#include "data/image/image.h"

namespace bv {

// One part (train or val) of a data set. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int label(int64_t index) const = 0;
  // The image, upright, at full size or decoded at a reduced size whose shorter side is not below
  // `at_least`; 0: full size. Throws BadImage.
  virtual Image image(int64_t index, int at_least) const = 0;
  // Calls `choose` with the image's size and decodes the part that `choose` returns; the view may
  // hold more. Throws BadImage.
  virtual View view(int64_t index, const RequestFn& choose) const {
    return whole_view(image(index, 0), choose);
  }
  virtual std::string name(int64_t index) const = 0;  // path, or file and record, for messages
  // The files that hold the images: their number, 0 if there are none, and their paths.
  virtual int64_t files() const { return 0; }
  virtual std::string file(int64_t) const { return ""; }
  // Announces that these images will be read soon. Returns at once.
  virtual void will_need(std::span<const uint32_t> /*indices*/) const {}
};

// The data can't be used; what() describes the user's mistake in one line.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How a data set's images become the model's input.
enum class DataKind { photos, cifar, builtin, synthetic };

struct DataSets {
  DataKind kind;
  std::unique_ptr<Dataset> train, val;  // val null: no evaluation (synthetic)
  std::vector<std::string> classes;     // names in label order
  uint64_t fingerprint = 0;  // of the list of files (relative), their order, labels and classes
  std::string description;   // "CIFAR-10, 8336 train, 1017 val, 10 classes"
  std::vector<std::string> notes = {};  // lines for the user
  std::vector<std::string> lost = {};   // those of them about files of records that aren't read
  // Image files that this build can't read, "2 .webp", and advice on making them readable.
  std::string left_out = {}, left_out_advice = {};
  bool held_out = false;  // val was held out by val_fraction and split_seed
  bool records = false;   // many images per file
};

struct DataOptions {
  std::string path;  // "", "synthetic" or a path
  BuiltIn built_in = BuiltIn::shapes;
  std::string val = {};  // the folder of validation images, if it isn't in `path`
  double val_fraction = 0.1;
  uint64_t split_seed = 0;
  uint64_t seed = 0;                 // of generated images
  int image_size = 0;                // builtin, synthetic: the images' size; 0: 64 and 224
  int patch_size = 0;                // builtin: the tiles have this size if it is a multiple of 8
  std::vector<std::string> classes;  // names, or their number as text
  // The order of the classes unless `classes` lists names; unused if the data has other names.
  std::vector<std::string> class_order = {};
  std::string class_names = {};               // a file of names for records whose labels have none
  std::vector<std::string> label_names = {};  // the names themselves, if that file is gone
  bool skip_bad_records = false;              // without an index: skip bad records, with a note
  // The absolute paths of images that a run has skipped. Those that are gone keep their places in
  // the lists, so that the others keep theirs.
  std::vector<std::string> skipped = {};
};
std::string absolute_path(const std::string&);
// The reason why a file, not a folder, can't be data: "is an archive; unpack it and give its folder".
std::string refusal_of_file(const std::string& path);
// The kind of data at a path. Throws DataError if it is not data.
DataKind data_kind(std::string path);
DataSets open_dataset(const DataOptions&);

// Unlabelled images: these files, whatever their extensions, with label 0.
std::unique_ptr<Dataset> open_files(std::vector<std::string> paths);
// Whether `path` is an index of records or a folder of records.
bool is_records(const std::string& path);
// All images of the records, part by part. If bad records are left out, adds a line to `problems`;
// for files that aren't read, to `notes`.
std::vector<std::unique_ptr<Dataset>> open_recorded(const std::string& path,
                                                    std::vector<std::string>& problems,
                                                    std::vector<std::string>& notes);
// The image files in a folder, at any depth, recognised by extension: sorted by name, folder by
// folder, without hidden files. Adds lines about what is left out to `notes`. Throws DataError if a
// folder can't be listed.
std::vector<std::string> pictures_in(const std::string& folder, std::vector<std::string>& notes);

// Hash of the files' sizes and times, and of the first bytes of at most 2000 files per part.
// A different value means that files have changed or were copied. 0: data without files.
uint64_t contents_fingerprint(const DataSets&);

// Images that can't be read: their files are missing, or damaged.
struct BadImages {
  std::vector<int64_t> train, val;  // indices
  std::string first;                // "path: reason" of the first one
  int64_t count() const { return static_cast<int64_t>(train.size() + val.size()); }
};
// Reads one or a few blocks of every file: finds those that are missing, or whose headers show that
// they are not images. Calls `progress` once a second with the number read.
BadImages find_bad_images(const DataSets&, const std::function<void(int64_t files)>& progress);
// Adds the images that can't be decoded: of all images if their files have 64 MB or less, which
// takes a second or two, else only of those with these absolute paths.
void add_damaged_images(const DataSets&, std::span<const std::string> suspects, int threads,
                        BadImages&);
// The description, with the numbers of images that are left without these.
std::string description_without(const BadImages&, const DataSets&);

}  // namespace bv
