// preview: its files agree with each other, and are the same for any number of processes.
// tests/kernels/augment_test.cpp checks that the operations are torchvision's.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <regex>

#include "base/json.h"
#include "base/text.h"
#include "data/decode/decode.h"
#include "data/loader.h"
#include "kernels/devices/devices.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

// All files below a folder, by name.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), folder).string()] = contents(entry.path().string());
  return files;
}

const Json& member(const Json& object, const std::string& key) { return object.at(key); }
double number(const Json& value) { return value; }
double number(const Json& object, const std::string& key) { return number(member(object, key)); }
std::vector<double> numbers(const Json& list) {
  std::vector<double> values;
  for (const Json& item : list) values.push_back(number(item));
  return values;
}

DrawnOperation operation(const Json& op) {
  for (int i = 0; i <= int(Operation::erase); ++i)
    if (name_of(Operation(i)) == scalar_text(member(op, "name")))
      return {.operation = Operation(i), .magnitude = number(op, "magnitude")};
  throw std::out_of_range(scalar_text(member(op, "name")));
}

class Preview : public ProgramTest {
 protected:
  Preview() { make_cifar(in("cifar")); }

  std::vector<Json> lines(const std::string& out) const {
    std::vector<Json> objects;
    std::vector<std::string> text = split(contents(in(out + "/batch.jsonl")), '\n');
    EXPECT_EQ(text.back(), "");
    text.pop_back();
    for (const std::string& line : text) objects.push_back(parse_json_object(line, "batch.jsonl"));
    return objects;
  }
  static std::string file_of(const std::string& kind, int64_t n) {
    char name[16];
    std::snprintf(name, sizeof name, "/%05d.png", int(n));
    return kind + name;
  }
  Image picture(const std::string& out, const std::string& kind, int64_t n) const {
    return decode_image(read_file(in(out + "/" + file_of(kind, n)), 1 << 20), 0);
  }
  // Applies the augmentation described by a line to the picture in before/.
  Image augmented(Image image, const Json& line, const Augmentation& a) const {
    const auto backend = make_backend(DeviceKind::cpu, {.index = 0, .threads = 1});
    const int size = image.width;
    std::vector<DrawnOperation> all;
    for (const Json& op : member(line, "ops")) all.push_back(operation(op));
    if (const std::vector<double> box = numbers(member(line, "erase")); !box.empty())
      all.push_back({.operation = Operation::erase, .box = {box[0], box[1], box[2], box[3]}});
    const DeviceMemory from(*backend, image.pixels.size()), to(*backend, image.pixels.size());
    for (const DrawnOperation& drawn : all) {
      const ImageOp op = image_op(a, drawn, size);
      backend->to_device(from.data(), image.pixels.data(), image.pixels.size(), nullptr);
      const DeviceMemory ops(*backend, sizeof op);
      backend->to_device(ops.data(), &op, sizeof op, nullptr);
      backend->kernels().run(
          AugmentImages{
              .out = to.data<uint8_t>(),
              .images = from.data<uint8_t>(),
              .crops = nullptr,
              .ops = ops.data<ImageOp>(),
              .shape =
                  {.B = 1, .height = size, .width = size, .size = size, .layer = 0, .layers = 1}},
          nullptr);
      backend->synchronize(nullptr);
      std::copy_n(to.data<uint8_t>(), image.pixels.size(), image.pixels.begin());
    }
    return image;
  }
  // Mixes the picture in after/ as described by the line's "mix".
  Image mixed(const std::string& out, int64_t n, const Json& line) const {
    Image image = picture(out, "after", n);
    const Json& how = member(line, "mix");
    const double lambda = number(how, "lambda");
    const Image partner = picture(out, "after", int64_t(number(how, "partner")));
    const std::vector<double> box = numbers(member(how, "box"));
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x)
        for (int c = 0; c < 3; ++c) {
          const auto at = size_t(3 * (y * image.width + x) + c);
          const bool inside = !box.empty() && y >= box[0] && y < box[0] + box[2] && x >= box[1] &&
                              x < box[1] + box[3];
          const double own = box.empty() ? lambda : inside ? 0 : 1;
          image.pixels[at] =
              uint8_t(std::lround(own * image.pixels[at] + (1 - own) * partner.pixels[at]));
        }
    return image;
  }
  // The page shows each image's pictures once, in their order, from files that exist.
  void expect_page_shows(const std::string& out, size_t count,
                         const std::vector<std::string>& kinds) const {
    const std::string page = contents(in(out + "/preview.html"));
    std::vector<std::string> shown, expected;
    static const std::regex source("src=\"([^\"]*)\"");
    for (std::sregex_iterator at(page.begin(), page.end(), source), end; at != end; ++at)
      shown.push_back((*at)[1]);
    for (size_t i = 0; i < count; ++i)
      for (const std::string& kind : kinds) {
        expected.push_back(file_of(kind, int64_t(i)));
        EXPECT_TRUE(fs::exists(in(out + "/" + expected.back())));
      }
    EXPECT_EQ(shown, expected);
  }
  void expect_refused(const std::string& words, const std::string& line) const {
    const auto before = files_in(folder_.path());
    const Finished end = refuse("preview " + words);
    EXPECT_EQ(end.code, 2) << words;
    EXPECT_EQ(end.errors, line + "\n") << words;
    EXPECT_TRUE(files_in(folder_.path()) == before) << words;
  }
  const std::string words_ = "preview " + on_vit + "--data cifar --batch 8 --seed 3 ";
  const std::string strong_ =
      "--auto-augment ra --ra-magnitude 12 --color-jitter .3,.2,.1,.1 --random-erase .5 ";
};

TEST_F(Preview, ShowsTheImagesOfTheEpochInTheirOrder) {
  go(words_ + strong_ + "--epoch 3 --count 19 --out out --label-smoothing .1");
  const std::vector<Json> all = lines("out");
  ASSERT_EQ(all.size(), 19u);
  const std::vector<uint32_t> order = epoch_order(3, 2, 44, 44 % 8);
  const auto records = cifar_records(44, 0);
  for (size_t i = 0; i < all.size(); ++i) {
    const Json& line = all[i];
    std::string keys;
    for (const auto& [key, value] : line.items()) keys += key + " ";
    EXPECT_EQ(keys, "index path epoch crop flip ops erase mix target ");
    const uint32_t index = order[i];
    EXPECT_EQ(number(line, "index"), index);
    EXPECT_EQ(number(line, "epoch"), 3);
    EXPECT_TRUE(has(scalar_text(member(line, "path")), "data_batch_1.bin"))
        << scalar_text(member(line, "path"));
    EXPECT_TRUE(member(line, "mix").is_null());
    const std::vector<double> target = numbers(member(line, "target"));
    ASSERT_EQ(target.size(), 10u);
    for (size_t k = 0; k < 10; ++k)
      EXPECT_NEAR(target[k], k == index % 10 ? .91 : .01, 1e-8) << index;

    const Json& crop = member(line, "crop");
    EXPECT_EQ(number(crop, "height"), 32);
    EXPECT_EQ(number(crop, "width"), 32);
    const int top = int(number(crop, "top")), left = int(number(crop, "left"));
    const bool flip = member(line, "flip").get<bool>();
    const Image before = picture("out", "before", int64_t(i));
    ASSERT_EQ(before.pixels.size(), 3072u);
    for (int y = 0; y < 32; ++y)
      for (int x = 0; x < 32; ++x)
        for (int c = 0; c < 3; ++c) {
          const int row = y + top, column = (flip ? 31 - x : x) + left;
          const bool inside = row >= 0 && row < 32 && column >= 0 && column < 32;
          const int expected =
              inside ? records[3073 * index + 1 + size_t(1024 * c + 32 * row + column)] : 0;
          ASSERT_EQ(before.pixels[size_t(3 * (32 * y + x) + c)], expected) << i;
        }
    EXPECT_EQ(augmented(before, line, {.mean_color = {128, 128, 128}}).pixels,
              picture("out", "after", int64_t(i)).pixels)
        << i;
    EXPECT_EQ(picture("out", "mixed", int64_t(i)).pixels,
              picture("out", "after", int64_t(i)).pixels);
  }
  expect_page_shows("out", all.size(), {"before", "after"});
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"cifar", "out"}));
}

TEST_F(Preview, MixesAnImageWithItsPartner) {
  go(words_ + strong_ +
     "--mixup .8 --cutmix 1 --mixup-mode pair --count 33 --out out "
     "--label-smoothing .1");
  const std::vector<Json> all = lines("out");
  const std::vector<uint32_t> order = epoch_order(3, 0, 44, 44 % 8);
  int boxes = 0;
  for (size_t n = 0; n < all.size(); ++n) {
    const Json& how = member(all[n], "mix");
    EXPECT_EQ(number(how, "partner"), n ^ 1);
    const double lambda = number(how, "lambda");
    const std::vector<double> target = numbers(member(all[n], "target"));
    for (size_t k = 0; k < 10; ++k) {
      const double part = lambda * (order[n] % 10 == k) + (1 - lambda) * (order[n ^ 1] % 10 == k);
      EXPECT_NEAR(target[k], .9 * part + .01, 1e-6) << n;
    }
    if (n + 1 == all.size()) break;  // its partner isn't shown
    EXPECT_EQ(member(all[n ^ 1], "mix").at("lambda"), member(how, "lambda"));
    const Image expected = mixed("out", int64_t(n), all[n]);
    const Image shown = picture("out", "mixed", int64_t(n));
    for (size_t i = 0; i < expected.pixels.size(); ++i)
      ASSERT_LE(std::abs(expected.pixels[i] - shown.pixels[i]), 1) << n;
    const std::vector<double> box = numbers(member(how, "box"));
    if (box.empty()) continue;
    ++boxes;
    EXPECT_NEAR(lambda, 1 - box[2] * box[3] / 1024, 1e-6);
  }
  expect_page_shows("out", all.size(), {"before", "after", "mixed"});
  EXPECT_GT(boxes, 4);
  EXPECT_LT(boxes, 28);
}

TEST_F(Preview, IsTheSameForAnyNumberOfProcesses) {
  const std::string words = words_ + strong_ + "--mixup .4 --cutmix .4 ";
  go(words + "--out one");
  const auto one = files_in(in("one"));
  EXPECT_EQ(one.size(), 3 * 16 + 2u);
  for (const std::string n : {"2", "4"}) {
    go(words + "-n " + n + " --out some" + n);
    EXPECT_TRUE(files_in(in("some" + n)) == one) << n;
  }
  go(words + "--workers 3 --device simt --precision bf16 --out own");
  EXPECT_TRUE(files_in(in("own")) == one);
  go(words + "--epoch 2 --out two");
  EXPECT_FALSE(files_in(in("two")) == one);
}

TEST_F(Preview, OfAConfigFile) {
  go(on_vit + "--data cifar --batch 8 --steps 1 --seed 3 " + strong_ + "--out run");
  go("preview --config run/config.json --out shown");
  go(words_ + strong_ + "--out asked");
  auto shown = files_in(in("shown")), asked = files_in(in("asked"));
  for (auto* files : {&shown, &asked}) files->erase("batch.jsonl");  // paths in it are absolute
  EXPECT_TRUE(shown == asked);
}

// Names come from folders of anyone's making.
TEST_F(Preview, TextOnThePageIsText) {
  make_class_folders(in("photos"), 2, 4);
  fs::rename(in("photos/class1"), in("photos/<b>&"));
  go("preview vit_tiny --image-size 16 --patch-size 16 --batch 4 --data photos --out out");
  const std::string page = contents(in("out/preview.html"));
  EXPECT_TRUE(has(page, "&lt;b&gt;&amp;<br>"));
  EXPECT_FALSE(has(page, "<b>"));
}

TEST_F(Preview, MistakesLeaveNothing) {
  const std::string words = on_vit + "--data cifar --batch 8 ";
  expect_refused(words, "preview needs --out DIR, a new folder");
  fs::create_directory(in("empty"));
  for (const std::string out : {"cifar", "cifar/", "empty", "cifar/test_batch.bin"})
    expect_refused(words + "--out " + out, "--out " + out + " exists; name a new folder");
  expect_refused(words + "--out cifar/test_batch.bin/a",
                 "--out cifar/test_batch.bin/a: can't make this folder: Not a directory");
  expect_refused(words + "--out a/b --count 0", "--count 0: must be at least 1 and at most 100000");
  expect_refused(words + "--out a/b --count 41",
                 "--count 41: an epoch has 40 images, 5 batches of 8");
  for (const std::string epoch : {"0", "-1"})
    expect_refused(words + "--out a/b --epoch " + epoch,
                   "--epoch " + epoch + ": must be at least 1 and at most 1000000");
  expect_refused(words + "--out a/b -n 3",
                 "--batch 8 is not divisible by 3 processes; 6 would fit");
  expect_refused(on_vit + "--data cifar --out a/b --mixup .2 --batch 5",
                 "--batch 5 is odd, and images are mixed in pairs; 4 would fit");
  expect_refused("vit_tiny --data nowhere --out a/b", "--data nowhere: no such folder");
  expect_refused("--resume run --out a/b",
                 "--resume: preview shows what a new run would see; --config run/config.json shows "
                 "what that run sees");
  EXPECT_FALSE(fs::exists(in("a")));
}

// Photos whose decoding fails in the middle: a bad photo is named or, with skip, replaced.
TEST_F(Preview, OfPhotosWithABadOne) {
  make_class_folders(in("photos"), 2, 9);
  fs::resize_file(in("photos/class0/4.ppm"), 2000);
  const std::string words =
      "vit_tiny --image-size 16 --patch-size 16 --batch 4 --data photos --count 16 --out out ";
  const Finished end = run("preview " + words);
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(end.errors.starts_with("photos/class0/4.ppm: ")) << end.errors;
  EXPECT_FALSE(fs::exists(in("out")));
  go("preview " + words + "--on-bad-image skip");
  for (const Json& line : lines("out"))
    EXPECT_NE(scalar_text(member(line, "path")), "photos/class0/4.ppm");
  EXPECT_EQ(lines("out").size(), 16u);
}

}  // namespace
}  // namespace bv::test
