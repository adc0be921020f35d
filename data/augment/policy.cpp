#include "data/augment/policy.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "kernels/philox.h"

namespace bv {
namespace {

using enum Operation;

// Values of the first word of Philox's counter; crops and flips use 0 to 10.
enum Draw : uint32_t {
  at_gate = 15,
  at_layer = 16,  // + the layer's index
  at_cutout = 64,
  at_order = 112,
  at_jitter = 128,
  at_erase = 144,
};

Philox4 draw(const AugmentKey& key, uint32_t what) {
  return philox(key.seed, what, key.index, key.epoch, random_augment);
}
bool coin(uint32_t word) { return word >> 31; }

// The first `count` elements of a random permutation of 0 .. n - 1 (Fisher & Yates).
template <size_t n>
std::array<int, n> shuffled(const AugmentKey& key, uint32_t what, size_t count) {
  std::array<int, n> order;
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i < std::min(count, n - 1); ++i) {
    const uint32_t word = draw(key, what + static_cast<uint32_t>(i / 4)).at[i % 4];
    std::swap(order[i], order[i + static_cast<size_t>(below(word, static_cast<int>(n - i)))]);
  }
  return order;
}

// ---- torchvision's augmentation spaces ----------------------------------------------------------
struct Space {
  double shear, translate, rotate, enhance;  // largest magnitudes
  int posterize;                             // most bits removed
  int bins;
};
Space usual_space(int size, int bins) {
  return {.shear = 0.3,
          .translate = 150.0 / 331.0 * size,
          .rotate = 30,
          .enhance = 0.9,
          .posterize = 4,
          .bins = bins};
}
constexpr Space wide_space = {
    .shear = 0.99, .translate = 32, .rotate = 135, .enhance = 0.99, .posterize = 6, .bins = 31};

constexpr Operation of_randaugment[] = {
    identity, shear_x,  shear_y,   translate_x, translate_y, rotate,       brightness,
    color,    contrast, sharpness, posterize,   solarize,    autocontrast, equalize};

bool is_signed(Operation o) { return o >= shear_x && o <= sharpness; }

double magnitude_of(Operation operation, const Space& space, int bin) {
  const auto of = [&](double most) { return most * bin / (space.bins - 1); };
  switch (operation) {
    case shear_x:
    case shear_y:
      return of(space.shear);
    case translate_x:
    case translate_y:
      return of(space.translate);
    case rotate:
      return of(space.rotate);
    case brightness:
    case color:
    case contrast:
    case sharpness:
      return of(space.enhance);
    case posterize:
      return 8 - std::round(of(space.posterize));
    case solarize:
      return 255 - of(255);
    default:
      return 0;
  }
}

DrawnOperation drawn(Operation operation, const Space& space, int bin, bool negative) {
  const double magnitude = magnitude_of(operation, space, bin);
  return {operation, negative && is_signed(operation) ? -magnitude : magnitude};
}

// ---- AutoAugment (Cubuk et al. 2019) ------------------------------------------------------------
struct Step {
  Operation operation;
  double probability;
  int bin;  // of 10
};
using SubPolicy = std::array<Step, 2>;

constexpr SubPolicy of_cifar10[] = {
    {{{invert, 0.1, 0}, {contrast, 0.2, 6}}},
    {{{rotate, 0.7, 2}, {translate_x, 0.3, 9}}},
    {{{sharpness, 0.8, 1}, {sharpness, 0.9, 3}}},
    {{{shear_y, 0.5, 8}, {translate_y, 0.7, 9}}},
    {{{autocontrast, 0.5, 0}, {equalize, 0.9, 0}}},
    {{{shear_y, 0.2, 7}, {posterize, 0.3, 7}}},
    {{{color, 0.4, 3}, {brightness, 0.6, 7}}},
    {{{sharpness, 0.3, 9}, {brightness, 0.7, 9}}},
    {{{equalize, 0.6, 0}, {equalize, 0.5, 0}}},
    {{{contrast, 0.6, 7}, {sharpness, 0.6, 5}}},
    {{{color, 0.7, 7}, {translate_x, 0.5, 8}}},
    {{{equalize, 0.3, 0}, {autocontrast, 0.4, 0}}},
    {{{translate_y, 0.4, 3}, {sharpness, 0.2, 6}}},
    {{{brightness, 0.9, 6}, {color, 0.2, 8}}},
    {{{solarize, 0.5, 2}, {invert, 0.0, 0}}},
    {{{equalize, 0.2, 0}, {autocontrast, 0.6, 0}}},
    {{{equalize, 0.2, 0}, {equalize, 0.6, 0}}},
    {{{color, 0.9, 9}, {equalize, 0.6, 0}}},
    {{{autocontrast, 0.8, 0}, {solarize, 0.2, 8}}},
    {{{brightness, 0.1, 3}, {color, 0.7, 0}}},
    {{{solarize, 0.4, 5}, {autocontrast, 0.9, 0}}},
    {{{translate_y, 0.9, 9}, {translate_y, 0.7, 9}}},
    {{{autocontrast, 0.9, 0}, {solarize, 0.8, 3}}},
    {{{equalize, 0.8, 0}, {invert, 0.1, 0}}},
    {{{translate_y, 0.7, 9}, {autocontrast, 0.9, 0}}},
};
constexpr SubPolicy of_imagenet[] = {
    {{{posterize, 0.4, 8}, {rotate, 0.6, 9}}},  {{{solarize, 0.6, 5}, {autocontrast, 0.6, 0}}},
    {{{equalize, 0.8, 0}, {equalize, 0.6, 0}}}, {{{posterize, 0.6, 7}, {posterize, 0.6, 6}}},
    {{{equalize, 0.4, 0}, {solarize, 0.2, 4}}}, {{{equalize, 0.4, 0}, {rotate, 0.8, 8}}},
    {{{solarize, 0.6, 3}, {equalize, 0.6, 0}}}, {{{posterize, 0.8, 5}, {equalize, 1.0, 0}}},
    {{{rotate, 0.2, 3}, {solarize, 0.6, 8}}},   {{{equalize, 0.6, 0}, {posterize, 0.4, 6}}},
    {{{rotate, 0.8, 8}, {color, 0.4, 0}}},      {{{rotate, 0.4, 9}, {equalize, 0.6, 0}}},
    {{{equalize, 0.0, 0}, {equalize, 0.8, 0}}}, {{{invert, 0.6, 0}, {equalize, 1.0, 0}}},
    {{{color, 0.6, 4}, {contrast, 1.0, 8}}},    {{{rotate, 0.8, 8}, {color, 1.0, 2}}},
    {{{color, 0.8, 8}, {solarize, 0.8, 7}}},    {{{sharpness, 0.4, 7}, {invert, 0.6, 0}}},
    {{{shear_x, 0.6, 5}, {equalize, 1.0, 0}}},  {{{color, 0.4, 0}, {equalize, 0.6, 0}}},
    {{{equalize, 0.4, 0}, {solarize, 0.2, 4}}}, {{{solarize, 0.6, 5}, {autocontrast, 0.6, 0}}},
    {{{invert, 0.6, 0}, {equalize, 1.0, 0}}},   {{{color, 0.6, 4}, {contrast, 1.0, 8}}},
    {{{equalize, 0.8, 0}, {equalize, 0.6, 0}}},
};

// ---- RandAugment of DALI's pipeline -------------------------------------------------------------
// 16 operations. at_10: the operation's parameter at magnitude 10, the largest; lengths are in
// pixels, chosen for images of 224 pixels.
struct DaliOperation {
  Operation operation;
  double at_10;
};
constexpr DaliOperation of_dali[] = {
    {autocontrast, 0}, {equalize, 0},     {invert, 0},         {rotate, 30},
    {posterize, 4},    {solarize, 200},   {solarize_add, 110}, {color, 0.9},
    {contrast, 0.9},   {brightness, 0.9}, {sharpness, 0.9},    {shear_x, 0.3},
    {shear_y, 0.3},    {translate_x, 40}, {translate_y, 40},   {cutout, 40}};
constexpr uint8_t dali_grey = 128;

double dali_magnitude(const DaliOperation& o, int of_10) {
  const double part = of_10 / 10.0;
  switch (o.operation) {
    case brightness:
    case color:
    case contrast:
    case sharpness:
      return (2 * part - 1) * o.at_10;  // factor - 1; factors from 0.1 to 1.9
    case posterize:
    case solarize:
    case solarize_add:
    case cutout:
    case translate_x:
    case translate_y:
      return std::trunc(part * o.at_10);
    default:
      return part * o.at_10;
  }
}

Box cutout_box(const AugmentKey& key, uint32_t layer, int half, int size) {
  const Philox4 random = draw(key, at_cutout + layer);
  const int y = below(random.at[0], size), x = below(random.at[1], size);
  const int top = std::max(0, y - half), left = std::max(0, x - half);
  return {.top = double(top),
          .left = double(left),
          .height = double(std::min(size, y + half) - top),
          .width = double(std::min(size, x + half) - left)};
}

// ---- the policies -------------------------------------------------------------------------------
using Drawn = std::vector<DrawnOperation>;

void draw_dali(const Augmentation& a, const AugmentKey& key, int size, Drawn& list) {
  if (!coin(draw(key, at_gate).at[0])) return;
  const auto order = shuffled<std::size(of_dali)>(key, at_order, static_cast<size_t>(a.ra_ops));
  for (int i = 0; i < a.ra_ops; ++i) {
    const auto layer = static_cast<uint32_t>(i);
    const DaliOperation& o = of_dali[order[layer]];
    DrawnOperation drawn{o.operation, dali_magnitude(o, a.ra_magnitude)};
    if (o.operation >= shear_x && o.operation <= rotate && coin(draw(key, at_layer + layer).at[2]))
      drawn.magnitude = -drawn.magnitude;
    if (o.operation == cutout)
      drawn.box = cutout_box(key, layer, static_cast<int>(drawn.magnitude), size);
    list.push_back(drawn);
  }
}

void draw_policy(const Augmentation& a, const AugmentKey& key, int size, Drawn& list) {
  switch (a.policy) {
    case Policy::none:
      return;
    case Policy::ra_dali:
      return draw_dali(a, key, size, list);
    case Policy::ra:
      for (int i = 0; i < a.ra_ops; ++i) {
        const Philox4 random = draw(key, at_layer + static_cast<uint32_t>(i));
        const Operation operation = of_randaugment[below(random.at[0], std::size(of_randaugment))];
        list.push_back(drawn(operation, usual_space(size, 31), a.ra_magnitude, coin(random.at[2])));
      }
      return;
    case Policy::ta_wide: {
      const Philox4 random = draw(key, at_layer);
      list.push_back(drawn(of_randaugment[below(random.at[0], std::size(of_randaugment))],
                           wide_space, below(random.at[1], wide_space.bins), coin(random.at[2])));
      return;
    }
    case Policy::cifar10:
    case Policy::imagenet: {
      const auto& table = a.policy == Policy::cifar10 ? of_cifar10 : of_imagenet;
      const Philox4 which = draw(key, at_gate), random = draw(key, at_layer);
      const SubPolicy& steps = table[below(which.at[0], std::size(table))];
      for (size_t i = 0; i < steps.size(); ++i)
        if (double{uniform(random.at[i])} < steps[i].probability)
          list.push_back(drawn(steps[i].operation, usual_space(size, 10), steps[i].bin,
                               !coin(random.at[2 + i])));
      return;
    }
  }
}

// torchvision's ColorJitter: all enabled operations, in a random order.
void draw_jitter(const Augmentation& a, const AugmentKey& key, Drawn& list) {
  constexpr Operation operations[] = {brightness, contrast, color, hue};
  const Philox4 random = draw(key, at_jitter);
  for (const int i : shuffled<4>(key, at_jitter + 1, 4)) {
    const double strength = a.jitter[static_cast<size_t>(i)];
    if (strength == 0) continue;
    const double low = operations[i] == hue ? -strength : std::max(-1.0, -strength);
    list.push_back({operations[i], low + (strength - low) * double{uniform(random.at[i])}});
  }
}

// Random erasing (Zhong et al. 2020) with timm's defaults.
void draw_erase(const Augmentation& a, const AugmentKey& key, int size, Drawn& list) {
  constexpr double min_area = 0.02, max_area = 1.0 / 3, min_aspect = 0.3;
  constexpr uint32_t attempts = 10;
  if (double{uniform(draw(key, at_erase).at[0])} >= a.erase) return;
  for (uint32_t i = 1; i <= attempts; ++i) {
    const Philox4 random = draw(key, at_erase + i);
    const double area = (min_area + (max_area - min_area) * uniform(random.at[0])) * size * size;
    const double aspect = std::exp(std::log(min_aspect) * (1 - 2 * double{uniform(random.at[1])}));
    const int height = static_cast<int>(std::lround(std::sqrt(area * aspect)));
    const int width = static_cast<int>(std::lround(std::sqrt(area / aspect)));
    if (height >= size || width >= size) continue;
    list.push_back({.operation = erase,
                    .box = {.top = double(below(random.at[2], size - height + 1)),
                            .left = double(below(random.at[3], size - width + 1)),
                            .height = double(height),
                            .width = double(width)}});
    return;
  }
}

// ---- for the device -----------------------------------------------------------------------------
constexpr int32_t one = 1 << 16;
int32_t to_fixed(double x) { return static_cast<int32_t>(std::floor(x * one + 0.5)); }

// Converts Pillow's matrix, which maps pixels of the result to pixels of the image.
ImageOp affine(const std::array<double, 6>& a, const std::array<uint8_t, 3>& fill) {
  return {.kind = ImageOpKind::affine,
          .fill = {fill[0], fill[1], fill[2]},
          .at = {to_fixed(a[0]), to_fixed(a[1]), to_fixed(a[2] + (a[0] + a[1]) * 0.5),
                 to_fixed(a[3]), to_fixed(a[4]), to_fixed(a[5] + (a[3] + a[4]) * 0.5)}};
}

// Image.rotate, counter-clockwise about the centre.
ImageOp rotation(double degrees, int size, const std::array<uint8_t, 3>& fill) {
  const auto rounded = [](double x) { return std::round(x * 1e15) / 1e15; };
  const double angle = -degrees * std::numbers::pi / 180, centre = size / 2.0;
  const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
  return affine({cosine, sine, centre - (cosine + sine) * centre, -sine, cosine,
                 centre - (cosine - sine) * centre},
                fill);
}

ImageOp of_number(ImageOpKind kind, double n = 0) {
  return {.kind = kind, .fill = {}, .at = {static_cast<int32_t>(n)}};
}
ImageOp enhancement(ImageOpKind kind, double magnitude) {
  return of_number(kind, std::lround((1 + magnitude) * one));
}

ImageOp overwritten(const Box& box, const std::array<uint8_t, 3>& color) {
  return {.kind = ImageOpKind::erase,
          .fill = {color[0], color[1], color[2]},
          .at = {static_cast<int32_t>(box.top), static_cast<int32_t>(box.left),
                 static_cast<int32_t>(box.height), static_cast<int32_t>(box.width)}};
}

}  // namespace

std::string_view name_of(Operation operation) {
  constexpr std::string_view names[] = {"Identity",     "ShearX",    "ShearY",     "TranslateX",
                                        "TranslateY",   "Rotate",    "Brightness", "Color",
                                        "Contrast",     "Sharpness", "Posterize",  "Solarize",
                                        "AutoContrast", "Equalize",  "Invert",     "SolarizeAdd",
                                        "Cutout",       "Hue",       "Erase"};
  return names[static_cast<size_t>(operation)];
}

int Augmentation::layers() const {
  const int of_policy = policy == Policy::none                              ? 0
                        : policy == Policy::ra || policy == Policy::ra_dali ? ra_ops
                        : policy == Policy::ta_wide                         ? 1
                                                                            : 2;
  return of_policy +
         static_cast<int>(std::ranges::count_if(jitter, [](double x) { return x > 0; })) +
         (erase > 0 ? 1 : 0);
}

std::vector<DrawnOperation> draw_operations(const Augmentation& a, const AugmentKey& key,
                                            int size) {
  Drawn list;
  draw_policy(a, key, size, list);
  std::erase_if(list, [](const DrawnOperation& d) { return d.operation == identity; });
  draw_jitter(a, key, list);
  if (a.erase > 0) draw_erase(a, key, size, list);
  return list;
}

ImageOp image_op(const Augmentation& a, const DrawnOperation& d, int size) {
  const double m = d.magnitude;
  std::array<uint8_t, 3> fill{};
  if (a.policy == Policy::ra_dali) fill.fill(dali_grey);
  switch (d.operation) {
    case identity:
      return of_number(ImageOpKind::identity);
    case shear_x:
      return affine({1, m, 0, 0, 1, 0}, fill);
    case shear_y:
      return affine({1, 0, 0, m, 1, 0}, fill);
    case translate_x:
      return affine({1, 0, -std::trunc(m), 0, 1, 0}, fill);
    case translate_y:
      return affine({1, 0, 0, 0, 1, -std::trunc(m)}, fill);
    case rotate:
      return rotation(m, size, fill);
    case brightness:
      return enhancement(ImageOpKind::brightness, m);
    case color:
      return enhancement(ImageOpKind::color, m);
    case contrast:
      return enhancement(ImageOpKind::contrast, m);
    case sharpness:
      return enhancement(ImageOpKind::sharpness, m);
    case posterize:
      return of_number(ImageOpKind::posterize, 256 - (1 << (8 - static_cast<int>(m))));
    case solarize:
      return of_number(ImageOpKind::solarize, std::ceil(m));
    case solarize_add:
      return of_number(ImageOpKind::solarize_add, m);
    case autocontrast:
      return of_number(ImageOpKind::autocontrast);
    case equalize:
      return of_number(ImageOpKind::equalize);
    case invert:
      return of_number(ImageOpKind::invert);
    case hue:
      return of_number(ImageOpKind::hue, static_cast<int>(m * 255) & 255);
    case cutout:
      return overwritten(d.box, fill);
    case erase:
      return overwritten(d.box, a.mean_color);
  }
  return {};
}

}  // namespace bv
