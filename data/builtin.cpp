// The built-in sets. In "mosaics", an image has one of ten 8x8 motifs tiled over it, in two random
// colours. In every class each pixel is equally likely to have either colour (each tile may swap
// its colours), so a linear model on pixels learns nothing; only the pattern within a tile tells
// the classes apart. In "shapes", discs, squares and triangles lie over the mosaic and each other,
// with motifs of other classes in colours of their own; the class is the motif below them all. One
// of the mosaic's colours has its class's hue in most images and misleads in the others.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include "data/sources.h"

namespace bv {
namespace {

struct Motif {
  const char* name;
  const char* rows[8];  // '#': first colour
};

constexpr Motif motifs[10] = {
    // clang-format off
    {"rows",      {"########", "########", "........", "........",
                   "########", "########", "........", "........"}},
    {"columns",   {"##..##..", "##..##..", "##..##..", "##..##..",
                   "##..##..", "##..##..", "##..##..", "##..##.."}},
    {"checks",    {"##..##..", "##..##..", "..##..##", "..##..##",
                   "##..##..", "##..##..", "..##..##", "..##..##"}},
    {"slope",     {"#.......", "##......", "###.....", "####....",
                   "#####...", "######..", "#######.", "########"}},
    {"target",    {"..####..", ".#....#.", "#..##..#", "#.####.#",
                   "#.####.#", "#..##..#", ".#....#.", "..####.."}},
    {"plus",      {"...##...", "...##...", "...##...", "########",
                   "########", "...##...", "...##...", "...##..."}},
    {"cross",     {"##....##", "###..###", ".######.", "..####..",
                   "..####..", ".######.", "###..###", "##....##"}},
    {"hourglass", {"########", ".######.", "..####..", "...##...",
                   "...##...", "..####..", ".######.", "########"}},
    {"heart",     {".##..##.", "########", "########", "########",
                   ".######.", "..####..", "...##...", "........"}},
    {"house",     {"...##...", "..####..", ".######.", "########",
                   ".##..##.", ".##..##.", ".##..##.", ".######."}},
    // clang-format on
};
constexpr int class_count = 10, motif_side = 8;
constexpr int default_size = 64;
struct BuiltInSet {
  const char* name;
  int train_images, val_images;
  uint32_t min_shapes, max_shapes;  // in an image
  float true_hues;  // fraction of images with their class's hue, the others mislead; 0: any colours
  double contrast;  // the least difference of two colours' luma (0 to 255)
  float distractors;      // fraction of tiles that show a motif of any class
  float plain;            // fraction of tiles of one colour
  float noise_deviation;  // of each pixel and channel
};
constexpr BuiltInSet built_in_sets[] = {{.name = "shapes",
                                         .train_images = 2048,
                                         .val_images = 500,
                                         .min_shapes = 2,
                                         .max_shapes = 4,
                                         .true_hues = 0.8f,
                                         .contrast = 40,
                                         .distractors = 0.15f,
                                         .plain = 0.1f,
                                         .noise_deviation = 48},
                                        {.name = "mosaics",
                                         .train_images = 2048,
                                         .val_images = 1000,
                                         .min_shapes = 0,
                                         .max_shapes = 0,
                                         .true_hues = 0,
                                         .contrast = 96,
                                         .distractors = 0.3f,
                                         .plain = 0.2f,
                                         .noise_deviation = 16}};
constexpr float min_radius = 0.14f, max_radius = 0.27f;  // of a shape, of the image's side

using Colour = std::array<float, 3>;  // red, green, blue: 0 to 255
struct Colours {
  Colour a, b;
};

// A bright colour of the class's tenth of the hues.
Colour draw_hue(int label, RandomWords& random) {
  constexpr float sixths = 6, shift[3] = {5, 3, 1};  // from HSV
  const float within = 0.1f + 0.8f * uniform(random.next());
  const float hue = (static_cast<float>(label) + within) * sixths / class_count;
  const float saturation = 0.5f + 0.5f * uniform(random.next());
  const float value = 0.4f + 0.6f * uniform(random.next());
  Colour colour;
  for (int c = 0; c < 3; ++c) {
    const float k = std::fmod(hue + shift[c], sixths);
    const float less = std::clamp(std::min(k, 4 - k), 0.0f, 1.0f);
    colour[c] = 255 * value * (1 - saturation * less);
  }
  return colour;
}

// label: the class whose hue one of them has; -1: any colours.
Colours draw_colours(double contrast, RandomWords& random, int label = -1) {
  constexpr double luma[3] = {0.299, 0.587, 0.114};
  while (true) {
    Colours colours;
    for (int c = 0; c < 3; ++c) {
      colours.a[c] = static_cast<float>(random.below(256));
      colours.b[c] = static_cast<float>(random.below(256));
    }
    if (label >= 0) colours.a = draw_hue(label, random);
    double difference = 0;
    for (int c = 0; c < 3; ++c) difference += luma[c] * (colours.a[c] - colours.b[c]);
    if (std::abs(difference) >= contrast) return colours;
  }
}

int draw_other(int label, RandomWords& random) {
  return (label + 1 + static_cast<int>(random.below(class_count - 1))) % class_count;
}

Colours draw_ground(const BuiltInSet& set, int label, RandomWords& random) {
  if (set.true_hues == 0) return draw_colours(set.contrast, random);
  const bool misleads = uniform(random.next()) >= set.true_hues;
  return draw_colours(set.contrast, random, misleads ? draw_other(label, random) : label);
}

// A tile: a motif or a single colour, possibly with the two colours swapped.
struct Tile {
  const Motif* motif;
  bool is_plain, swapped;

  bool first_colour(int y, int x) const {
    return (is_plain || motif->rows[y][x] == '#') != swapped;
  }
};

Tile draw_tile(const BuiltInSet& set, int label, RandomWords& random) {
  const bool other = uniform(random.next()) < set.distractors;
  Tile tile{};
  tile.motif = &motifs[other ? random.below(class_count) : static_cast<uint32_t>(label)];
  tile.is_plain = uniform(random.next()) < set.plain;
  tile.swapped = random.next() >> 31;
  return tile;
}

struct Shape {
  enum Kind : uint8_t { disc, square, triangle } kind;
  float y, x, radius;  // in pixels
  Colours colours;
  const Motif* motif;

  // All kinds have about the same area.
  bool covers(float at_y, float at_x) const {
    const float dy = (at_y - y) / radius, dx = std::abs(at_x - x) / radius;
    if (kind == disc) return dy * dy + dx * dx <= 1;
    if (kind == square) return std::max(std::abs(dy), dx) <= 0.886f;
    return dy <= 0.8f && dx <= (dy + 1.2f) * 0.8f;
  }
};

Shape draw_shape(const BuiltInSet& set, int label, int size, RandomWords& random) {
  const auto side = static_cast<float>(size);
  Shape shape{};
  shape.kind = static_cast<Shape::Kind>(random.below(3));
  shape.radius = side * (min_radius + (max_radius - min_radius) * uniform(random.next()));
  shape.y = side * uniform(random.next());
  shape.x = side * uniform(random.next());
  shape.colours = draw_colours(set.contrast, random);
  shape.motif = &motifs[draw_other(label, random)];
  return shape;
}

// Normal variates, two at a time (Box & Muller 1958); the second is kept for the next call.
class Normal {
 public:
  explicit Normal(RandomWords& random) : random_(random) {}
  float next() {
    if (std::exchange(has_second_, !has_second_)) return second_;
    const float radius = std::sqrt(-2 * std::log(1 - uniform(random_.next())));
    const float angle = 2 * std::numbers::pi_v<float> * uniform(random_.next());
    second_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

 private:
  RandomWords& random_;
  float second_ = 0;
  bool has_second_ = false;
};

Image draw(const BuiltInSet& set, int label, int size, int tile, RandomWords random) {
  const Colours ground = draw_ground(set, label, random);
  const int grid = (size + tile - 1) / tile;  // the last tiles may be cut off
  std::vector<Tile> tiles;
  for (int i = 0; i < grid * grid; ++i) tiles.push_back(draw_tile(set, label, random));
  std::vector<Shape> shapes;  // the last one is on top
  if (set.max_shapes > 0)
    shapes.resize(set.min_shapes + random.below(set.max_shapes - set.min_shapes + 1));
  for (Shape& shape : shapes) shape = draw_shape(set, label, size, random);
  Image image = black_image(size, size);
  uint8_t* out = image.pixels.data();
  Normal noise(random);
  const int dot = tile / motif_side;
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x) {
      const int dot_y = y % tile / dot, dot_x = x % tile / dot;
      const auto top = std::find_if(shapes.rbegin(), shapes.rend(), [&](const Shape& shape) {
        return shape.covers(float(y) + 0.5f, float(x) + 0.5f);
      });
      const bool covered = top != shapes.rend();
      const bool first = covered ? top->motif->rows[dot_y][dot_x] == '#'
                                 : tiles[y / tile * grid + x / tile].first_colour(dot_y, dot_x);
      const Colours& colours = covered ? top->colours : ground;
      for (int c = 0; c < 3; ++c) {
        const float colour = first ? colours.a[c] : colours.b[c];
        const float value = std::round(colour + set.noise_deviation * noise.next());
        *out++ = static_cast<uint8_t>(std::min(std::max(value, 0.0f), 255.0f));
      }
    }
  return image;
}

// Draws an image on every call; the loader caches the images if all of them fit.
class BuiltInImages : public Dataset {
 public:
  BuiltInImages(const BuiltInSet& set, uint64_t seed, uint32_t part, int64_t count, int size,
                int tile, std::vector<int> labels)
      : set_(set),
        seed_(seed),
        part_(part),
        count_(count),
        size_(size),
        tile_(tile),
        labels_(std::move(labels)) {}
  int64_t size() const override { return count_; }
  int label(int64_t index) const override { return labels_[index % class_count]; }
  Image image(int64_t index, int) const override {
    return draw(set_, static_cast<int>(index % class_count), size_, tile_,
                RandomWords(seed_, random_data, static_cast<uint32_t>(index), part_));
  }
  std::string name(int64_t index) const override {
    return "built-in image " + std::to_string(index);
  }

 private:
  const BuiltInSet& set_;
  uint64_t seed_;
  uint32_t part_;
  int64_t count_;
  int size_, tile_;
  std::vector<int> labels_;
};

}  // namespace

DataSets open_builtin(const DataOptions& options) {
  const int size = options.image_size > 0 ? options.image_size : default_size;
  if (size < motif_side)
    throw DataError("--image-size " + std::to_string(size) +
                    ": built-in images are at least 8 pixels wide");
  const bool follows_patch = options.patch_size > 0 && options.patch_size % motif_side == 0;
  const int tile = follows_patch && options.patch_size <= size ? options.patch_size : motif_side;
  std::vector<std::string> names;
  for (const Motif& motif : motifs) names.push_back(motif.name);
  ClassList classes = order_classes(names, options);
  const BuiltInSet& set = built_in_sets[static_cast<int>(options.built_in)];
  Fingerprint print(set.name, classes.names);
  for (const int64_t number : {static_cast<int64_t>(options.seed), int64_t{size}, int64_t{tile}})
    print.add(number);
  DataSets sets{.kind = DataKind::builtin, .fingerprint = print.value()};
  const auto part = [&](uint32_t which, int64_t count) {
    return std::make_unique<BuiltInImages>(set, options.seed, which, count, size, tile,
                                           classes.labels);
  };
  sets.train = part(0, set.train_images);
  sets.val = part(1, set.val_images);
  sets.classes = std::move(classes.names);
  sets.description = describe("built-in images", sets);
  return sets;
}

}  // namespace bv
