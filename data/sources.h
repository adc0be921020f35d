// The kinds of data sets that open_dataset recognises, and their common parts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "kernels/philox.h"

namespace bv {

DataSets open_cifar(const DataOptions&);
DataSets open_folder(const DataOptions&);
DataSets open_builtin(const DataOptions&);
DataSets open_synthetic(const DataOptions&);
DataSets open_records(const DataOptions&);

// Throws DataError with the command that unpacks them, if a folder without class folders has
// compressed files.
void refuse_compressed_records(const std::string& folder);

constexpr uint64_t max_image_bytes = uint64_t{1} << 30;

struct ImageFile {
  std::string path;  // relative to the root, which may be empty
  int label;
};
std::unique_ptr<Dataset> image_files(std::string root, std::vector<ImageFile>);

std::string lower_case(std::string text);

// "CIFAR-10" or "CIFAR-100" if the folder has their files; otherwise empty.
std::string cifar_name(const std::string& folder);
// The folder with CIFAR's files: the path itself or its only subfolder; empty: neither.
std::string cifar_folder(const std::string& path);

// Classes in the order of --classes, which may be their number or all their names in any order.
struct ClassList {
  std::vector<std::string> names;
  std::vector<int> labels;  // of each class found
};
ClassList order_classes(const std::vector<std::string>& found, const DataOptions&);

// N if --classes is a number, otherwise 0.
int class_count_option(const DataOptions&);

// "CIFAR-10, 8336 train, 1017 val, 10 classes".
std::string describe(const std::string& what, const DataSets&, const std::string& split = "");

// FNV-1a, 64 bits; each item ends with a zero byte, so that "ab","c" and "a","bc" differ.
class Fingerprint {
 public:
  Fingerprint(std::string_view kind, const std::vector<std::string>& classes) {
    add(kind);
    for (const std::string& name : classes) add(name);
  }
  void add(std::string_view item);
  void add(int64_t number) { add(std::to_string(number)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

// A sequence of random words for one item, such as an image of a part.
class RandomWords {
 public:
  RandomWords(uint64_t seed, RandomUse use, uint32_t thing, uint32_t part = 0)
      : seed_(seed), use_(use), thing_(thing), part_(part) {}
  uint32_t next() {
    if (left_ == 0) {
      words_ = philox(seed_, block_++, thing_, part_, use_);
      left_ = 4;
    }
    return words_.at[4 - left_--];
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(uint64_t{next()} * limit >> 32); }

 private:
  uint64_t seed_;
  RandomUse use_;
  uint32_t thing_, part_, block_ = 0;
  Philox4 words_{};
  int left_ = 0;
};

}  // namespace bv
