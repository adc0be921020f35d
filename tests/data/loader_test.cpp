// Resizing, random choices, and batches that depend only on (seed, epoch, position).
#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/machine_error.h"
#include "data/augment/augment.h"
#include "data/prepare.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

// A copy of a batch's content, for comparison.
struct Copy {
  std::vector<uint8_t> images;
  std::vector<int> crops, ops, labels;
  std::vector<float> mixes;
  int count;
  uint32_t position;
  bool operator==(const Copy&) const = default;
};

Copy copy(const Batch& batch, const LoaderOptions& o) {
  Copy c{.count = batch.count, .position = batch.position};
  c.images.assign(batch.images, batch.images + 3 * o.image_size * o.image_size * o.local_batch);
  for (int i = 0; i < o.local_batch; ++i) {
    const Crop& crop = batch.crops[i];
    c.crops.insert(c.crops.end(), {crop.top, crop.left, crop.flip});
    c.labels.push_back(batch.labels[i]);
    if (batch.mixes) {
      const Mix& m = batch.mixes[i];
      c.mixes.insert(c.mixes.end(),
                     {m.lambda, float(m.top), float(m.left), float(m.bottom), float(m.right)});
    }
    for (int layer = 0; batch.ops && layer < o.augment.layers(); ++layer) {
      const ImageOp& op = batch.ops[i * o.augment.layers() + layer];
      c.ops.insert(c.ops.end(), {int(op.kind), op.fill[0]});
      c.ops.insert(c.ops.end(), std::begin(op.at), std::end(op.at));
    }
  }
  return c;
}

std::vector<Copy> batches(const Dataset& data, const LoaderOptions& o, bool train, int64_t epoch,
                          int64_t first, int count) {
  Loader loader(data, o, train);
  loader.start(epoch, first);
  std::vector<Copy> all;
  for (int i = 0; i < count; ++i) all.push_back(copy(loader.next(), o));
  return all;
}

class Photos : public testing::Test {
 protected:
  Photos() {
    for (int c = 0; c < 3; ++c)
      for (int i = 0; i < 7; ++i)
        write_ppm(folder_ / ("class" + std::to_string(c) + "/" + std::to_string(i) + ".ppm"),
                  20 + 5 * i, 40 - 3 * c, 10 * c + i);
    sets_ = open_dataset({.path = folder_.path(), .val_fraction = 0.2});
    options_ = {.kind = sets_.kind,
                .image_size = 16,
                .local_batch = 4,
                .seed = 5,
                .crop = {.train = TrainCrop::random_resized, .hflip = 0.5},
                .augment = {.policy = Policy::ra, .jitter = {.2, .2, 0, 0}, .erase = 0.5}};
  }
  void damage(const std::string& path) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  }

  TemporaryFolder folder_;
  DataSets sets_;
  LoaderOptions options_;
};

TEST(Resize, WeightsSumToOneAndAreCentred) {
  for (const auto& [input, begin, length, output] : {std::tuple{10, 0.0, 10.0, 10},
                                                     {10, 0.0, 10.0, 3},
                                                     {7, 1.5, 4.25, 13},
                                                     {1, 0.0, 1.0, 5},
                                                     {500, 80.0, 333.0, 224},
                                                     {97, 0.0, 97.0, 1}}) {
    const auto all = filter_taps(input, begin, length, output);
    for (int i = 0; i < output; ++i) {
      double sum = 0, centre = 0;
      for (size_t k = 0; k < all[i].weights.size(); ++k) {
        sum += all[i].weights[k];
        centre += all[i].weights[k] * (all[i].begin + double(k) + 0.5);
      }
      EXPECT_NEAR(sum, 1, 1e-5);
      EXPECT_GE(all[i].begin, 0);
      EXPECT_LE(all[i].begin + all[i].weights.size(), size_t(input));
      const double expected = begin + (i + 0.5) * length / output;
      const double reach = std::max(1.0, length / output);
      if (expected > reach && expected < input - reach) {
        EXPECT_NEAR(centre, expected, 0.25 * reach);
      }
    }
  }
}

TEST(Resize, SameSizeIsTheSameImage) {
  Image image{.height = 5, .width = 11, .pixels = {}};
  for (int i = 0; i < 165; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 7));
  std::vector<uint8_t> out(165);
  Resizer().run(image, {.height = 5, .width = 11}, 5, 11, out.data());
  EXPECT_EQ(out, image.pixels);
  std::vector<uint8_t> part(3 * 2 * 3);
  Resizer().run(image, {.top = 1, .left = 4, .height = 2, .width = 3}, 2, 3, part.data());
  for (int y = 0; y < 2; ++y)
    for (int x = 0; x < 9; ++x)
      EXPECT_EQ(part[y * 9 + x], image.pixels[((y + 1) * 11 + 4) * 3 + x]);
}

// Halves 4x1 pixels: the triangle spans 4 pixels with weights 1 3 3 1, cut off at the edges.
TEST(Resize, HalvingByHand) {
  const Image image{
      .height = 1, .width = 4, .pixels = {0, 0, 0, 70, 70, 70, 140, 140, 140, 210, 210, 210}};
  std::vector<uint8_t> out(6);
  Resizer().run(image, {.height = 1, .width = 4}, 1, 2, out.data());
  EXPECT_EQ(out[0], (3 * 0 + 3 * 70 + 140) / 7);
  EXPECT_EQ(out[3], (70 + 3 * 140 + 3 * 210) / 7);
}

TEST(Augment, RandomResizedCropsAreInsideAndVaried) {
  double area = 0, least = 1, most = 0;
  std::set<std::pair<double, double>> corners;
  for (uint32_t i = 0; i < 1000; ++i) {
    const Box box = random_resized_crop({.seed = 1, .epoch = 2, .index = i}, 300, 400);
    EXPECT_GE(box.top, 0);
    EXPECT_GE(box.left, 0);
    EXPECT_LE(box.top + box.height, 300);
    EXPECT_LE(box.left + box.width, 400);
    EXPECT_GE(box.width / box.height, 0.74);
    EXPECT_LE(box.width / box.height, 1.35);
    const double part = box.height * box.width / 120000;
    area += part / 1000, least = std::min(least, part), most = std::max(most, part);
    corners.insert({box.top, box.left});
  }
  EXPECT_NEAR(area, 0.43, 0.03);  // torchvision's mean for 4:3 images
  EXPECT_NEAR(least, 0.08, 0.01);
  EXPECT_GT(most, 0.9);
  EXPECT_GT(corners.size(), 950u);
  const Box strip = random_resized_crop({1, 2, 3}, 10, 1000);  // no attempt fits: centred, 4:3
  EXPECT_LE(strip.width, 14);
}

bool flipped(const AugmentKey& key) {
  Crop crop{};
  random_flips(key, {.hflip = 0.5}, crop);
  return crop.flip;
}

TEST(Augment, ChoicesFollowSeedEpochAndIndex) {
  const AugmentKey keys[] = {{1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}};
  std::set<double> widths;
  std::set<std::vector<bool>> flips;
  for (const AugmentKey& key : keys) {
    widths.insert(random_resized_crop(key, 3000, 3000).width);
    std::vector<bool> row;
    for (uint32_t i = 0; i < 20; ++i)
      row.push_back(flipped({key.seed, key.epoch, 100 * key.index + i}));
    flips.insert(row);
  }
  EXPECT_EQ(widths.size(), 4u);
  EXPECT_EQ(flips.size(), 4u);
}

TEST(Augment, PaddedCropsTakeEveryPlace) {
  std::map<int, int> tops, lefts;
  int flips = 0;
  for (uint32_t i = 0; i < 9000; ++i) {
    const AugmentKey key{.seed = 1, .epoch = 0, .index = i};
    const Window at = random_window(key, 32, 32, 32, {.train = TrainCrop::padded});
    ++tops[at.top], ++lefts[at.left];
    flips += flipped(key);
  }
  for (const auto* places : {&tops, &lefts}) {
    ASSERT_EQ(places->size(), 9u);
    EXPECT_EQ(places->begin()->first, -4);
    for (const auto& [place, count] : *places) EXPECT_NEAR(count, 1000, 150);
  }
  EXPECT_NEAR(flips, 4500, 200);
}

TEST(Loader, OrderIsAPermutationOfEachEpoch) {
  const auto a = epoch_order(1, 0, 1000), b = epoch_order(1, 1, 1000);
  EXPECT_NE(a, b);
  EXPECT_NE(a, epoch_order(2, 0, 1000));
  auto sorted = a;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_EQ(sorted[i], i);
}

TEST(Loader, AnEpochBeginsWithWhatTheOneBeforeLeftOut) {
  for (const auto& [images, batch] : {std::pair{110, 16}, {15, 8}, {7, 4}, {500, 64}, {64, 64}}) {
    const int left = images % batch;
    std::vector<uint32_t> before = epoch_order(3, 0, images, left);
    EXPECT_EQ(before, epoch_order(3, 0, images));
    for (int epoch = 1; epoch < 12; ++epoch) {
      const std::vector<uint32_t> order = epoch_order(3, epoch, images, left);
      EXPECT_TRUE(std::is_permutation(order.begin(), order.begin() + left, before.end() - left));
      EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), before.begin()));
      const std::set<uint32_t> again(order.end() - left, order.end());
      for (int i = images - left; i < images; ++i) EXPECT_FALSE(again.contains(before[i]));
      EXPECT_EQ(order == epoch_order(3, epoch, images), left == 0);
      before = order;
    }
  }
}

// Compares shown()'s description of a row with the row itself.
TEST_F(Photos, TheShownPartIsWhatARowHolds) {
  const auto row_of = [&](const LoaderOptions& o, int64_t index) {
    Preprocessor preprocessor(*sets_.train, o, true);
    std::vector<uint8_t> pixels(3 * 16 * 16);
    Crop crop;
    Resizer resizer;
    preprocessor.run(index, 4, resizer, {.pixels = pixels.data(), .crop = crop, .ops = {}});
    return pixels;
  };
  const auto resized = [&](const LoaderOptions& o, int64_t index) {
    std::vector<uint8_t> pixels(3 * 16 * 16);
    Resizer().run(sets_.train->image(index, 0), Preprocessor(*sets_.train, o, true).shown(index, 4),
                  16, 16, pixels.data());
    return pixels;
  };
  options_.augment = {};
  for (int64_t index = 0; index < sets_.train->size(); ++index) {
    LoaderOptions o = options_;
    EXPECT_EQ(row_of(o, index), resized(o, index));
    o.crop.train = TrainCrop::none;
    for (const CropMode mode : {CropMode::center, CropMode::squash}) {
      o.crop.mode = mode;
      o.crop.pct = mode == CropMode::squash ? 0.8 : 1;
      EXPECT_EQ(row_of(o, index), resized(o, index));
    }
  }
  // 50 x 31 becomes 16 wide and 9.92 high, rounded to 10; the image is in the middle of a square.
  LoaderOptions o = options_;
  const auto wide = [&] {
    int64_t index = 0;
    while (sets_.train->image(index, 0).width != 50) ++index;
    return index;
  }();
  const Image image = sets_.train->image(wide, 0);
  o.crop = {.train = TrainCrop::none, .mode = CropMode::border};
  const Box border = Preprocessor(*sets_.train, o, true).shown(wide, 4);
  EXPECT_DOUBLE_EQ(border.width, 50);
  EXPECT_DOUBLE_EQ(border.left, 0);
  const double high = std::lround(16.0 * image.height / 50);
  EXPECT_DOUBLE_EQ(border.height, 16 * image.height / high);
  EXPECT_DOUBLE_EQ(border.top, -std::floor((16 - high) / 2) * image.height / high);
  // A frame of 4 around the scaled image; the window may include parts of both.
  o.crop = {.train = TrainCrop::padded, .padding = 4};
  const Window w = random_window({5, 4, uint32_t(wide)}, 16, 16, 16, o.crop);
  const Box padded = Preprocessor(*sets_.train, o, true).shown(wide, 4);
  const double scale = image.height / 16.0;
  EXPECT_DOUBLE_EQ(padded.top, w.top * scale);
  EXPECT_DOUBLE_EQ(padded.left, (50 - image.height) / 2.0 + w.left * scale);
  EXPECT_DOUBLE_EQ(padded.height, image.height);
}

TEST_F(Photos, AnyNumberOfWorkersAndAnyCacheGiveTheSameBatches) {
  const auto expected = batches(*sets_.train, options_, true, 0, 0, 12);
  EXPECT_NE(expected[0], expected[1]);
  for (const int workers : {2, 5})
    for (const size_t cache : {size_t{0}, size_t{20000}, size_t{1} << 30})
      for (const int prefetch : {1, 4}) {
        LoaderOptions o = options_;
        o.workers = workers, o.cache_bytes = cache, o.prefetch = prefetch;
        EXPECT_EQ(batches(*sets_.train, o, true, 0, 0, 12), expected);
      }
}

TEST_F(Photos, AnyRestartGivesTheSameBatches) {
  const auto expected = batches(*sets_.train, options_, true, 0, 0, 12);  // 4 batches per epoch
  int flips = 0;
  for (int b = 0; b < 12; ++b)
    for (int i = 0; i < 4; ++i) {
      const uint32_t index = epoch_order(5, b / 4, sets_.train->size())[b % 4 * 4 + i];
      EXPECT_EQ(expected[b].labels[i], sets_.train->label(index));
      flips += expected[b].crops[3 * i + 2];
    }
  EXPECT_NEAR(flips, 24, 15);
  LoaderOptions o = options_;
  o.workers = 3;
  Loader loader(*sets_.train, o, true);
  ASSERT_EQ(loader.batches_per_epoch(), 4);
  for (const int first : {7, 0, 4, 11}) {
    loader.start(first / 4, first % 4);
    for (int i = first; i < std::min(first + 3, 12); ++i)
      EXPECT_EQ(copy(loader.next(), o), expected[i]) << first << " " << i;
  }
  loader.start(0, 0);  // and destroyed while batches are being prepared
}

TEST_F(Photos, WhatIsLeftOutComesNextAfterAnyRestart) {
  options_.local_batch = 8, options_.left_over_first = true;
  ASSERT_EQ(sets_.train->size(), 18);
  const auto expected = batches(*sets_.train, options_, true, 0, 0, 8);
  for (int b = 0; b < 8; ++b) {
    const std::vector<uint32_t> order = epoch_order(5, b / 2, 18, 2);
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(expected[b].labels[i], sets_.train->label(order[b % 2 * 8 + i]));
    EXPECT_EQ(batches(*sets_.train, options_, true, b / 2, b % 2, 1)[0], expected[b]);
    for (const int rank : {0, 1}) {
      LoaderOptions o = options_;
      o.local_batch = 4, o.rank = rank, o.ranks = 2;
      const Copy share = batches(*sets_.train, o, true, b / 2, b % 2, 1)[0];
      EXPECT_TRUE(std::ranges::equal(share.labels,
                                     std::span(expected[b].labels).subspan(size_t(4 * rank), 4)));
    }
  }
}

TEST_F(Photos, RanksShareTheBatch) {
  LoaderOptions whole = options_;
  whole.local_batch = 6;
  const auto expected = batches(*sets_.train, whole, true, 3, 1, 3);
  for (const int ranks : {2, 3})
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderOptions o = options_;
      o.local_batch = 6 / ranks, o.rank = rank, o.ranks = ranks;
      const auto share = batches(*sets_.train, o, true, 3, 1, 3);
      for (int b = 0; b < 3; ++b)
        for (int i = 0; i < o.local_batch; ++i) {
          const int at = rank * o.local_batch + i;
          EXPECT_EQ(share[b].position + i, expected[b].position + at);
          EXPECT_EQ(share[b].labels[i], expected[b].labels[at]);
          EXPECT_EQ(share[b].crops[3 * i + 2], expected[b].crops[3 * at + 2]);
          const size_t length = expected[b].ops.size() / 6;
          ASSERT_EQ(length, 8u * 5);
          EXPECT_TRUE(std::equal(&share[b].ops[i * length], &share[b].ops[i * length] + length,
                                 &expected[b].ops[at * length]));
          EXPECT_TRUE(std::equal(&share[b].images[i * 768], &share[b].images[i * 768] + 768,
                                 &expected[b].images[at * 768]));
        }
    }
}

TEST_F(Photos, RanksMixTheSamePairs) {
  for (const MixMode mode : {MixMode::batch, MixMode::pair, MixMode::elem}) {
    LoaderOptions whole = options_;
    whole.mixing = {.mixup = 0.8, .cutmix = 1, .mode = mode, .off_epoch = 5};
    whole.local_batch = 8;
    const auto expected = batches(*sets_.train, whole, true, 3, 1, 4);  // 2 per epoch
    ASSERT_EQ(expected[0].mixes.size(), 40u);
    for (const int ranks : {2, 4})
      for (int rank = 0; rank < ranks; ++rank) {
        LoaderOptions o = whole;
        o.local_batch = 8 / ranks, o.rank = rank, o.ranks = ranks;
        const auto share = batches(*sets_.train, o, true, 3, 1, 4);
        for (size_t b = 0; b < 4; ++b) {
          const auto begin = expected[b].mixes.begin() + rank * o.local_batch * 5;
          EXPECT_TRUE(std::ranges::equal(share[b].mixes,
                                         std::vector<float>(begin, begin + o.local_batch * 5)));
        }
      }
    // The first row of batch 1 of epoch 3 is position 8.
    const Mix first = draw_mix(whole.mixing, {options_.seed, 3, 8, 8}, options_.image_size);
    EXPECT_EQ(expected[0].mixes[0], first.lambda);
    EXPECT_EQ(expected[0].mixes[4], first.right);
    EXPECT_EQ(expected[3].mixes[0], 1);  // epoch 5
    EXPECT_TRUE(batches(*sets_.train, whole, false, 0, 0, 1)[0].mixes.empty());
  }
}

TEST_F(Photos, EvaluationHasEveryImageOnce) {
  const Dataset& data = *sets_.train;  // 18 images
  std::vector<int> expected;
  for (int64_t i = 0; i < data.size(); ++i) expected.push_back(data.label(i));
  for (const int ranks : {1, 2, 3, 4})
    for (const int local_batch : {1, 2, 5, 50}) {
      std::vector<int> labels;
      for (int rank = 0; rank < ranks; ++rank) {
        LoaderOptions o = options_;
        o.local_batch = local_batch, o.rank = rank, o.ranks = ranks, o.workers = 2, o.prefetch = 1;
        Loader loader(data, o, false);
        const int64_t share = (data.size() + ranks - 1) / ranks;
        EXPECT_EQ(loader.batches_per_epoch(), (share + local_batch - 1) / local_batch);
        for (const bool again : {false, true}) {
          loader.start(0, 0);
          for (int64_t b = 0; b < loader.batches_per_epoch(); ++b) {
            const Copy batch = copy(loader.next(), o);
            const auto rest = batch.images.begin() + 768 * batch.count;
            EXPECT_EQ(std::count(rest, batch.images.end(), 0), batch.images.end() - rest);
            const auto last = batch.labels.begin() + batch.count;
            EXPECT_EQ(std::count(last, batch.labels.end(), -1), batch.labels.end() - last);
            if (!again) labels.insert(labels.end(), batch.labels.begin(), last);
          }
        }
      }
      EXPECT_EQ(labels, expected);
    }
}

TEST_F(Photos, EvaluationKeepsTheMiddle) {
  LoaderOptions o = options_;
  o.local_batch = 1;
  const Image image = sets_.val->image(0, 0);
  std::vector<uint8_t> expected(768);
  const Box middle = centre_crop(image.height, image.width, 16).from;
  EXPECT_EQ(middle.height, std::min(image.height, image.width));
  Resizer().run(image, middle, 16, 16, expected.data());
  const Copy batch = batches(*sets_.val, o, false, 0, 0, 1)[0];
  EXPECT_EQ(batch.images, expected);
  EXPECT_EQ(batch.crops, (std::vector<int>{0, 0, 0}));
  o.crop = {};  // the same when training without augmentation
  Loader loader(*sets_.val, o, true);
  loader.start(0, 0);
  std::set<std::vector<uint8_t>> seen;
  for (int64_t i = 0; i < sets_.val->size(); ++i) seen.insert(copy(loader.next(), o).images);
  EXPECT_TRUE(seen.contains(expected));
}

TEST_F(Photos, BadImageEndsTheRunNamingTheFile) {
  const std::string path = sets_.train->name(5);
  damage(path);
  EXPECT_EQ(error_of<DataError>([&] { batches(*sets_.train, options_, true, 0, 0, 4); }),
            path +
                ": PNM data is cut off (--on-bad-image skip skips such files; once they are "
                "deleted, the run "
                "can't be resumed)");
}

TEST_F(Photos, OutOfMemoryNamesTheFile) {
  struct Greedy : Dataset {
    int64_t size() const override { return 8; }
    int label(int64_t) const override { return 0; }
    Image image(int64_t, int) const override { throw std::bad_alloc(); }
    std::string name(int64_t) const override { return "huge.jpg"; }
  };
  options_.skip_bad_images = true;
  EXPECT_EQ(error_of<MachineError>([&] { batches(Greedy(), options_, false, 0, 0, 1); }),
            "huge.jpg: Cannot allocate memory; use fewer --workers, a smaller --cache-mb, or fewer "
            "processes (-n)");
}

// Decoding of the current image completes, and no other is started.
TEST_F(Photos, AWaitForABatchCanBeGivenUp) {
  struct Slow : Dataset {
    int64_t size() const override { return 8; }
    int label(int64_t) const override { return 0; }
    Image image(int64_t, int) const override {
      ++decoded;
      begun = true;
      begun.notify_all();
      free.wait(false);
      return black_image(20, 20);
    }
    std::string name(int64_t) const override { return "slow.jpg"; }
    mutable std::atomic<int> decoded = 0;
    mutable std::atomic<bool> begun = false;
    std::atomic<bool> free = false;
  } slow;
  Loader loader(slow, options_, false);
  loader.start(0, 0);
  EXPECT_EQ(loader.next_unless([&] {
    slow.begun.wait(false);
    return true;
  }),
            nullptr);
  EXPECT_EQ(slow.decoded, 1);
  slow.free = true;
  slow.free.notify_all();
  loader.start(0, 0);
  const Batch* const batch = loader.next_unless([] { return false; });
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->count, options_.local_batch);
}

TEST_F(Photos, SkippedImageIsReplacedInTrainingAndLeftOutInEvaluation) {
  const auto before = batches(*sets_.train, options_, true, 0, 0, 4);
  const std::string path = sets_.train->name(5);
  damage(path);
  damage(sets_.val->name(1));
  options_.skip_bad_images = true;
  std::string told;
  options_.warn = [&](const std::string& line) { told += line + "\n"; };
  const auto order = epoch_order(5, 0, sets_.train->size());
  std::vector<Copy> first;
  for (const int workers : {1, 3}) {
    options_.workers = workers;
    Loader loader(*sets_.train, options_, true);
    loader.start(0, 0);
    std::vector<Copy> after;
    for (int b = 0; b < 4; ++b) {
      after.push_back(copy(loader.next(), options_));
      for (int i = 0; i < 4; ++i) {
        EXPECT_GE(after[b].labels[i], 0);
        const bool same = std::equal(&after[b].images[768 * i], &after[b].images[768 * i] + 768,
                                     &before[b].images[768 * i]);
        EXPECT_EQ(same, order[4 * b + i] != 5);
      }
    }
    EXPECT_EQ(loader.bad_images(), std::vector<int64_t>{5});
    if (workers == 1) first = after;
    EXPECT_EQ(after, first);
  }
  const std::string line = "skipped bad image " + path + ": PNM data is cut off\n";
  EXPECT_EQ(told, line + line);
  options_.known_bad = {5};
  EXPECT_EQ(batches(*sets_.train, options_, true, 0, 0, 4), first);
  EXPECT_EQ(told, line + line);
  options_.known_bad = {};

  const auto val = batches(*sets_.val, options_, false, 0, 0, 1);
  EXPECT_EQ(val[0].labels, (std::vector<int>{0, -1, 2, -1}));
  EXPECT_EQ(val[0].count, 3);
}

TEST_F(Photos, StandInBringsItsOwnLabel) {
  for (int64_t i = 0; i < sets_.train->size(); ++i)
    if (sets_.train->label(i) == 0) damage(sets_.train->name(i));
  options_.skip_bad_images = true;
  for (const Copy& batch : batches(*sets_.train, options_, true, 0, 0, 4))
    for (const int label : batch.labels) EXPECT_GT(label, 0);
}

TEST_F(Photos, NothingToStandInIsAnError) {
  for (int64_t i = 0; i < sets_.train->size(); ++i) damage(sets_.train->name(i));
  options_.skip_bad_images = true;
  EXPECT_THROW(batches(*sets_.train, options_, true, 0, 0, 1), DataError);
}

TEST(Loader, CifarIsCroppedByTheDevice) {
  TemporaryFolder folder;
  write_file(folder / "data_batch_1.bin", cifar_records(40, 0));
  write_file(folder / "test_batch.bin", cifar_records(3, 0));
  const DataSets sets = open_dataset({.path = folder.path()});
  LoaderOptions o{.kind = sets.kind,
                  .image_size = 32,
                  .local_batch = 40,
                  .crop = {.train = TrainCrop::padded, .hflip = 0.5},
                  .workers = 2};
  const Copy batch = batches(*sets.train, o, true, 0, 0, 1)[0];
  const auto order = epoch_order(0, 0, 40);
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(batch.labels[i], int(order[i] % 10));
    const Image image = sets.train->image(order[i], 0);
    EXPECT_TRUE(std::equal(image.pixels.begin(), image.pixels.end(), &batch.images[3072 * i]));
    const AugmentKey key{.seed = 0, .epoch = 0, .index = order[i]};
    const Window at = random_window(key, 32, 32, 32, o.crop);
    EXPECT_EQ(batch.crops[3 * i], at.top);
    EXPECT_EQ(batch.crops[3 * i + 1], at.left);
    EXPECT_EQ(batch.crops[3 * i + 2], flipped(key));
  }
  o.crop = {};
  EXPECT_EQ(batches(*sets.train, o, true, 0, 0, 1)[0].crops, std::vector<int>(120));
}

TEST(Loader, SyntheticEpochsAreAThousandBatches) {
  const DataSets sets = open_dataset({.path = "synthetic", .image_size = 8});
  const LoaderOptions o{.kind = sets.kind, .image_size = 8, .local_batch = 3, .ranks = 2};
  Loader loader(*sets.train, o, true);
  EXPECT_EQ(loader.batches_per_epoch(), 1000);
  loader.start(0, 998);
  for (const uint32_t position : {998 * 6, 999 * 6, 0, 6})
    EXPECT_EQ(loader.next().position, position);
}

TEST(Loader, CacheKeepsAllOrNothing) {
  const auto any = [](int, int) { return DecodeRequest{}; };
  const auto view = [&] {
    return std::make_shared<const View>(whole_view(black_image(10, 10), any));
  };
  ViewCache cache(1500);
  cache.add(1, view());
  cache.add(1, view());
  cache.add(2, view());
  EXPECT_TRUE(cache.find(1, any));
  EXPECT_FALSE(cache.find(3, any));
  EXPECT_TRUE(cache.open());
  cache.add(3, view());
  cache.add(4, view());
  EXPECT_FALSE(cache.find(1, any));
  EXPECT_FALSE(cache.open());
  EXPECT_EQ(cache.bytes(), 0u);
}

}  // namespace
}  // namespace bv::test
