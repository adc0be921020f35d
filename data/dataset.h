// Data sets: where pictures and labels come from. Recognised by open_dataset:
//   CIFAR-10 binary folder   data_batch_*.bin, test_batch.bin, batches.meta.txt
//   train/ and val/          (or validation/), each with one folder a class
//   class folders            split by val_fraction, seeded, over the sorted files of each class
//   ""                       built-in mosaics, drawn on demand at any size
//   "synthetic"              a pool of random pictures
// Throws DataError naming the path and what is wrong with it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace bv {

// 8-bit RGB, row by row.
struct Image {
  int height = 0, width = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]
};

// One part (train or val) of a data set. Threads may read at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int label(int64_t index) const = 0;
  // The picture, upright, at its own size, or at any size not smaller than `at_least` on its
  // shorter side (scaled decoding; 0: full size). Throws BadImage.
  virtual Image image(int64_t index, int at_least) const = 0;
  virtual std::string name(int64_t index) const = 0;  // path, or file and record, for messages
};

// Data that can't be used: the user's mistake, in one line for people.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A picture that can't be read; what() is the reason alone, without the path.
struct BadImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How pictures of a data set become the model's input.
enum class DataKind { photos, cifar, builtin, synthetic };

struct DataSets {
  DataKind kind;
  std::unique_ptr<Dataset> train, val;  // val null: no evaluation (synthetic)
  std::vector<std::string> classes;     // names in label order
  int native_size = 0;                  // 32 for CIFAR, 64 for the built-in set, else 0: any
  uint64_t fingerprint = 0;  // of the list of files (relative), their order, labels and classes
  std::string
      description;  // "CIFAR-10, 8336 train, 1017 val, 10 classes" for the first lines of a run
};

struct DataOptions {
  std::string path;  // "", "synthetic" or a path
  double val_fraction = 0.1;
  uint64_t seed = 0;   // of the split, and of what is drawn
  int image_size = 0;  // builtin, synthetic: size to draw at; 0: native_size
  int patch_size =
      0;  // builtin: tiles of the mosaic are as large as the patch where it is a multiple of 8
  std::vector<std::string>
      classes;  // names or, "N", a number (synthetic); for folders: must be the folders' names
  // The order of the classes where `classes` names none and these are the same names.
  std::vector<std::string> class_order = {};
};
// What a path names. Throws DataError where that is no data.
DataKind data_kind(std::string path);
DataSets open_dataset(const DataOptions&);

// Decodes JPEG, PNG and what else stb_image reads, by content, not name: Exif orientation applied;
// grey, palette, alpha (over white), 16-bit and CMYK/YCCK turned to 8-bit RGB. Throws BadImage.
Image decode_image(std::span<const uint8_t> file, int at_least);

}  // namespace bv
