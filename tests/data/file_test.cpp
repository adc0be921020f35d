#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

std::string refusal(const std::string& path, uint64_t limit = 100) {
  return error_of<FileError>([&] { read_file(path, limit); });
}

TEST(File, IsARegularOneOfABoundedSize) {
  const TemporaryFolder folder;
  write_text(folder / "text", "12345");
  EXPECT_EQ(read_file(folder / "text", 5).size(), 5u);
  EXPECT_EQ(refusal(folder / "text", 4), "larger than 4 bytes");
  std::filesystem::resize_file(folder / "text", 1ull << 40);  // a hole
  EXPECT_EQ(refusal(folder / "text", 1 << 30), "larger than 1024 MiB");
  EXPECT_EQ(refusal(folder.path()), "a folder where a file is expected");
  EXPECT_EQ(refusal(folder / "none"), "no such file");
  mkfifo((folder / "pipe").c_str(), 0600);
  std::filesystem::create_symlink("pipe", folder / "link");
  for (const std::string& path : {folder / "pipe", folder / "link", std::string("/dev/zero")}) {
    EXPECT_EQ(refusal(path), "not a regular file");
    EXPECT_EQ(error_of<FileError>([&] { open_regular(path, O_WRONLY); }), "not a regular file");
  }
}

TEST(File, ThatIsCutWhileItIsReadIsNoticed) {
  const TemporaryFolder folder;
  write_text(folder / "text", "12345");
  const RegularFile file(folder / "text");
  std::filesystem::resize_file(folder / "text", 3);
  std::string text(5, ' ');
  EXPECT_EQ(error_of<FileError>([&] { file.read(0, std::as_writable_bytes(std::span(text))); }),
            "ended early: it was truncated while being read");
}

}  // namespace
}  // namespace bv::test
