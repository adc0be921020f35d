// Class folders that hold more than pictures: links without a target, folders of systems, formats
// that aren't read.
#include "data/folder_scan.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/machine_error.h"
#include "data/dataset.h"
#include "data/dataset_stats/data_check.h"
#include "data/decode/image_extensions.h"
#include "data/records/example.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/someone_else.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class FolderScan : public testing::Test {
 protected:
  std::string in(const std::string& name) const { return folder_ / name; }
  void make(const Names& class_folders, int images = 4) {
    for (const std::string& name : class_folders)
      for (int i = 0; i < images; ++i)
        write_ppm(in(name + "/" + std::to_string(i) + ".ppm"), 9, 8, ++made_);
  }
  void link(const std::string& target, const std::string& name) {
    fs::create_directories(fs::path(in(name)).parent_path());
    fs::create_symlink(target, in(name));
  }
  DataSets open(const std::string& val = "") const {
    return open_dataset({.path = folder_.path(), .val = val});
  }
  std::string refusal(const std::string& val = "") const {
    return error_of<DataError>([&] { open(val); });
  }
  int64_t images() const {
    const DataSets sets = open();
    return sets.train->size() + (sets.val ? sets.val->size() : 0);
  }
  DataCheck check() const {
    return check_data(folder_.path(), 1, 1, [](int64_t, int64_t) {});
  }

  TemporaryFolder folder_;
  int made_ = 0;
};

// Links made by git-annex or `data split --link`, whose originals are gone.
TEST_F(FolderScan, ALostPictureIsABadImage) {
  make({"cat", "dog"});
  link("../.git/annex/k0.png", "dog/8.png");
  link("9.JPG", "dog/9.JPG");  // to itself
  link("gone", "dog/notes.txt");
  link("gone", "dog/readme");
  link("gone", "labels.csv");
  EXPECT_EQ(images(), 10);
  const BadImages bad = find_bad_images(open(), [](int64_t) {});
  EXPECT_EQ(bad.count(), 2);
  const DataCheck found = check();
  EXPECT_FALSE(found.clean());
  ASSERT_EQ(found.damaged.size(), 2u);
  EXPECT_EQ(found.damaged[0].path, in("dog/8.png"));
  EXPECT_EQ(found.damaged[0].what, "a link without a target (-> ../.git/annex/k0.png)");
  EXPECT_EQ(found.damaged[1].what, "a link without a target (-> 9.JPG)");
  EXPECT_EQ(found.other_files, 1);
  EXPECT_EQ(found.left_out, Names{"left out: 1 link to folders, the first " + in("dog/readme") +
                                  "; to use their "
                                  "images, put the folders in the place of the links"});
}

TEST_F(FolderScan, ALostFolderIsNamed) {
  const std::string hint =
      "; a class or a part of the data may be missing: put the folder back, or delete the link";
  for (const std::string name : {"bird", "St. Bernard", "dog.v2", "val", "train"}) {
    make({"cat", "dog"});
    link("/mnt/gone", name);
    EXPECT_EQ(refusal(), in(name) + ": a link without a target (-> /mnt/gone)" + hint);
    EXPECT_EQ(error_of<DataError>([&] { check(); }), refusal());
    fs::remove(in(name));
  }
  link("bird", "bird");
  EXPECT_EQ(refusal(), in("bird") + ": a link without a target (-> bird)" + hint);
  fs::remove(in("bird"));
  TemporaryFolder val;
  fs::create_symlink("nowhere", val / "lost");
  EXPECT_EQ(refusal(val / "lost"), val / "lost: a link without a target (-> nowhere)");
  EXPECT_EQ(error_of<DataError>([&] { data_kind(val / "lost"); }),
            "--data " + (val / "lost: a link without a target (-> nowhere)"));
  for (const char* name : {"cat", "dog"}) write_ppm(val / (std::string(name) + "/1.ppm"), 9, 9, 1);
  fs::create_symlink("nowhere", val / "bird");
  EXPECT_EQ(refusal(val.path()), val / "bird: a link without a target (-> nowhere)" + hint);
}

TEST_F(FolderScan, APipeInThePlaceOfDataIsNamed) {
  const std::string hint =
      ", not a folder; a class or a part of the data may be missing: put the folder back, or "
      "delete the file";
  for (const std::string name : {"val", "train", "bird"}) {
    make({"cat", "dog"});
    ASSERT_EQ(mkfifo(in(name).c_str(), 0600), 0);
    EXPECT_EQ(refusal(), in(name) + ": a named pipe" + hint);
    EXPECT_EQ(error_of<DataError>([&] { check(); }), refusal());
    fs::remove(in(name));
    link("/dev/null", name);
    EXPECT_EQ(refusal(), in(name) + ": a link to a device" + hint);
    fs::remove(in(name));
  }
  // A picture is a bad image; a file of no image's name is ignored as others are.
  ASSERT_EQ(mkfifo(in("dog/8.png").c_str(), 0600), 0);
  link("/dev/null", "dog/9.png");
  ASSERT_EQ(mkfifo(in("notes.txt").c_str(), 0600), 0);
  EXPECT_EQ(find_bad_images(open(), [](int64_t) {}).count(), 2);
  const DataCheck found = check();
  ASSERT_EQ(found.damaged.size(), 2u);
  for (const FileRemark& remark : found.damaged) EXPECT_EQ(remark.what, "not a regular file");
}

// A shard or a part of records that isn't there doesn't leave the rest to be trained on.
TEST_F(FolderScan, LostRecordsAreNamed) {
  if (!have_records) GTEST_SKIP() << "without protobuf";
  for (const char* file : {"train-00000-of-00002", "train-00001-of-00002"})
    fs::copy_file(fs::path("tests/golden/records") / file, in(file));
  EXPECT_EQ(images(), 8);
  link("gone", "train-00002-of-00003");
  const std::string lost = ": a link without a target (-> gone)";
  EXPECT_EQ(refusal(), in("train-00002-of-00003") + lost);
  fs::remove(in("train-00002-of-00003"));
  link("gone", "validation");
  EXPECT_EQ(refusal(), in("validation") + lost);
  fs::remove(in("validation"));
  ASSERT_EQ(mkfifo(in("validation").c_str(), 0600), 0);
  EXPECT_EQ(refusal(), in("validation") + ": a named pipe, not a folder");
  fs::remove(in("validation"));
  ASSERT_EQ(mkfifo(in("train-00002-of-00003").c_str(), 0600), 0);
  EXPECT_EQ(refusal(), in("train-00002-of-00003") + ": not a regular file");
}

TEST_F(FolderScan, WhatCantBeReadEndsTheRun) {
  if (!AsSomeoneElse::can()) GTEST_SKIP() << "this root can't be someone else";
  make({"cat", "dog"});
  fs::permissions(folder_.path(), fs::perms(0755));
  const auto expect_named = [&](const std::string& closed, const std::string& named) {
    fs::create_directories(in(closed));
    fs::permissions(in(closed), fs::perms::none);
    const std::string line = in(named) + ": Permission denied; its " +
                             (closed == named ? "" : "folder's ") +
                             "owner can allow it: `chmod a+rx " + in(closed) + "`";
    {
      const AsSomeoneElse other;
      EXPECT_EQ(error_of<MachineError>([&] { open(); }), line);
      EXPECT_EQ(error_of<MachineError>([&] { check(); }), line);
    }
    fs::permissions(in(closed), fs::perms(0700));
  };
  expect_named("dog/more", "dog/more");
  fs::remove(in("dog/more"));
  expect_named("bird", "bird");
  fs::remove(in("bird"));
  link("../.closed/1.png", "dog/1.png");  // whether the picture is there can't be seen
  expect_named(".closed", "dog/1.png");
  fs::remove(in("dog/1.png"));
  link(".closed/bird", "bird");
  expect_named(".closed", "bird");
}

TEST_F(FolderScan, FoldersOfSystemsAreLeftOutAtAnyDepth) {
  make({"cat", "dog", "@eaDir", "cat/@eaDir/0.ppm", "cat/deep/#recycle", "$RECYCLE.BIN/S-1-5",
        "lost+found", "__MACOSX/cat", ".Trashes"});
  write_text(in("cat/deep/9.ppm"), contents(in("cat/1.ppm")) + " ");
  fs::create_directories(in("System Volume Information"));
  fs::create_directories(in(".Spotlight-V100"));
  for (const char* file : {"cat/Thumbs.db", "dog/thumbs.db", "Desktop.ini", "dog/._0.ppm"})
    write_text(in(file), "x");
  const DataSets sets = open();
  EXPECT_EQ(sets.classes, (Names{"cat", "dog"}));
  EXPECT_EQ(images(), 9);
  const std::string line =
      "left out: 7 folders of systems (#recycle, $RECYCLE.BIN, @eaDir, System Volume Information, "
      "__MACOSX, lost+found), 3 files of systems (Desktop.ini, Thumbs.db, thumbs.db); if one of "
      "them is a class, give it another name";
  EXPECT_EQ(sets.notes, Names{line});
  EXPECT_FALSE(has(sets.description, "other files"));
  const DataCheck found = check();
  EXPECT_EQ(found.images, 9);
  EXPECT_EQ(found.classes.size(), 2u);
  EXPECT_EQ(found.left_out, Names{line});
  EXPECT_EQ(found.other_files, 0);
  EXPECT_TRUE(found.empty_classes.empty());
  Names notes;
  EXPECT_EQ(pictures_in(folder_.path(), notes).size(), 9u);
  EXPECT_EQ(notes, Names{folder_.path() + ": " + line});
}

TEST_F(FolderScan, FoldersOfSystemsAboveAndInTheParts) {
  make({"train/cat", "train/dog", "train/@eaDir", "val/cat", "val/dog", "val/@eaDir"});
  make({"@eaDir"});
  const std::string line = "left out: 3 folders of systems (@eaDir)";
  ASSERT_EQ(open().notes.size(), 1u);
  EXPECT_TRUE(has(open().notes[0], line));
  ASSERT_EQ(check().left_out.size(), 1u);
  EXPECT_TRUE(has(check().left_out[0], line));
  EXPECT_EQ(check().images, 16);
}

// As a disk that isn't mounted leaves it.
TEST_F(FolderScan, AnEmptyPartIsSaid) {
  make({"train/cat", "train/dog", "test"});
  fs::create_directories(in("val"));
  const Names lines = {"left out: test/, which has no class folders in it",
                       "left out: val/, which has no class folders in it"};
  EXPECT_EQ(open().notes, lines);
  EXPECT_EQ(check().left_out, lines);
  write_text(in("valid"), "../val");  // a link that became a file
  EXPECT_EQ(open().notes[2], "left out: valid, a file, not a folder of classes");
  fs::rename(in("val"), in("train/val"));  // a class, but it has no images
  EXPECT_TRUE(has(refusal(), "train/val: a class folder without images"));
}

// Another name than those of val/: nothing would tell that it isn't used.
TEST_F(FolderScan, AnotherPartIsSaid) {
  make({"train/cat", "train/dog", "Test2/cat", "Test2/bird", "papers/scans"});
  const Names line = {
      "left out: Test2/, which has folders of the same classes as train/; --val validates on such "
      "a folder"};
  EXPECT_EQ(open().notes, line);
  EXPECT_EQ(check().left_out, line);
  fs::rename(in("Test2/bird"), in("Test2/dog"));
  const DataSets sets = open_dataset({.path = folder_.path(), .val = in("Test2")});
  EXPECT_TRUE(sets.notes.empty());
}

TEST_F(FolderScan, LinksToFoldersAreSaid) {
  make({"cat", "dog", "more"});
  fs::rename(in("more"), in(".more"));
  link("../.more", "dog/more");
  link(".more", "bird");  // a class folder may be a link
  EXPECT_EQ(images(), 12);
  EXPECT_EQ(open().notes, Names{"left out: 1 link to folders, the first dog/more; to use their "
                                "images, put the folders in the place of the links"});
}

TEST_F(FolderScan, ImagesOfUnreadFormatsAreNamed) {
  make({"bus", "car"});
  for (const char* file : {"bus/1.TGA", "bus/2.ico", "bus/3.dcm", "car/4.jxl", "car/5.Heic",
                           "car/6.exr", "car/notes.txt"})
    write_text(in(file), "x");
  const DataSets sets = open();
  EXPECT_EQ(sets.left_out, "1 .dcm, 1 .exr, 1 .heic, 1 .ico, 1 .jxl, 1 .tga");
  EXPECT_TRUE(has(sets.description, "other files ignored: 1"));
  const DataCheck found = check();
  EXPECT_EQ(found.not_read.size(), 6u);
  EXPECT_EQ(found.other_files, 1);
  EXPECT_TRUE(found.not_read_advice.starts_with(sets.left_out + "; to convert them: find -L "));
  Names notes;
  pictures_in(folder_.path(), notes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(has(notes[0], "images are left out: " + sets.left_out));
}

TEST_F(FolderScan, AnImageThatWasConvertedIsNotMissed) {
  make({"bus", "car"});
  fs::copy_file(in("bus/0.ppm"), in("bus/7.JPG"));
  write_text(in("bus/7.HEIC"), "x");
  write_text(in("bus/8.HEIC"), "x");
  write_text(in("bus/0.HEIC"), "x");
  write_text(in("car/more/7.heic"), "x");
  EXPECT_EQ(open().left_out, "3 .heic");
  EXPECT_EQ(check().not_read.size(), 3u);
  EXPECT_EQ(check().other_files, 1);
}

TEST(ImageExtensions, AreReadOrKnown) {
  for (const char* read : {".jpg", ".png", ".pbm", ".pgm", ".ppm", ".pnm", ".bmp", ".gif"})
    EXPECT_TRUE(is_read(read) && !is_other_image(read)) << read;
  for (const char* other : {".heic", ".heif", ".avif", ".jp2", ".jxl", ".tga", ".ico", ".exr",
                            ".dcm", ".psd", ".svg", ".raw", ".cr2", ".nef", ".dng", ".arw", ".hdr"})
    EXPECT_TRUE(!is_read(other) && is_other_image(other)) << other;
  for (const char* none : {".txt", "", ".db", ".xml"})
    EXPECT_FALSE(is_read(none) || is_other_image(none)) << none;
  EXPECT_EQ(extension_of("a/b.tar.JPEG"), ".jpeg");
}

}  // namespace
}  // namespace bv::test
