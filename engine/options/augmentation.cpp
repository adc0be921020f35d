#include "engine/options/augmentation.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/error.h"
#include "base/text.h"
#include "engine/options/option_table.h"

namespace bv {
namespace {

constexpr PresetRow presets[] = {
    {"none", "train_crop", "none"},
    {"none", "hflip", "0"},
    {"none", "vflip", ""},
    {"none", "auto_augment", ""},
    {"none", "color_jitter", ""},
    {"none", "random_erase", ""},
    {"none", "mixup", ""},
    {"none", "cutmix", ""},
    {"none", "cutmix_minmax", ""},
    {"basic", "train_crop", ""},
    {"basic", "hflip", ""},
    {"basic", "vflip", ""},
    {"basic", "auto_augment", ""},
    {"basic", "color_jitter", ""},
    {"basic", "random_erase", ""},
    {"basic", "mixup", ""},
    {"basic", "cutmix", ""},
    {"basic", "cutmix_minmax", ""},
    // timm's recipe for ViTs
    {"strong", "train_crop", "random-resized"},
    {"strong", "hflip", ""},
    {"strong", "vflip", ""},
    {"strong", "auto_augment", "ra"},
    {"strong", "ra_ops", "2"},
    {"strong", "ra_magnitude", "9"},
    {"strong", "color_jitter", ""},
    {"strong", "random_erase", "0.25"},
    {"strong", "mixup", "0.8"},
    {"strong", "cutmix", "1"},
    {"strong", "cutmix_minmax", ""},
    {"strong", "mixup_switch_prob", "0.5"},
};

std::string flag_of(std::string_view option) { return find_option(option)->flag(); }

std::string number(double x) { return format_number(x, 6); }

bool is_randaugment(const AugmentOptions& o) {
  return o.auto_augment == Policy::ra || o.auto_augment == Policy::ra_dali;
}

// Refuses options that were given but have no effect.
void refuse_unused(const Options& o) {
  const auto needs = [&](bool has_effect, std::string_view option, const char* what) {
    if (!has_effect && o.source(option) == Source::command_line)
      throw UserError(flag_of(option) + " has no effect without " + what);
  };
  for (const char* option : {"ra_ops", "ra_magnitude"})
    needs(is_randaugment(o), option, "--auto-augment ra or ra-dali");
  for (const char* option : {"scale", "ratio"})
    needs(o.train_crop == TrainCrop::random_resized, option, "--train-crop random-resized");
  needs(o.train_crop == TrainCrop::padded, "padding", "--train-crop padded");
  needs(o.crop_mode != CropMode::pad, "crop_pct", "--crop-mode center, squash or border");
  for (const char* option : {"mixup_prob", "mixup_mode", "mixup_off_epoch"})
    needs(mixing_of(o).any(), option, "--mixup or --cutmix");
  needs(o.mixup > 0 && o.cutmix > 0, "mixup_switch_prob", "both --mixup and --cutmix");
}

// cutmix_minmax gives the sides of cutmix's boxes: timm draws whole numbers of pixels in
// [floor(A size), floor(B size)).
void check_minmax(const AugmentOptions& o, int size) {
  const auto [low, high] = *o.cutmix_minmax;
  const std::string subject =
      flag_of("cutmix_minmax") + ' ' + number(low) + ',' + number(high) + ": ";
  if (low >= high) throw UserError(subject + "must increase");
  if (std::floor(size * low) >= std::floor(size * high))
    throw UserError(subject + "no whole number of pixels is between them in images of " +
                    std::to_string(size) + "; they must be further apart");
}

std::string mixing_text(const AugmentOptions& o) {
  std::string text;
  if (o.mixup > 0) text += ", mixup " + number(o.mixup);
  if (o.cutmix > 0) text += ", cutmix ";
  if (o.cutmix_minmax)
    text += number((*o.cutmix_minmax)[0]) + '-' + number((*o.cutmix_minmax)[1]);
  else if (o.cutmix > 0)
    text += number(o.cutmix);
  std::vector<std::string> details;
  if (o.mixup_mode != MixMode::batch) details.push_back("by " + word_of(o.mixup_mode));
  if (o.mixup_prob < 1) details.push_back("probability " + number(o.mixup_prob));
  if (o.mixup_off_epoch > 0) details.push_back(counted(o.mixup_off_epoch, "epoch"));
  return text.empty() || details.empty() ? text : text + " (" + join(details, ", ") + ")";
}

}  // namespace

std::span<const PresetRow> augment_presets() { return presets; }

void resolve_augmentation(Options& o, DataKind kind) {
  const bool photos = kind == DataKind::photos, cifar = kind == DataKind::cifar;
  if (!o.train_crop)
    o.train_crop = photos ? TrainCrop::random_resized : cifar ? TrainCrop::padded : TrainCrop::none;
  // Some of the built-in classes differ only by their direction.
  if (!o.hflip) o.hflip = photos || cifar ? 0.5 : 0;
  const bool dali = o.auto_augment == Policy::ra_dali;
  if (!o.ra_magnitude) o.ra_magnitude = dali ? 10 : 9;
  if (o.cutmix_minmax) o.cutmix = 1;  // as in timm

  refuse_unused(o);
  const auto refuse = [](std::string_view option, const std::string& why) {
    throw UserError(flag_of(option) + ' ' + why);
  };
  if (dali && *o.ra_magnitude > 10)
    refuse("ra_magnitude",
           std::to_string(*o.ra_magnitude) + ": --auto-augment ra-dali has magnitudes of 0 to 10");
  for (const auto& [option, range] : {std::pair{"scale", o.scale}, {"ratio", o.ratio}})
    if (range[0] > range[1])
      refuse(option, format_number(range[0]) + "," + format_number(range[1]) +
                         ": the smaller number comes first");
  if (o.cutmix_minmax && o.image_size) check_minmax(o, *o.image_size);
  if (o.color_jitter[3] > 0.5)
    refuse("color_jitter",
           format_number(o.color_jitter[3]) + ": hue must be at most 0.5, the whole circle");
  if (o.train_crop == TrainCrop::padded && o.image_size && o.padding >= *o.image_size)
    refuse("padding", std::to_string(o.padding) + ": a crop of " + std::to_string(*o.image_size) +
                          " pixels might miss the image; try less than " +
                          std::to_string(*o.image_size) +
                          ", or --train-crop pad-if-needed, which pads as much as is needed");
}

Cropping cropping_of(const AugmentOptions& o) {
  return {.train = o.train_crop.value(),
          .scale = o.scale,
          .ratio = o.ratio,
          .padding = o.padding,
          .hflip = *o.hflip,
          .vflip = o.vflip,
          .mode = o.crop_mode,
          .pct = o.crop_pct,
          .interpolation = o.interpolation};
}

Augmentation augmentation_of(const Options& o) {
  Augmentation a{.policy = o.auto_augment,
                 .ra_ops = o.ra_ops,
                 .ra_magnitude = *o.ra_magnitude,
                 .jitter = o.color_jitter,
                 .erase = o.random_erase};
  for (size_t c = 0; c < 3 && o.mean; ++c)
    a.mean_color[c] = static_cast<uint8_t>(std::lround(255 * (*o.mean)[c]));
  return a;
}

Mixing mixing_of(const AugmentOptions& o) {
  return {.mixup = o.mixup,
          .cutmix = o.cutmix,
          .minmax = o.cutmix_minmax.value_or(std::array<double, 2>{}),
          .prob = o.mixup_prob,
          .switch_prob = o.mixup_switch_prob,
          .mode = o.mixup_mode,
          .off_epoch = o.mixup_off_epoch};
}

DataOptions data_options(const Options& o) {
  return {.path = o.data,
          .built_in = o.built_in,
          .val = o.val,
          .val_fraction = o.val_fraction,
          .split_seed = o.split_seed,
          .seed = o.seed,
          .image_size = o.image_size.value_or(0),
          .patch_size = o.patch_size.value_or(0),
          .class_names = o.class_names,
          .skip_bad_records = o.on_bad_image == OnBadImage::skip};
}

LoaderOptions loader_options(const Options& o, DataKind kind, int batch, int cores) {
  return {.kind = kind,
          .image_size = o.image_size.value(),
          .local_batch = batch,
          .seed = o.seed,
          .crop = cropping_of(o),
          .augment = augmentation_of(o),
          .skip_bad_images = o.on_bad_image == OnBadImage::skip,
          .left_over_first = o.left_over == LeftOver::next,
          .workers = o.workers > 0 ? o.workers : cores};
}

std::string augmentation_text(const AugmentOptions& o) {
  std::string text = word_of(o.augment);
  if (o.auto_augment != Policy::none) text += ", auto-augment " + word_of(o.auto_augment);
  if (is_randaugment(o))
    text += ' ' + std::to_string(o.ra_ops) + " x " + std::to_string(*o.ra_magnitude);
  if (std::ranges::any_of(o.color_jitter, [](double x) { return x > 0; })) {
    text += ", color jitter";
    for (const double x : o.color_jitter) text += ' ' + number(x);
  }
  if (o.random_erase > 0) text += ", erasing " + number(o.random_erase);
  return text + mixing_text(o);
}

}  // namespace bv
