// The findings of data check.
#include "data/dataset_stats/data_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/dataset.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

DataCheck check(const std::string& path) {
  return check_data(path, 8, 2, [](int64_t, int64_t) {});
}
Names paths_of(const std::vector<FileRemark>& remarks) {
  Names paths;
  for (const FileRemark& remark : remarks) paths.push_back(remark.path);
  return paths;
}

class DataCheckTest : public testing::Test {
 protected:
  std::string in(const std::string& name) const { return folder_ / name; }
  // Makes different images in all of these class folders.
  void make(const Names& class_folders, int images) {
    for (const std::string& name : class_folders)
      for (int i = 0; i < images; ++i)
        write_ppm(in(name + "/" + std::to_string(i) + ".ppm"), 10, 9, ++made_);
  }
  TemporaryFolder folder_;
  int made_ = 0;
};

TEST_F(DataCheckTest, OfACleanFolder) {
  make({"a", "b"}, 4);
  write_text(in("a/notes.txt"), "BM: words that begin as a picture");
  write_text(in("LICENSE.txt"), "words");
  const DataCheck found = check(folder_.path());
  EXPECT_TRUE(found.clean());
  EXPECT_EQ(found.images, 8);
  EXPECT_EQ(found.other_files, 1);
  ASSERT_EQ(found.classes.size(), 2u);
  EXPECT_EQ(found.classes[1].name, "b");
  EXPECT_EQ(found.classes[1].train, 4);
}

TEST_F(DataCheckTest, DamagedTinyAndUnreadFiles) {
  make({"a", "b"}, 3);
  write_text(in("a/cut.ppm"), "P6\n40 36\n255\nshort");
  write_text(in("b/empty.jpg"), "");
  write_ppm(in("b/tiny.ppm"), 7, 20, 0);
  write_text(in("a/photo.heic"), "x");
  write_text(in("a/photo.jpg_large"), "\xFF\xD8\xFF\xE0 and more");
  write_text(in("a/short.dat"), "\xFF\xD8");
  write_text(in("b/nothing.dat"), "");
  write_ppm(in("loose.ppm"), 20, 20, 0);
  const DataCheck found = check(folder_.path());
  EXPECT_EQ(paths_of(found.damaged), (Names{in("a/cut.ppm"), in("b/empty.jpg")}));
  EXPECT_EQ(found.damaged[1].what, "the file is empty");
  ASSERT_EQ(paths_of(found.tiny), Names{in("b/tiny.ppm")});
  EXPECT_EQ(found.tiny[0].what, "7x20");
  EXPECT_EQ(paths_of(found.not_read),
            (Names{in("a/photo.heic"), in("a/photo.jpg_large"), in("a/short.dat")}));
  EXPECT_EQ(found.other_files, 1);
  EXPECT_EQ(found.outside, Names{in("loose.ppm")});
  EXPECT_EQ(found.equal.size(), 0u);
}

TEST_F(DataCheckTest, EqualImagesInBothParts) {
  make({"train/a", "train/b", "val/a", "val/b"}, 3);
  fs::copy_file(in("train/a/0.ppm"), in("val/a/copy.ppm"));
  fs::copy_file(in("train/a/0.ppm"), in("val/b/copy.ppm"));
  // The same pixels in different bytes.
  write_text(in("train/b/comment.ppm"),
             replaced(contents(in("train/b/1.ppm")), "P6\n", "P6\n# a comment\n"));
  const DataCheck found = check(folder_.path());
  ASSERT_EQ(found.equal.size(), 2u);
  EXPECT_EQ(found.equal[0].paths,
            (Names{in("train/a/0.ppm"), in("val/a/copy.ppm"), in("val/b/copy.ppm")}));
  EXPECT_TRUE(found.equal[0].in_both_parts);
  EXPECT_TRUE(found.equal[0].in_several_classes);
  EXPECT_EQ(found.equal[1].paths, (Names{in("train/b/1.ppm"), in("train/b/comment.ppm")}));
  EXPECT_FALSE(found.equal[1].in_both_parts);
  EXPECT_FALSE(found.equal[1].in_several_classes);
  EXPECT_EQ(found.val_in_train, 2);
  EXPECT_EQ(found.classes[0].train, 3);
  EXPECT_EQ(found.classes[0].val, 4);
}

// Compares pixels and sizes, not just bytes: the same bytes as 4x2 and as 2x4 are different images.
TEST_F(DataCheckTest, EqualImagesHaveOneSize) {
  const std::string pixels(3 * 16 * 8, 'x');
  write_text(in("a/wide.ppm"), "P6 16 8 255 " + pixels);
  write_text(in("b/high.ppm"), "P6 8 16 255 " + pixels);
  EXPECT_TRUE(check(folder_.path()).clean());
}

TEST_F(DataCheckTest, EmptyAndMissingClasses) {
  make({"train/a", "train/b", "val/a"}, 2);
  fs::create_directories(in("train/c"));
  fs::create_directories(in("val/c"));
  EXPECT_EQ(check(folder_.path()).empty_classes, (Names{in("val/b"), in("train/c"), in("val/c")}));
}

TEST_F(DataCheckTest, OfImagesWithoutClasses) {
  write_ppm(in("1.ppm"), 20, 20, 1);
  write_text(in("2.ppm"), "");
  const DataCheck found = check(folder_.path());
  EXPECT_EQ(found.images, 2);
  EXPECT_EQ(found.classes.size(), 0u);
  EXPECT_EQ(paths_of(found.damaged), Names{in("2.ppm")});
  EXPECT_EQ(found.outside.size(), 0u);
}

TEST_F(DataCheckTest, OfCifar) {
  auto records = cifar_records(12, 0);
  write_file(in("data_batch_1.bin"), records);
  EXPECT_NE(error_of<DataError>([&] { check(folder_.path()); }), "no error");
  write_file(in("test_batch.bin"), cifar_records(3, 11));
  const DataCheck found = check(folder_.path());
  EXPECT_EQ(found.images, 15);
  ASSERT_EQ(found.equal.size(), 1u);
  EXPECT_EQ(found.equal[0].paths,
            (Names{in("data_batch_1.bin record 11"), in("test_batch.bin record 0")}));
  EXPECT_EQ(found.val_in_train, 1);
  EXPECT_EQ(found.classes[0].name, "airplane");
  EXPECT_EQ(found.classes[1].train, 2);
  fs::create_directories(in("above"));
  fs::create_directory_symlink("..", in("above/cifar-10-batches-bin"));
  EXPECT_EQ(check(in("above")).images, 15);
}

TEST_F(DataCheckTest, Refuses) {
  EXPECT_TRUE(is_line(error_of<DataError>([&] { check(folder_.path()); }), "no images in it"));
  make({"val/a", "val/b"}, 2);
  EXPECT_TRUE(
      is_line(error_of<DataError>([&] { check(folder_.path()); }), "has val/ but no train/"));
}

// The check must list every file whose name begins with bad_; of the others, only those that may be
// refused or for which libjpeg warns.
TEST(DataCheckEdgeCases, NamesEveryDamagedFile) {
  const char* data = std::getenv("BAREVISION_DATA");
  const fs::path folder = fs::path(data ? data : "../shared/data") / "image_edge_cases";
  if (!fs::exists(folder)) GTEST_SKIP() << "no " << folder;
  const DataCheck found = check(folder);
  Names named = paths_of(found.damaged);
  for (const std::string& path : paths_of(found.flawed)) named.push_back(path);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const bool listed = std::ranges::count(named, entry.path().string()) > 0;
    const bool sound = name == "jpeg_baseline_512.jpg" || name.starts_with("png_");
    EXPECT_TRUE(listed || !name.starts_with("bad_")) << name;
    EXPECT_FALSE(listed && sound) << name;
  }
}

}  // namespace
}  // namespace bv::test
