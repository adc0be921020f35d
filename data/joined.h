// Concatenates several data sets into one.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace bv {

class Joined : public Dataset {
 public:
  // `labels`: the new label for each label of the parts; empty: unchanged.
  explicit Joined(std::vector<std::unique_ptr<Dataset>> parts, std::vector<int> labels = {})
      : parts_(std::move(parts)), labels_(std::move(labels)) {
    for (const auto& part : parts_) size_ += part->size();
  }
  int64_t size() const override { return size_; }
  int label(int64_t i) const override {
    const Dataset& part = find(i);
    const int own = part.label(i);
    return labels_.empty() ? own : labels_[static_cast<size_t>(own)];
  }
  Image image(int64_t i, int at_least) const override {
    const Dataset& part = find(i);
    return part.image(i, at_least);
  }
  View view(int64_t i, const RequestFn& choose) const override {
    const Dataset& part = find(i);
    return part.view(i, choose);
  }
  std::string name(int64_t i) const override {
    const Dataset& part = find(i);
    return part.name(i);
  }
  void will_need(std::span<const uint32_t> indices) const override {
    int64_t begin = 0;
    for (const auto& part : parts_) {
      std::vector<uint32_t> own;
      for (const int64_t i : indices)
        if (i >= begin && i < begin + part->size()) own.push_back(static_cast<uint32_t>(i - begin));
      if (!own.empty()) part->will_need(own);
      begin += part->size();
    }
  }

 private:
  // The part that holds the image; `index` becomes the index within that part.
  const Dataset& find(int64_t& index) const {
    size_t part = 0;
    while (index >= parts_[part]->size()) index -= parts_[part++]->size();
    return *parts_[part];
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<int> labels_;
  int64_t size_ = 0;
};

}  // namespace bv
