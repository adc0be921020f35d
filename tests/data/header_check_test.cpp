// The header check: what a run refuses before its first step.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/dataset.h"
#include "data/decode/decode.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

// The reason why a file on disk is refused; check_header reads only some of its blocks.
std::string refusal(const std::string& bytes) {
  TemporaryFolder folder;
  write_text(folder / "image", bytes);
  const RegularFile file(folder / "image");
  FileView view(file);
  return error_of<BadImage>([&] { check_header(view); });
}

std::string jpeg(int width, int height, int comments) {
  const auto side = [](int n) { return std::string{char(n >> 8), char(n)}; };
  std::string file = "\xFF\xD8";
  for (int i = 0; i < comments; ++i) file += "\xFF\xFE" + side(60000) + std::string(59998, '\xFF');
  return file + "\xFF\xC0" + side(17) + '\x08' + side(height) + side(width) + std::string(10, '\1');
}

TEST(Header, OfEachFormat) {
  const std::string fine = "no error", known = "not an image of a known format (";
  EXPECT_EQ(refusal(""), "the file is empty");
  EXPECT_EQ(refusal("P"), known + known_formats() + " are read)");

  EXPECT_EQ(refusal("\xFF\xD8"), "JPEG data is cut off");
  EXPECT_EQ(refusal(jpeg(30, 20, 0)), fine);
  EXPECT_EQ(refusal(jpeg(30, 20, 5)), fine);
  EXPECT_EQ(refusal(jpeg(30, 20, 2).substr(0, 90000)), "JPEG data is cut off");
  EXPECT_EQ(refusal(jpeg(40000, 20, 2)),
            "the image claims 40000x20 pixels, more than 32768 per side or 134 million");

  const std::string png("\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR\0\0\0\5\0\0\0\5", 24);
  EXPECT_EQ(refusal(png), fine);
  EXPECT_EQ(refusal(png.substr(0, 20)), "PNG data is cut off");
  EXPECT_EQ(refusal(png.substr(0, 17) + std::string("\1\0\0\0\0\0\5", 7)),
            "the image claims 65536x5 pixels, more than 32768 per side or 134 million");

  const std::string gif("GIF89a\5\0\5\0\0\0\0", 13);
  EXPECT_EQ(refusal(gif), fine);
  EXPECT_EQ(refusal(gif.substr(0, 9)), "GIF data is cut off");
  EXPECT_EQ(refusal("P6 2 1 255 12345"), "PNM data is cut off");
  EXPECT_EQ(refusal("P6 2 1 255 123456"), fine);
  EXPECT_EQ(refusal("BM"), "BMP data is cut off");
}

TEST(Header, SaysWhatElseItIs) {
  EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
            "a Git LFS pointer: git lfs pull fetches the file that it stands for");
  const auto is = [](const std::string& bytes) {
    const std::string line = refusal(bytes), known = known_formats() + " are read): ";
    const size_t at = line.find(known);
    return at == line.npos ? line : line.substr(at + known.size());
  };
  const std::string page =
      "an HTML page, as a server sends in place of a missing file; download it again";
  EXPECT_EQ(is("<html>404</html>"), page);
  EXPECT_EQ(is("\xEF\xBB\xBF\n <!DOCTYPE HTML><title>x</title>"), page);
  EXPECT_EQ(is("Not Found\n"), "text that begins with 'Not Found'");
  EXPECT_EQ(is(R"({"message": "no such image"})"),
            R"(text that begins with '{"message": "no such image"}')");
  EXPECT_EQ(is("<?xml version='1.0'?><svg/>"), "an SVG drawing, which isn't read: convert it");
  EXPECT_EQ(is(std::string(5000, '\0')),
            "it begins with zeros, as after an unfinished copy or a full disk; copy it again");
  EXPECT_EQ(is(std::string("\0\0\0\x18"
                           "ftypheic",
                           12)),
            "a HEIC image, which isn't read: convert it");
  EXPECT_EQ(is(std::string("\x1F\x8B\x08\0", 4)), "a gzip file");
  EXPECT_TRUE(is_line(is("\x90\x91\x92\x01"), "not an image of a known format ("));
}

// The largest photo: a file of 1 GiB, and 134 million pixels (384 MiB when decoded).
TEST(Header, NoMoreThanAGibibyte) {
  TemporaryFolder folder;
  write_text(folder / "huge.ppm", "P6 16384 8192 255 ");
  std::filesystem::resize_file(folder / "huge.ppm", (size_t{1} << 30) + 1);  // a sparse file
  const std::string path = folder / "huge.ppm";
  EXPECT_EQ(error_of<FileError>([&] { RegularFile(path, size_t{1} << 30); }),
            "larger than 1024 MiB");
  const RegularFile file(path);
  FileView view(file);
  EXPECT_EQ(error_of<BadImage>([&] { check_header(view); }), "no error");
}

class FirstLook : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"bus", "car"})
      for (int i = 0; i < 100; ++i)
        write_ppm(folder_ / (std::string(name) + "/" + std::to_string(100 + i) + ".ppm"), 9, 7, i);
  }
  BadImages look() const {
    return find_bad_images(open_dataset({.path = folder_.path()}), [](int64_t) {});
  }
  TemporaryFolder folder_;
};

TEST_F(FirstLook, CountsAndNamesTheFirst) {
  EXPECT_EQ(look().count(), 0);
  const auto sets = open_dataset({.path = folder_.path()});
  const std::string first = sets.train->file(3), second = sets.train->file(150),
                    third = sets.val->file(0);
  for (const std::string& path : {third, second, first}) write_text(path, "");
  EXPECT_EQ(look().train, (std::vector<int64_t>{3, 150}));
  EXPECT_EQ(look().val, std::vector<int64_t>{0});
  EXPECT_EQ(look().first, first + ": the file is empty");
  std::filesystem::remove(first);
  std::filesystem::create_directory_symlink("nowhere", first);
  const BadImages bad = find_bad_images(sets, [](int64_t) {});
  EXPECT_EQ(bad.count(), 3);
  EXPECT_EQ(bad.first, first + ": a link without a target (-> nowhere)");
}

TEST_F(FirstLook, NamesGitLfsPointers) {
  write_text(folder_ / "bus/100.ppm", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_EQ(look().first, folder_ / "bus/100.ppm" +
                              std::string(": a Git LFS pointer: git lfs pull fetches the file "
                                          "that it stands for"));
}

TEST_F(FirstLook, IsNotForOtherData) {
  TemporaryFolder cifar;
  write_file(cifar / "data_batch_1.bin", cifar_records(5, 0));
  write_file(cifar / "test_batch.bin", cifar_records(5, 0));
  const DataSets sets = open_dataset({.path = cifar.path()});
  EXPECT_EQ(find_bad_images(sets, [](int64_t) {}).count(), 0);
}

}  // namespace
}  // namespace bv::test
