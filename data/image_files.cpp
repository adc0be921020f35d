// A data set of image files, one image per file.
#include <memory>

#include "base/files/file.h"
#include "data/decode/decode.h"
#include "data/sources.h"

namespace bv {
namespace {

class ImageFiles : public Dataset {
 public:
  ImageFiles(std::string root, std::vector<ImageFile> items)
      : root_(std::move(root)), items_(std::move(items)) {}
  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  int label(int64_t index) const override { return items_[index].label; }
  std::string name(int64_t index) const override {
    return root_.empty() ? items_[index].path : root_ + "/" + items_[index].path;
  }
  int64_t files() const override { return size(); }
  std::string file(int64_t number) const override { return name(number); }
  Image image(int64_t index, int at_least) const override {
    return decode_image(bytes(index), at_least);
  }
  View view(int64_t index, const RequestFn& choose) const override {
    return decode_view(bytes(index), choose);
  }

 private:
  std::vector<uint8_t> bytes(int64_t index) const try {
    return read_file(name(index), max_image_bytes);
  } catch (const FileError& e) {
    throw BadImage(e.what());
  }

  std::string root_;
  std::vector<ImageFile> items_;
};

}  // namespace

std::unique_ptr<Dataset> image_files(std::string root, std::vector<ImageFile> files) {
  return std::make_unique<ImageFiles>(std::move(root), std::move(files));
}

std::unique_ptr<Dataset> open_files(std::vector<std::string> paths) {
  std::vector<ImageFile> items;
  for (std::string& path : paths) items.push_back({std::move(path), 0});
  return image_files("", std::move(items));
}

}  // namespace bv
