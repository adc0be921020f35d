// A training image as preview shows it, its line of batch.jsonl and its pictures on the page.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/augment/mixing.h"
#include "data/augment/policy.h"

namespace bv {

struct PreviewRecord {
  int64_t number;  // from 0, its position in the epoch's order
  uint32_t index;  // in the data set
  int64_t epoch;   // counted from 1
  std::string path;
  int label;
  Box crop;   // in the image's pixels
  bool flip;  // horizontally
  std::vector<DrawnOperation> ops = {};
  std::optional<Box> erase = {};
  std::optional<Mix> mix = {};  // with image `number ^ 1`; empty: the run doesn't mix
  int partner_label = -1;

  int64_t partner() const { return number ^ 1; }
  bool mixed() const { return mix && mix->lambda < 1; }
  bool in_a_box() const { return mix && mix->top < mix->bottom && mix->left < mix->right; }
};

std::string number_text(int64_t number);  // 00003
// A line of batch.jsonl, with the target's class probabilities that the loss uses.
std::string line_of(const PreviewRecord&, int classes, double label_smoothing);
// Its pictures on the page, with text under them.
std::string figures_of(const PreviewRecord&, const std::vector<std::string>& classes);

}  // namespace bv
