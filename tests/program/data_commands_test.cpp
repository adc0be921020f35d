// data split, stats and check as users run them.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/dataset.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

class DataCommands : public ProgramTest {
 protected:
  void expect_refused(const std::string& words, const std::string& line) const {
    const auto before = names_in(folder_.path());
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_EQ(end.errors, line + "\n") << words;
    EXPECT_EQ(names_in(folder_.path()), before) << words;
  }
  // The files in a part of a split, relative to it.
  std::set<std::string> files_of(const std::string& part) const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(in(part)))
      if (entry.is_regular_file()) names.insert(entry.path().lexically_relative(in(part)));
    return names;
  }
  std::set<std::string> held_out_in_training(double fraction, uint64_t seed) const {
    const DataSets sets =
        open_dataset({.path = in("photos"), .val_fraction = fraction, .split_seed = seed});
    std::set<std::string> names;
    for (int64_t i = 0; i < sets.val->size(); ++i)
      names.insert(fs::path(sets.val->name(i)).lexically_relative(in("photos")));
    return names;
  }
};

TEST_F(DataCommands, SplitHoldsOutWhatTrainingWould) {
  make_class_folders(in("photos"), 3, 10);
  fs::create_directory(in("photos/class1/more"));
  fs::rename(in("photos/class1/4.ppm"), in("photos/class1/more/4.ppm"));
  const Finished end = go("data split photos/ out/a --val-fraction 0.3 --seed 7");
  EXPECT_EQ(end.output,
            "out/a: 21 train, 9 val, 3 classes (seed 7)\n"
            "class    train     val\n"
            "class0       7       3\nclass1       7       3\nclass2       7       3\n");
  const auto train = files_of("out/a/train"), val = files_of("out/a/val");
  EXPECT_EQ(val, held_out_in_training(0.3, 7));
  std::set<std::string> both = train;
  both.insert(val.begin(), val.end());
  EXPECT_EQ(train.size() + val.size(), both.size());
  EXPECT_EQ(both, files_of("photos"));
  for (const std::string& name : val)
    EXPECT_EQ(contents(in("out/a/val/" + name)), contents(in("photos/" + name)));
  EXPECT_EQ(names_in(in("out")), std::set<std::string>{"a"});

  go("data split photos out/b --val-fraction 0.3 --seed 7 --link");
  EXPECT_EQ(files_of("out/b/val"), val);
  EXPECT_EQ(fs::read_symlink(in("out/b/val/" + *val.begin())),
            fs::absolute(in("photos/" + *val.begin())));
  EXPECT_EQ(open_dataset({.path = in("out/b")}).val->image(0, 0).width, 40);
  go("data split photos out/c --val-fraction 0.3 --seed 8");
  EXPECT_NE(files_of("out/c/val"), val);
}

// A known split, to check that every machine gets the same one.
TEST_F(DataCommands, SplitIsTheSameEverywhere) {
  make_class_folders(in("photos"), 2, 8);
  go("data split photos out --val-fraction 0.25 --seed 42");
  EXPECT_EQ(files_of("out/val"), (std::set<std::string>{"class0/4.ppm", "class0/5.ppm",
                                                        "class1/1.ppm", "class1/5.ppm"}));
}

TEST_F(DataCommands, SplitRefuses) {
  make_class_folders(in("photos"), 2, 4);
  make_class_folders(in("parts/train"), 2, 4);
  make_class_folders(in("parts/val"), 2, 4);
  make_class_folders(in("single"), 2, 2);
  fs::remove(in("single/class1/0.ppm"));
  make_cifar(in("cifar"));
  write_ppm(in("flat/1.ppm"), 4, 4, 0);
  expect_refused("data split nowhere out", "nowhere: no such file or folder");
  expect_refused(
      "data split flat/1.ppm out",
      "flat/1.ppm: is a file; give the folder of class folders or of CIFAR's .bin files");
  expect_refused("data split flat out",
                 "flat: no class folders in it (nor train/ and val/, nor CIFAR's "
                 ".bin files); if its images are of one class, give the folder above it");
  expect_refused("data split photos single", "DST single exists; name a new folder");
  expect_refused("data split photos photos/out",
                 "DST photos/out is inside SRC, where it would be a class");
  fs::create_symlink("loop", in("loop"));
  expect_refused("data split photos loop/out", "DST loop/out: can't make this folder: File exists");
  expect_refused("data split photos out --val-fraction 0",
                 "--val-fraction 0: must be more than 0 and less than 1");
  expect_refused("data split photos out --val-fraction 1",
                 "--val-fraction 1: must be more than 0 and less than 1");
  expect_refused("data split single out",
                 "single/class1: has one image; to be in train/ and in val/ a class needs two");
  expect_refused("data split parts out", "parts: is split already, it has val/");
  expect_refused("data split cifar out", "cifar: CIFAR's files have a validation set of their own");
}

// A limit on file sizes acts like a full disk.
TEST_F(DataCommands, SplitLeavesNothingHalfWritten) {
  make_class_folders(in("photos"), 2, 4);
  const Finished end = run_program(folder_.path(), "data split photos out", {.file_size = 1000});
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(end.errors.starts_with("can't copy photos/class0/")) << end.errors;
  EXPECT_TRUE(end.errors.ends_with(": File too large\n")) << end.errors;
  EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"photos"});
}

TEST_F(DataCommands, StatsArePrintedAsOptions) {
  write_text(in("photos/a/1.ppm"), "P6 2 1 255 " + std::string("\xFF\0\x33\0\0\x33", 6));
  write_text(in("photos/b/1.ppm"), "P6 1 2 255 " + std::string("\xFF\0\x33\xFF\0\x33", 6));
  const Finished text = go("data stats photos");
  EXPECT_EQ(text.output,
            "photos: 2 images, 4 pixels, neither cropped nor resized\n"
            "of each image, averaged (deviation as torch.std):\n"
            "  --mean 0.75,0,0.2 --std 0.3535534,0,0\n"
            "of all pixels:\n  --mean 0.75,0,0.2 --std 0.4330127,0,0\n");
  const Finished json = go("data stats photos --json --workers 3");
  EXPECT_EQ(json.output,
            "{\"images\":2,\"pixels\":4,\"of_each_image\":{\"mean\":[0.75,0,0.2],\"std\":"
            "[0.3535533905932738,0,0]},\"of_all_pixels\":{\"mean\":[0.75,0,0.2],\"std\":"
            "[0.43301270189221935,0,0]}}\n");
  expect_refused("data stats photos/a",
                 "photos/a: no class folders in it (nor train/ and val/, nor CIFAR's "
                 ".bin files); if its images are of one class, give the folder above it");
  write_text(in("photos/a/0.ppm"), "");
  write_text(in("photos/b/9.ppm"), "P6 9 9 255 ");
  expect_refused("data stats photos",
                 "photos/a/0.ppm: the file is empty, and 1 more can't be decoded (data check lists "
                 "such files)");
}

TEST_F(DataCommands, CheckSaysWhatItFound) {
  make_class_folders(in("photos"), 2, 3);
  const std::string table = "class   images\nclass0       3\nclass1       3\n";
  const Finished clean = go("data check photos");
  EXPECT_EQ(clean.output, "photos: 6 images, 2 classes\n" + table +
                              "the largest class has 3 images, the smallest 3\nclean\n");
  write_text(in("photos/class0/2.ppm"), "");
  fs::copy_file(in("photos/class0/1.ppm"), in("photos/class1/1.PPM"));
  write_ppm(in("photos/class1/2.ppm"), 30, 40, 1);
  const Finished end = run("data check photos");
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.output,
            "photos: 7 images, 2 classes\n"
            "damaged: 1\n  photos/class0/2.ppm: the file is empty\n"
            "  damaged images end a run; --on-bad-image skip leaves them out\n"
            "with a side below 32 pixels: 1\n  photos/class1/2.ppm: 30x40\n"
            "equal images: 1\n  photos/class0/1.ppm = photos/class1/1.PPM (in different classes)\n"
            "class   images\nclass0       3\nclass1       4\n"
            "the largest class has 4 images, the smallest 3\n");
  const Finished json = run("data check photos --json --min-side 30");
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(
      json.output,
      "{\"images\":7,\"other_files\":0,\"clean\":false,\"damaged\":[{\"path\":\"photos/class0/"
      "2.ppm\",\"what\":\"the file is empty\"}],\"flawed\":[],\"tiny\":[],\"not_read\":[],"
      "\"outside\":[],\"empty_classes\":[],\"alike_classes\":[],\"equal\":[{\"paths\":[\"photos/"
      "class0/1.ppm\","
      "\"photos/class1/1.PPM\"],\"in_both_parts\":false,\"in_several_classes\":true}],"
      "\"val_in_train\":0,\"left_out\":[],\"classes\":[{\"class\":\"class0\",\"images\":3},{"
      "\"class\":"
      "\"class1\",\"images\":4}]}\n");
  fs::create_directory(in("empty"));
  EXPECT_TRUE(refuse("data check empty").errors.starts_with("empty: no images in it ("));
}

}  // namespace
}  // namespace bv::test
