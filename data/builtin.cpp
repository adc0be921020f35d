// The built-in set, "mosaics": ten 8x8 motifs tiled over an image, in two random colours. In every
// class each pixel is equally likely to have either colour (each tile may swap its colours), so a
// linear model on pixels learns nothing; only the pattern within a tile tells the classes apart.
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
constexpr int train_images = 2048, val_images = 1000, default_size = 64;
constexpr double contrast = 96;        // minimum difference of the two colours' luma (0 to 255)
constexpr float distractors = 0.3f;    // fraction of tiles that show a motif of any class
constexpr float plain = 0.2f;          // fraction of tiles of one colour
constexpr float noise_deviation = 16;  // of each pixel and channel

struct Colours {
  std::array<float, 3> a, b;
};

Colours draw_colours(RandomWords& random) {
  constexpr double luma[3] = {0.299, 0.587, 0.114};
  while (true) {
    Colours colours;
    double difference = 0;
    for (int c = 0; c < 3; ++c) {
      colours.a[c] = static_cast<float>(random.below(256));
      colours.b[c] = static_cast<float>(random.below(256));
      difference += luma[c] * (colours.a[c] - colours.b[c]);
    }
    if (std::abs(difference) >= contrast) return colours;
  }
}

// A tile: a motif or a single colour, possibly with the two colours swapped.
struct Tile {
  const Motif* motif;
  bool is_plain, swapped;

  bool first_colour(int y, int x) const {
    return (is_plain || motif->rows[y][x] == '#') != swapped;
  }
};

Tile draw_tile(int label, RandomWords& random) {
  const bool other = uniform(random.next()) < distractors;
  Tile tile{};
  tile.motif = &motifs[other ? random.below(class_count) : static_cast<uint32_t>(label)];
  tile.is_plain = uniform(random.next()) < plain;
  tile.swapped = random.next() >> 31;
  return tile;
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

Image draw(int label, int size, int tile, RandomWords random) {
  const Colours colours = draw_colours(random);
  const int grid = (size + tile - 1) / tile;  // the last tiles may be cut off
  std::vector<Tile> tiles;
  for (int i = 0; i < grid * grid; ++i) tiles.push_back(draw_tile(label, random));
  Image image = black_image(size, size);
  uint8_t* out = image.pixels.data();
  Normal noise(random);
  const int dot = tile / motif_side;
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x) {
      const Tile& t = tiles[y / tile * grid + x / tile];
      const auto& colour = t.first_colour(y % tile / dot, x % tile / dot) ? colours.a : colours.b;
      for (int c = 0; c < 3; ++c) {
        const float value = std::round(colour[c] + noise_deviation * noise.next());
        *out++ = static_cast<uint8_t>(std::min(std::max(value, 0.0f), 255.0f));
      }
    }
  return image;
}

// Draws an image on every call; the loader caches the images if all of them fit.
class Mosaics : public Dataset {
 public:
  Mosaics(uint64_t seed, uint32_t part, int64_t count, int size, int tile, std::vector<int> labels)
      : seed_(seed),
        part_(part),
        count_(count),
        size_(size),
        tile_(tile),
        labels_(std::move(labels)) {}
  int64_t size() const override { return count_; }
  int label(int64_t index) const override { return labels_[index % class_count]; }
  Image image(int64_t index, int) const override {
    return draw(static_cast<int>(index % class_count), size_, tile_,
                RandomWords(seed_, random_data, static_cast<uint32_t>(index), part_));
  }
  std::string name(int64_t index) const override {
    return "built-in image " + std::to_string(index);
  }

 private:
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
  Fingerprint print("mosaics", classes.names);
  for (const int64_t number : {static_cast<int64_t>(options.seed), int64_t{size}, int64_t{tile}})
    print.add(number);
  DataSets sets{.kind = DataKind::builtin, .fingerprint = print.value()};
  const auto part = [&](uint32_t which, int64_t count) {
    return std::make_unique<Mosaics>(options.seed, which, count, size, tile, classes.labels);
  };
  sets.train = part(0, train_images);
  sets.val = part(1, val_images);
  sets.classes = std::move(classes.names);
  sets.description = describe("built-in images", sets);
  return sets;
}

}  // namespace bv
