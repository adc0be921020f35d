// Checks of the images, and of what the model sees of them.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/recipe_check/checks.h"
#include "base/text.h"
#include "data/decode/decode.h"
#include "engine/options/augmentation.h"
#include "models/family.h"

namespace bv {

namespace {

using Channels = std::array<double, 3>;

constexpr double other_images = 0.1;  // difference of means or deviations of values in 0-1
constexpr double much_larger = 2;
constexpr int64_t few_to_validate = 30;

std::string list(const Channels& values) {
  std::string text;
  for (const double value : values)
    text += (text.empty() ? "" : ",") + format_number(std::round(value * 1000) / 1000);
  return text;
}

double distance(const Channels& a, const Channels& b) {
  double most = 0;
  for (size_t c = 0; c < a.size(); ++c) most = std::max(most, std::abs(a[c] - b[c]));
  return most;
}

// Whether --recipe, --config or an option sets mean or deviation. Values from the model and its
// weights aren't checked.
bool normalises_by_choice(const Setup& s) {
  const Options& o = s.options;
  const auto chosen = [&](const char* name, const auto& now, const auto& asked, const auto& own) {
    return o.source(name) >= Source::named_recipe && now == asked && now != own;
  };
  return chosen("mean", o.mean, s.requested.mean, s.model.mean) ||
         chosen("std", o.std, s.requested.std, s.model.std);
}

bool unscaled_in_training(const Cropping& c) { return c.train == TrainCrop::pad_if_needed; }
bool unscaled_in_evaluation(const Cropping& c) { return c.mode == CropMode::pad; }

// The factor by which an image with this shorter side is scaled.
double scale_in_evaluation(const Cropping& c, int size, double side) {
  return unscaled_in_evaluation(c) ? 1 : size / (c.pct * side);
}
double scale_in_training(const Cropping& c, int size, double side) {
  if (unscaled_in_training(c)) return 1;
  if (c.train != TrainCrop::random_resized) return scale_in_evaluation(c, size, side);
  return size / (side * std::sqrt((c.scale[0] + c.scale[1]) / 2));  // a crop of average area
}

}  // namespace

bool needs_sample(const Setup& s) {
  if (s.data.kind != DataKind::photos && s.data.kind != DataKind::cifar) return false;
  const Cropping c = cropping_of(s.options);
  return normalises_by_choice(s) || unscaled_in_training(c) != unscaled_in_evaluation(c);
}

void check_normalising(const Setup& s, const Sample& sample, Findings& findings) {
  if (sample.pixels.images == 0 || !normalises_by_choice(s)) return;
  const Channels mean = *s.options.mean, deviation = *s.options.std;
  const ChannelStatistics &each = sample.pixels.of_each_image, &all = sample.pixels.of_all_pixels;
  // Scripts compute either deviation; compare with the nearer one.
  const Channels& near = distance(deviation, each.deviation) < distance(deviation, all.deviation)
                             ? each.deviation
                             : all.deviation;
  const bool off =
      distance(mean, all.mean) > other_images && distance(mean, each.mean) > other_images;
  if (!off && distance(deviation, near) <= other_images) return;
  findings.push_back({.what = "pixels are normalised by the mean " + list(mean) +
                              " and deviation " + list(deviation) + " of other images",
                      .why = "of " + counted(sample.pixels.images, "image") + " here they are " +
                             list(all.mean) + " and " + list(near),
                      .advice = "use the --mean and --std that ./launcher data stats prints"});
}

void check_scales(const Setup& s, const Sample& sample, Findings& findings) {
  const Options& o = s.options;
  const Cropping c = cropping_of(o);
  const bool pixels_matter = unscaled_in_training(c) || unscaled_in_evaluation(c);
  if (pixels_matter && sample.side == 0) return;
  const double side = pixels_matter ? sample.side : 1;
  const double training = scale_in_training(c, *o.image_size, side),
               evaluation = scale_in_evaluation(c, *o.image_size, side);
  const double ratio = evaluation / training;
  if (std::max(ratio, 1 / ratio) <= much_larger) return;
  const bool larger = ratio > 1;
  findings.push_back(
      {.what = "objects are " + format_number(larger ? ratio : 1 / ratio, 2) +
               " times as large in " +
               (larger ? "evaluation as in training" : "training as in evaluation"),
       .why = "--train-crop " + word_of(c.train) + ", --crop-mode " + word_of(c.mode) +
              (pixels_matter ? ", images of " + format_number(side, 3) + " pixels" : ""),
       .advice = unscaled_in_training(c)     ? "use --crop-mode pad"
                 : unscaled_in_evaluation(c) ? "use --crop-mode center"
                                             : "use another --scale or --crop-pct"});
}

void check_files(const Setup& s, Findings& findings) {
  if (s.data.left_out.empty()) return;
  findings.push_back({.what = "images are left out: " + s.data.left_out,
                      .why = known_formats() + " are read",
                      .advice = "use " + s.data.left_out_advice});
}

void check_patches(const Setup& s, int least, Findings& findings) {
  if (!s.model.family->patches) return;
  const int image = *s.options.image_size, patch = *s.options.patch_size, across = image / patch;
  if (across >= least) return;
  const std::string size = std::to_string(image) + "x" + std::to_string(image);
  int fits = patch;  // the largest size that divides the image into enough patches
  while (fits > 1 && (image % fits != 0 || image / fits < enough_patches)) --fits;
  findings.push_back({.what = "an image of " + size + " pixels is only " +
                              counted(across * across, "patch") + " of " + std::to_string(patch),
                      .why = "attention has too few to compare",
                      .advice = "use --patch-size " + std::to_string(fits) + " or --image-size " +
                                std::to_string(enough_patches * patch)});
}

void check_validation(const Setup& s, Findings& findings) {
  if (!s.data.val) return;
  const int64_t images = s.data.val->size();
  if (s.data.held_out && images > s.data.train->size())
    findings.push_back({.what = "only " + counted(s.data.train->size(), "image") +
                                " for training, " + std::to_string(images) + " for validation",
                        .why = "--val-fraction " + format_number(s.options.val_fraction) +
                               " holds most of them out",
                        .advice = "use --val-fraction 0.1 or 0.2"});
  if (images >= few_to_validate) return;
  findings.push_back(
      {.what = "only " + counted(images, "image") + " for validation, of " +
               counted(static_cast<int64_t>(s.data.classes.size()), "class"),
       .why = "each moves top-1 by " + format_number(100.0 / double(images), 3) + "%",
       .advice = s.data.held_out ? "use a larger --val-fraction" : "use more validation images"});
}

// Compares files: --val may name the same folder by another path, or a part of --data.
void check_own_validation(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  if (o.val.empty() || !s.data.val || s.data.val->files() == 0) return;
  namespace fs = std::filesystem;
  const fs::path first = s.data.val->file(0);
  bool found = false;
  for (int64_t i = 0; i < s.data.train->files() && !found; ++i) {
    const fs::path file = s.data.train->file(i);
    std::error_code error;
    found = file.filename() == first.filename() && fs::equivalent(file, first, error);
  }
  if (!found) return;
  findings.push_back({.what = "the images for validation are training images",
                      .why = "--val " + o.val + " has files of --data " + o.data,
                      .advice = o.val_fraction > 0
                                    ? "use other images, or leave out --val: --val-fraction then "
                                      "holds some out"
                                    : "use other images, or leave out --val and --val-fraction 0: "
                                      "some are then held out"});
}

}  // namespace bv
