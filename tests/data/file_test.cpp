#include "base/files/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/machine_error.h"
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

// All that is not about the file itself is the machine's.
TEST(File, ErrorsOfTheMachineSayWhatToDo) {
  for (const int code : {EMFILE, ENFILE, ENOMEM, EIO, ESTALE, EACCES, EPERM, ENOSPC, ETIMEDOUT,
                         EINTR, EDQUOT, EHOSTDOWN, EREMOTEIO, ENOTCONN})
    EXPECT_TRUE(is_machine_error(code)) << code;
  for (const int code : {0, ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EISDIR})
    EXPECT_FALSE(is_machine_error(code)) << code;
  const TemporaryFolder folder;
  const std::string path = folder / "a b";
  write_text(path, "");
  const auto line = [&](int code) { return std::string(MachineError(path, code).what()); };
  EXPECT_TRUE(has(line(EMFILE), path + ": Too many open files; this process may open "));
  EXPECT_TRUE(has(line(EMFILE), "`ulimit -n "));
  EXPECT_EQ(line(EACCES),
            path + ": Permission denied; its owner can allow it: `chmod a+r '" + path + "'`");
  EXPECT_TRUE(has(line(EIO), ": Input/output error; the disk or the file server failed"));
  EXPECT_TRUE(has(line(ESTALE), ": Stale file handle; the file server no longer knows it"));
  EXPECT_EQ(line(ENOSPC),
            path + ": No space left on device; `df -h " + folder.path() + "/.` shows what is left");
}

TEST(File, ThatCantBeOpenedIsNoFileError) {
  if (geteuid() == 0) GTEST_SKIP() << "root may open all files";
  const TemporaryFolder folder;
  write_text(folder / "in/text", "12345");
  chmod((folder / "in/text").c_str(), 0);
  const auto line = [&] {
    return error_of<MachineError>([&] { read_file(folder / "in/text", 100); });
  };
  EXPECT_TRUE(has(line(), "`chmod a+r " + (folder / "in/text") + "`"));
  chmod((folder / "in").c_str(), 0);
  EXPECT_TRUE(has(line(), "`chmod a+rx " + (folder / "in") + "`"));
  chmod((folder / "in").c_str(), 0700);
}

}  // namespace
}  // namespace bv::test
