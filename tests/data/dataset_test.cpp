// Data that open_dataset recognises, and data that it refuses.
#include "data/dataset.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "base/files/checksum.h"
#include "data/decode/decode.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

DataSets open(const std::string& path, std::vector<std::string> classes = {}, uint64_t seed = 0) {
  return open_dataset({.path = path,
                       .val_fraction = 0.25,
                       .split_seed = seed,
                       .seed = seed,
                       .classes = std::move(classes)});
}

void expect_refused(const DataOptions& options, const std::vector<std::string>& words) {
  const std::string message = error_of<DataError>([&] { open_dataset(options); });
  EXPECT_NE(message, "no error") << options.path;
  for (const std::string& word : words) EXPECT_TRUE(is_line(message, word));
}

void make_classes(const std::string& root, const std::vector<std::string>& names, int images) {
  for (const std::string& name : names)
    for (int i = 0; i < images; ++i)
      write_ppm(root + "/" + name + "/" + std::to_string(i) + ".ppm", 9, 7, i);
}

std::vector<std::string> names_of(const Dataset& data) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < data.size(); ++i) names.push_back(data.name(i));
  return names;
}

TEST(Dataset, ClassFoldersAreSplit) {
  TemporaryFolder folder;
  make_classes(folder.path(), {"dog", "ant", "cat"}, 8);
  write_text(folder / "ant/notes.txt", "no image");
  write_text(folder / "ant/.hidden.ppm", "no image");
  write_text(folder / ".git/x.ppm", "no image");
  const DataSets sets = open(folder.path() + "/");
  EXPECT_EQ(sets.kind, DataKind::photos);
  EXPECT_EQ(sets.classes, (std::vector<std::string>{"ant", "cat", "dog"}));
  ASSERT_EQ(sets.train->size(), 18);
  ASSERT_EQ(sets.val->size(), 6);
  EXPECT_EQ(sets.description,
            folder.path() +
                ", 18 train, 6 val (split by --val-fraction), 3 classes, other files ignored: 1");
  std::map<int, int> val_labels;
  for (int64_t i = 0; i < 6; ++i) ++val_labels[sets.val->label(i)];
  EXPECT_EQ(val_labels, (std::map<int, int>{{0, 2}, {1, 2}, {2, 2}}));
  const auto train = names_of(*sets.train), val = names_of(*sets.val);
  EXPECT_TRUE(std::is_sorted(train.begin(), train.end()));
  std::set<std::string> all(train.begin(), train.end());
  all.insert(val.begin(), val.end());
  EXPECT_EQ(all.size(), 24u);
  const Image image = sets.train->image(0, 0);
  EXPECT_EQ(image.width, 9);
  EXPECT_EQ(image.height, 7);

  EXPECT_EQ(names_of(*open(folder.path()).val), val);
  EXPECT_NE(names_of(*open(folder.path(), {}, 1).val), val);
}

TEST(Dataset, ClassesOption) {
  TemporaryFolder folder;
  make_classes(folder.path(), {"ant", "cat", "dog"}, 4);
  const DataSets sets = open(folder.path(), {"dog", "ant", "cat"});
  EXPECT_EQ(sets.classes[0], "dog");
  EXPECT_EQ(sets.train->label(0), 1);  // ant/...
  EXPECT_NE(sets.fingerprint, open(folder.path()).fingerprint);
  EXPECT_EQ(open(folder.path(), {"3"}).fingerprint, open(folder.path()).fingerprint);
  expect_refused({.path = folder.path(), .classes = {"4"}}, {"--classes 4", "3 classes"});
  expect_refused({.path = folder.path(), .classes = {"1"}}, {"--classes 1"});
  expect_refused({.path = folder.path(), .classes = {"ant", "cat"}}, {"'dog'"});
  expect_refused({.path = folder.path(), .classes = {"ant", "cat", "cow"}}, {"'cow'"});
  expect_refused({.path = folder.path(), .classes = {"ant", "cat", "cat"}}, {"'cat'", "twice"});
}

TEST(Dataset, FingerprintFollowsFilesAndClassesOnly) {
  TemporaryFolder a, b;
  make_classes(a.path(), {"x", "y"}, 4);
  make_classes(b.path(), {"x", "y"}, 4);
  EXPECT_EQ(open(a.path()).fingerprint, open(b.path()).fingerprint);
  write_ppm(b / "y/more.ppm", 2, 2, 0);
  EXPECT_NE(open(a.path()).fingerprint, open(b.path()).fingerprint);
}

TEST(Dataset, ContentsAreSizesTimesAndFirstBytes) {
  TemporaryFolder classes, cifar;
  make_classes(classes.path(), {"x", "y"}, 4);
  write_file(cifar / "data_batch_1.bin", cifar_records(4, 0));
  write_file(cifar / "test_batch.bin", cifar_records(2, 0));
  for (const auto& [folder, file] : {std::pair{classes.path(), open(classes.path()).train->name(1)},
                                     {cifar.path(), cifar / "test_batch.bin"}}) {
    const auto contents_of = [&] { return contents_fingerprint(open(folder)); };
    const uint64_t before = contents_of(), names = open(folder).fingerprint;
    EXPECT_EQ(contents_of(), before);
    const auto time = fs::last_write_time(file);
    std::string text = contents(file);
    text[20] = static_cast<char>(~text[20]);
    write_text(file, text);
    fs::last_write_time(file, time);
    const uint64_t changed = contents_of();
    EXPECT_NE(changed, before);
    fs::last_write_time(file, time + std::chrono::seconds(1));
    EXPECT_NE(contents_of(), changed);
    EXPECT_EQ(open(folder).fingerprint, names);
  }
  EXPECT_EQ(contents_fingerprint(open("")), 0u);
  EXPECT_EQ(contents_fingerprint(open("synthetic")), 0u);
}

// Reading a pipe with an image's name might never end, so anything but a regular file is a bad
// image.
TEST(Dataset, ReadsRegularFilesAlone) {
  TemporaryFolder folder;
  make_classes(folder.path(), {"x", "y"}, 4);
  mkfifo((folder / "x/pipe.png").c_str(), 0600);
  fs::create_symlink("/dev/zero", folder / "y/zero.png");
  fs::create_symlink("..", folder / "y/above");
  fs::create_symlink("nowhere", folder / "y/nothing.png");
  const DataSets sets = open(folder.path());
  EXPECT_EQ(sets.train->size() + sets.val->size(), 11);
  EXPECT_EQ(find_bad_images(sets, [](int64_t) {}).count(), 3);
}

TEST(Dataset, TrainAndVal) {
  for (const std::string val : {"val", "validation"}) {
    TemporaryFolder folder;
    make_classes(folder / "train", {"bus", "car"}, 3);
    make_classes(folder / val, {"bus", "car"}, 2);
    const DataSets sets = open(folder.path());
    EXPECT_EQ(sets.train->size(), 6);
    EXPECT_EQ(sets.val->size(), 4);
    make_classes(folder / val, {"van"}, 1);
    expect_refused({.path = folder.path()}, {"different classes", "'van'"});
  }
  TemporaryFolder half;
  make_classes(half / "train", {"bus", "car"}, 3);
  const DataSets sets = open(half.path());  // split like class folders
  EXPECT_EQ(sets.train->size(), 4);
  EXPECT_EQ(sets.val->size(), 2);
  EXPECT_TRUE(has(sets.description, "(split by --val-fraction)"));
  TemporaryFolder vehicles;  // with a class named "train"
  make_classes(vehicles.path(), {"train", "bus"}, 3);
  EXPECT_EQ(open(vehicles.path()).classes, (std::vector<std::string>{"bus", "train"}));
}

// Names used by labelling tools.
TEST(Dataset, PartsByOtherNames) {
  const auto parts = [](const std::string& train, const std::string& val) {
    TemporaryFolder folder;
    make_classes(folder / train, {"bus", "car"}, 3);
    make_classes(folder / val, {"bus", "car"}, 2);
    const DataSets sets = open(folder.path());
    EXPECT_EQ(sets.classes, (std::vector<std::string>{"bus", "car"})) << train << " " << val;
    EXPECT_EQ(sets.val->size(), 4);
    return sets.description;
  };
  parts("Train", "Val");
  parts("training", "valid");
  EXPECT_FALSE(has(parts("TRAIN", "Validation"), "(of"));
  EXPECT_TRUE(has(parts("train", "test"), "4 val (of test/), 2 classes"));
  TemporaryFolder three;
  make_classes(three / "train", {"bus", "car"}, 3);
  make_classes(three / "test", {"bus", "car"}, 1);
  make_classes(three / "valid", {"bus", "car"}, 2);
  EXPECT_EQ(open(three.path()).val->size(), 4);
  const std::string kinds = ", 2 classes";
  EXPECT_TRUE(has(open(three.path()).description, "4 val (of valid/; test/ isn't used)" + kinds));
  EXPECT_TRUE(has(open_dataset({.path = three.path(), .val = three / "test/"}).description,
                  "2 val (of test/; valid/ isn't used)" + kinds));
  make_classes(three / "Val", {"bus", "car"}, 3);
  EXPECT_TRUE(
      has(open(three.path()).description, "6 val (of Val/; test/, valid/ aren't used)" + kinds));
}

TEST(Dataset, ValidationImagesOfAnotherFolder) {
  TemporaryFolder train, val;
  make_classes(train.path(), {"bus", "car"}, 3);
  make_classes(val.path(), {"bus", "car"}, 2);
  const DataSets sets = open_dataset({.path = train.path(), .val = val.path()});
  EXPECT_EQ(sets.train->size(), 6);
  EXPECT_EQ(sets.val->size(), 4);
  EXPECT_EQ(sets.val->name(0), val / "bus/0.ppm");
  EXPECT_EQ(sets.val->image(0, 0).width, 9);
  expect_refused({.path = train.path(), .val = val / "nowhere"}, {"nowhere", "no such folder"});
  expect_refused({.path = "", .val = val.path()}, {"--val", "class folders"});
  TemporaryFolder split;
  make_classes(split / "train", {"bus", "car"}, 3);
  const std::string has_parts = "--val " + split.path() + ": has ";
  expect_refused({.path = train.path(), .val = split.path()},
                 {has_parts + "train/ with class folders in it; give --val " + (split / "train")});
  make_classes(split / "Val", {"bus", "car"}, 2);
  expect_refused({.path = train.path(), .val = split.path() + "/"},
                 {has_parts + "Val/ with class folders in it; give --val " + (split / "Val")});
}

// The split depends on file names and not on --seed: few files change parts when others are added
// or removed.
TEST(Dataset, ASplitIsOfFileNames) {
  TemporaryFolder folder;
  make_classes(folder.path(), {"bus", "car"}, 40);
  const auto val_of = [&] { return names_of(*open(folder.path()).val); };
  const auto before = val_of();
  EXPECT_EQ(names_of(*open_dataset({.path = folder.path(), .val_fraction = .25, .seed = 9}).val),
            before);
  write_ppm(folder / "bus/new.ppm", 9, 7, 1);
  fs::remove(folder / "car/7.ppm");
  size_t moved = 0;
  for (const std::string& name : val_of()) moved += std::ranges::find(before, name) == before.end();
  EXPECT_LE(moved, 2u);
}

TEST(Dataset, ImagesOfOtherFormatsAreMissed) {
  TemporaryFolder folder;
  make_classes(folder.path(), {"bus", "car"}, 3);
  for (const char* file : {"bus/a.webp", "bus/b.WEBP", "car/c.heic", "car/notes.txt"})
    write_text(folder / file, "x");
  fs::rename(folder / "bus/0.ppm", folder / "bus/0.JFIF");
  const DataSets sets = open(folder.path());
  EXPECT_EQ(sets.train->size() + sets.val->size(), have_webp ? 8 : 6);
  EXPECT_EQ(sets.left_out, have_webp ? "1 .heic" : "1 .heic, 2 .webp");
  const std::string find = "find -L " + folder.path() + " ";
  const std::string convert = " -exec mogrify -format jpg {} +";
  EXPECT_EQ(sets.left_out_advice, have_webp ? find + "-iname '*.heic'" + convert
                                            : find + "\\( -iname '*.heic' -o -iname '*.webp' \\)" +
                                                  convert + ", or make deps && make");
  EXPECT_TRUE(has(sets.description, "other files ignored: 1"));
}

TEST(Dataset, RefusedFolders) {
  expect_refused({.path = "/no/such/folder"}, {"/no/such/folder", "no such folder"});
  TemporaryFolder folder;
  expect_refused({.path = folder.path()}, {folder.path(), "no class folders"});
  make_classes(folder.path(), {"only"}, 3);
  expect_refused({.path = folder.path()}, {"one class", "'only'"});
  write_text(folder / "words/a.txt", "words");
  expect_refused({.path = folder.path()}, {folder / "words", "without images"});
  expect_refused({.path = folder / "words/a.txt"}, {"is a file"});
  expect_refused({.path = "", .val_fraction = 1}, {"--val-fraction"});
  TemporaryFolder above;
  write_text(above / "cifar-10-batches-bin/data_batch_1.bin", "x");
  fs::create_directories(above / "others");
  const std::string deeper = above / "cifar-10-batches-bin";
  expect_refused({.path = above.path()}, {deeper + ": CIFAR-10, which needs --data " + deeper});
  for (const char* name : {"cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "photos.zip"})
    write_text(above / name, "x");
  for (const char* name : {"cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "photos.zip"})
    expect_refused({.path = above / name}, {"is an archive; unpack it and give its folder"});
  expect_refused({.path = above / "cifar10"},
                 {"cifar10: no such folder; ./launcher data fetch cifar10 downloads CIFAR-10"});
}

TEST(Dataset, Cifar) {
  TemporaryFolder folder;
  write_file(folder / "data_batch_1.bin", cifar_records(5, 0));
  write_file(folder / "data_batch_2.bin", cifar_records(2, 5));
  write_file(folder / "test_batch.bin", cifar_records(3, 0));
  const DataSets sets = open(folder.path());
  EXPECT_EQ(sets.kind, DataKind::cifar);
  EXPECT_EQ(sets.description, "CIFAR-10, 7 train, 3 val, 10 classes");
  EXPECT_EQ(sets.train->label(6), 6);
  EXPECT_EQ(sets.classes[6], "frog");
  EXPECT_EQ(sets.train->name(6), folder / "data_batch_2.bin record 1");
  const Image image = sets.train->image(6, 0);
  for (int c = 0; c < 3; ++c)
    for (int p : {0, 1, 31, 32, 1023})
      EXPECT_EQ(image.pixels[3 * p + c], uint8_t(6 + (1024 * c + p) * (c + 1)));

  write_text(folder / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_EQ(open(folder.path()).classes[9], "j");
  write_text(folder / "batches.meta.txt", "a\nb\n");
  expect_refused({.path = folder.path()}, {"batches.meta.txt", "2 class names"});
}

TEST(Dataset, CifarInTheFolderAbove) {
  TemporaryFolder above;
  const std::string folder = above / "cifar-10-batches-bin";
  write_file(folder + "/data_batch_1.bin", cifar_records(5, 0));
  write_file(folder + "/test_batch.bin", cifar_records(3, 0));
  write_text(above / "cifar-10-binary.tar.gz", "x");
  const DataSets inner = open(folder), sets = open(above.path() + "/");
  EXPECT_EQ(sets.kind, DataKind::cifar);
  EXPECT_EQ(sets.fingerprint, inner.fingerprint);
  EXPECT_EQ(sets.description, "CIFAR-10, 5 train, 3 val, 10 classes");
  EXPECT_EQ(sets.train->name(4), folder + "/data_batch_1.bin record 4");
  fs::rename(folder, above / "renamed");
  expect_refused({.path = above.path()}, {"needs --data " + (above / "renamed")});
}

TEST(Dataset, RefusedCifar) {
  TemporaryFolder folder;
  write_file(folder / "data_batch_1.bin", cifar_records(2, 0));
  expect_refused({.path = folder.path()}, {"test_batch.bin", "missing"});
  write_file(folder / "test_batch.bin", cifar_records(2, 0));
  write_file(folder / "data_batch_3.bin", cifar_records(2, 0));
  expect_refused({.path = folder.path()}, {"data_batch_2.bin", "missing"});
  auto bytes = cifar_records(2, 0);
  bytes[3073] = 10;
  write_file(folder / "data_batch_2.bin", bytes);
  expect_refused({.path = folder.path()}, {"data_batch_2.bin", "record 1", "label 10"});
  bytes.pop_back();
  write_file(folder / "data_batch_2.bin", bytes);
  expect_refused({.path = folder.path()}, {"data_batch_2.bin", "6145", "3073"});
}

TEST(Dataset, Cifar100) {
  TemporaryFolder above;
  const std::string folder = above / "cifar-100-binary";
  write_file(folder + "/train.bin", cifar100_records(70, 20));
  write_file(folder + "/test.bin", cifar100_records(3, 0));
  write_text(folder + "/fine_label_names.txt", cifar100_names());
  write_text(folder + "/coarse_label_names.txt", "fish\n");
  for (const std::string& path : {folder, above.path()}) {
    const DataSets sets = open(path);
    EXPECT_EQ(sets.kind, DataKind::cifar);
    EXPECT_EQ(sets.description, "CIFAR-100, 70 train, 3 val, 100 classes");
    EXPECT_EQ(sets.train->label(65), 85);
    EXPECT_EQ(sets.val->label(2), 2);
    EXPECT_EQ(sets.classes[85], "kind_85");
    EXPECT_EQ(sets.train->name(65), folder + "/train.bin record 65");
    const Image image = sets.train->image(65, 0);
    for (int c = 0; c < 3; ++c)
      for (int p : {0, 1, 31, 32, 1023})
        EXPECT_EQ(image.pixels[3 * p + c], uint8_t(85 + (1024 * c + p) * (c + 1)));
  }
}

TEST(Dataset, RefusedCifar100) {
  TemporaryFolder folder;
  const auto refused = [&](const std::string& part) {
    expect_refused({.path = folder.path()}, {part});
  };
  write_text(folder / "fine_label_names.txt", cifar100_names());
  refused("train.bin: missing; it is CIFAR-100's training set");
  write_file(folder / "train.bin", cifar_records(3, 0));
  refused("train.bin: its size, 9219 bytes, is not a multiple of 3074, the size of a CIFAR-100 ");
  auto bytes = cifar100_records(2, 0);
  bytes[3075] = 100;
  write_file(folder / "train.bin", bytes);
  refused("train.bin: record 1 has label 100, above 99; is it a CIFAR-100 file?");
  write_file(folder / "train.bin", cifar100_records(2, 0));
  refused("test.bin: missing; it is CIFAR-100's validation set");
  write_file(folder / "test.bin", cifar100_records(2, 0));
  write_text(folder / "fine_label_names.txt", "a\nb\n");
  refused("fine_label_names.txt: has 2 class names, not 100");
  fs::remove(folder / "fine_label_names.txt");
  refused("fine_label_names.txt: missing; it names the classes of CIFAR-100");
  expect_refused({.path = folder / "cifar100"},
                 {"no such folder; ./launcher data fetch cifar100 downloads CIFAR-100"});
}

TEST(Dataset, BuiltInImages) {
  const DataSets sets = open("");
  EXPECT_EQ(sets.kind, DataKind::builtin);
  EXPECT_EQ(sets.train->size(), 2048);
  EXPECT_EQ(sets.val->size(), 500);
  EXPECT_EQ(sets.classes[7], "hourglass");
  const Image image = sets.train->image(3, 0);
  EXPECT_EQ(image.height, 64);
  EXPECT_EQ(image.pixels, sets.train->image(3, 0).pixels);
  EXPECT_NE(image.pixels, sets.val->image(3, 0).pixels);
  EXPECT_NE(image.pixels, sets.train->image(13, 0).pixels);
  EXPECT_NE(image.pixels, open("", {}, 1).train->image(3, 0).pixels);
}

// In images of the class "rows", which is the first.
struct RowsSeen {
  double alike;      // fraction of tiles whose top row has one colour
  double different;  // ... and another one a quarter tile below
};
RowsSeen rows_seen(const DataSets& sets, int size, int tile) {
  const int dot = tile / 8;
  int alike = 0, different = 0, tiles = 0;
  for (int i = 0; i < 100; i += 10) {
    const Image image = sets.train->image(i, 0);
    EXPECT_EQ(image.width, size);
    const auto luma = [&](int y, int x) {
      const uint8_t* p = &image.pixels[(size_t(y) * size + x) * 3];
      return p[0] * .299 + p[1] * .587 + p[2] * .114;
    };
    for (int y = 0; y + tile <= size; y += tile)
      for (int x = 0; x + tile <= size; x += tile, ++tiles) {
        alike += std::abs(luma(y, x) - luma(y + dot, x + tile - 1)) < 48;
        different += std::abs(luma(y, x) - luma(y + 2 * dot, x)) > 48;
      }
  }
  return {double(alike) / tiles, double(different) / tiles};
}

TEST(Dataset, BuiltInTilesAreAsLargeAsThePatch) {
  struct Case {
    int size, patch, tile;
  };
  for (const auto& [size, patch, tile] :
       {Case{64, 0, 8}, Case{224, 16, 16}, Case{30, 4, 8}, Case{48, 24, 24}, Case{16, 32, 8}}) {
    SCOPED_TRACE(std::to_string(size) + " " + std::to_string(patch));
    const DataSets mosaics = open_dataset(
        {.path = "", .built_in = BuiltIn::mosaics, .image_size = size, .patch_size = patch});
    const RowsSeen seen = rows_seen(mosaics, size, tile);
    EXPECT_GT(seen.alike, 0.8);
    EXPECT_GT(seen.different, 0.55);
  }
}

// In a tile of "rows", four rows of pixels differ from the four between them; in most of the tiles
// that a shape covers, they don't.
TEST(Dataset, BuiltInShapesHideTiles) {
  const DataSets shapes = open("");
  const DataSets mosaics = open_dataset({.path = "", .built_in = BuiltIn::mosaics});
  EXPECT_EQ(mosaics.train->size(), 2048);
  EXPECT_EQ(mosaics.val->size(), 1000);
  EXPECT_EQ(mosaics.classes, shapes.classes);
  EXPECT_NE(mosaics.fingerprint, shapes.fingerprint);
  int striped = 0, tiles = 0;
  for (int i = 0; i < 1000; i += 10) {
    const Image image = shapes.train->image(i, 0);
    for (int tile = 0; tile < 64; ++tile, ++tiles) {
      double difference = 0;
      for (int y = 0; y < 8; ++y)
        for (int x = 0; x < 8; ++x) {
          const size_t pixel = size_t(tile / 8 * 8 + y) * 64 + size_t(tile % 8 * 8 + x);
          const uint8_t* const p = &image.pixels[pixel * 3];
          difference += (y / 2 % 2 ? -1 : 1) * (p[0] * .299 + p[1] * .587 + p[2] * .114) / 32;
        }
      striped += std::abs(difference) > 25;
    }
  }
  EXPECT_GT(striped, 0.35 * tiles);
  EXPECT_LT(striped, 0.65 * tiles);  // without shapes: 0.78
}

// Runs of older versions continue on it.
TEST(Dataset, BuiltInMosaicsStay) {
  const DataSets mosaics = open_dataset({.path = "", .built_in = BuiltIn::mosaics});
  const Image image = mosaics.train->image(3, 0);
  EXPECT_EQ(crc32(std::as_bytes(std::span(image.pixels))), 3456792511u);
}

TEST(Dataset, BuiltInTilesSwapTheirColours) {
  // No single pixel reveals the class.
  const Image image = open_dataset({.path = "", .built_in = BuiltIn::mosaics}).train->image(0, 0);
  int brighter = 0, different = 0;
  for (int y = 0; y < 64; y += 8)
    for (int x = 0; x < 64; x += 8) {
      const int green = image.pixels[(y * 64 + x) * 3 + 1];
      const int below = image.pixels[((y + 2) * 64 + x) * 3 + 1];
      different += std::abs(green - below) > 48;
      brighter += green - below > 48;
    }
  EXPECT_GT(different, 30);
  EXPECT_GT(brighter, 0.25 * different);
  EXPECT_LT(brighter, 0.75 * different);
  expect_refused({.path = "", .image_size = 4}, {"--image-size 4"});
}

TEST(Dataset, Synthetic) {
  const DataSets sets = open_dataset({.path = "synthetic", .image_size = 20, .classes = {"3"}});
  EXPECT_EQ(sets.kind, DataKind::synthetic);
  EXPECT_EQ(sets.val, nullptr);
  EXPECT_EQ(sets.classes.size(), 3u);
  EXPECT_EQ(sets.train->image(70, 0).pixels, sets.train->image(6, 0).pixels);
  EXPECT_NE(sets.train->image(70, 0).pixels, sets.train->image(7, 0).pixels);
  EXPECT_EQ(sets.train->label(2), 2);
  EXPECT_EQ(sets.train->image(0, 0).pixels.size(), 1200u);
  EXPECT_EQ(open("synthetic").classes.size(), 10u);
}

}  // namespace
}  // namespace bv::test
