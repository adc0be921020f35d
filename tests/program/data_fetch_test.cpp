// data fetch from a server on this machine that misbehaves like real servers.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "base/other_program.h"
#include "data/dataset.h"
#include "tests/engine/weights/torch_archive.h"
#include "tests/program/http_server.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Begins = std::vector<size_t>;

std::string output_of(const std::vector<std::string>& words) {
  const ProgramEnd end = run_to_end(words, [] { return true; });
  EXPECT_EQ(end.code, 0) << end.output;
  return end.output;
}

class DataFetch : public ProgramTest {
 protected:
  // An archive like CIFAR-10's.
  DataFetch() {
    make_cifar(in("made/cifar-10-batches-bin"));
    output_of({"tar", "-czf", in("made/archive"), "-C", in("made"), "cifar-10-batches-bin"});
    archive_ = contents(in("made/archive"));
    sha256_ = output_of({"sha256sum", in("made/archive")}).substr(0, 64);
    fs::remove_all(in("made"));
  }
  std::string words(const HttpServer& server) const {
    return "data fetch cifar10 set --url " + server.url() + " --sha256 " + sha256_;
  }
  void expect_whole(const Finished& end) const {
    EXPECT_EQ(end.code, 0) << end.output << end.errors;
    EXPECT_EQ(end.output,
              "set: 44 train, 10 val, 10 classes\ntrain on it: ./launcher MODEL --data "
              "set\n");
    EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"set"});
    EXPECT_EQ(names_in(in("set")), (std::set<std::string>{"data_batch_1.bin", "test_batch.bin"}));
  }
  // Expects code 1, a line with the reason, and only these files left.
  void expect_failed(const Finished& end, const std::string& line,
                     const std::set<std::string>& left) const {
    EXPECT_EQ(end.code, 1) << end.output << end.errors;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), line));
    EXPECT_EQ(names_in(folder_.path()), left);
  }

  std::string archive_, sha256_;
};

TEST_F(DataFetch, DownloadsChecksAndUnpacks) {
  const HttpServer server(archive_, {{}});
  expect_whole(run(words(server)));
  EXPECT_EQ(server.begins(), Begins{0});
  const Finished again = run(words(server));
  EXPECT_EQ(again.code, 2);
  EXPECT_EQ(again.errors, "DIR set exists; name a new folder\n");
  EXPECT_EQ(server.begins(), Begins{0});
}

TEST_F(DataFetch, GoesOnWhereTheTransferBrokeOff) {
  const HttpServer server(archive_, {{.cut = 1000}, {.cut = 500}, {}});
  expect_whole(run(words(server)));
  EXPECT_EQ(server.begins(), (Begins{0, 1000, 1500}));
}

TEST_F(DataFetch, GoesOnWhereAnEarlierCommandStopped) {
  const HttpServer server(archive_, {{.cut = 1000}, {.cut = 0}, {}});
  expect_failed(run(words(server)),
                "; the same command resumes from the 1000 bytes in set.download", {"set.download"});
  expect_whole(run(words(server)));
  EXPECT_EQ(server.begins(), (Begins{0, 1000, 1000}));
}

TEST_F(DataFetch, BeginsAgainWhereTheServerSendsNoParts) {
  const HttpServer server(archive_, {{.cut = 1000}, {.ranges = false}});
  expect_whole(run(words(server)));
  EXPECT_EQ(server.begins(), (Begins{0, 1000, 0}));
}

// A larger file of that name, which is not a partial download.
TEST_F(DataFetch, BeginsAgainWhereMoreIsThereThanTheServerHas) {
  write_text(in("set.download"), archive_ + "more");
  const HttpServer server(archive_, {{}});
  expect_whole(run(words(server)));
  EXPECT_EQ(server.begins(), (Begins{archive_.size() + 4, 0}));
}

TEST_F(DataFetch, DownloadsNothingTwice) {
  write_text(in("set.download"), archive_);
  const HttpServer server(archive_, {{}});
  expect_whole(run(words(server)));
  EXPECT_EQ(server.begins(), Begins{});
}

TEST_F(DataFetch, RefusesAnotherFile) {
  const HttpServer server(archive_ + "!", {{}});
  expect_failed(run(words(server)), ", not " + sha256_ + "; it was damaged in transit", {});
  EXPECT_EQ(server.begins(), Begins{0});
}

TEST_F(DataFetch, SaysWhatTheServerSays) {
  const HttpServer missing("", {{.status = 404}});
  expect_failed(run(words(missing)),
                missing.url() + ": curl: (22) The requested URL returned error: 404", {});
  EXPECT_EQ(missing.begins(), Begins{0});
  const HttpServer broken("", {{.status = 500}});
  expect_failed(run(words(broken)), "returned error: 500", {});
  EXPECT_EQ(broken.begins().size(), 3u);  // the fault may be temporary
  write_text(in("set.download"), "a part");
  expect_failed(run(words(missing)), "resumes from the 6 bytes in set.download", {"set.download"});
}

// A limit on file sizes stops curl in the middle of the download, as a full disk does.
TEST_F(DataFetch, KeepsWhatThereWasRoomFor) {
  const HttpServer server(archive_, {{}});
  expect_failed(run_program(folder_.path(), words(server), {.file_size = 1000}),
                "; the same command resumes from the 1000 bytes", {"set.download"});
  expect_whole(run(words(server)));
  EXPECT_EQ(server.begins(), (Begins{0, 1000}));
}

TEST_F(DataFetch, LeavesNoFolderOfWhatIsNoDataSet) {
  write_text(in("made/x/readme.txt"), "words");
  output_of({"tar", "-czf", in("made/archive"), "-C", in("made"), "x"});
  archive_ = contents(in("made/archive"));
  sha256_ = output_of({"sha256sum", in("made/archive")}).substr(0, 64);
  fs::remove_all(in("made"));
  const HttpServer other(archive_, {{}});
  expect_failed(run(words(other)), other.url() + ": not a data set: ", {"set.download"});
  fs::remove(in("set.download"));
  archive_ = "no archive";
  write_text(in("text"), archive_);
  sha256_ = output_of({"sha256sum", in("text")}).substr(0, 64);
  fs::remove(in("text"));
  const HttpServer text(archive_, {{}});
  expect_failed(run(words(text)), "can't unpack set.download: tar: ", {"set.download"});
}

// The seedlings' archive is a zip, with no checksum to compare.
TEST_F(DataFetch, UnpacksZip) {
  TorchArchive zip{.members = {}, .flags = 0x800};  // without data descriptors
  for (const char* name : {"a/1.ppm", "a/2.ppm", "b/NonsegmentedV2/1.ppm", "b/2.ppm"})
    zip.members.emplace_back(std::string("NonsegmentedV2/") + name,
                             "P6 9 7 255\n" + std::string(189, 'x'));
  const HttpServer server(zip.bytes(), {{}});
  const Finished end = run("data fetch seedlings set --url " + server.url());
  EXPECT_EQ(end.code, 0) << end.errors;
  EXPECT_TRUE(has(end.output, "unverified: SHA-256 "));
  EXPECT_TRUE(
      has(end.output, ", no checksum is recorded to compare it with\nset: 4 images, 2 classes\n"))
      << end.output;
  EXPECT_EQ(names_in(in("set")), (std::set<std::string>{"a", "b"}));
  EXPECT_EQ(names_in(in("set/b")), (std::set<std::string>{"2.ppm", "NonsegmentedV2"}));
  zip.members = {{"x", "words"}};
  const HttpServer broken(zip.bytes().substr(0, 40), {{}});
  expect_failed(run("data fetch seedlings other --url " + broken.url()),
                "can't unpack other.download: ", {"set", "other.download"});
}

TEST_F(DataFetch, StopsAndKeepsWhatHasArrived) {
  // More bytes than curl buffers.
  const HttpServer server(std::string(200000, 'x'), {{.cut = 100000, .hang = true}});
  Program program(folder_.path(), words(server));
  ASSERT_TRUE(wait_until([&] { return contents(in("set.download")).size() >= 50000; }));
  kill(program.pid(), SIGINT);
  EXPECT_EQ(program.wait().code, 128 + SIGINT);
  EXPECT_FALSE(program.anyone_left());
  EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"set.download"});
}

TEST_F(DataFetch, OfMistakes) {
  const auto error = [this](const std::string& line) {
    const Finished end = refuse(line);
    EXPECT_EQ(end.code, 2) << end.output;
    EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{});
    return end.errors;
  };
  EXPECT_EQ(error("data fetch cifar-10"),
            "data fetch: unknown data set 'cifar-10'; available: cifar10, cifar100, flowers, "
            "seedlings (did you mean cifar10?)\n");
  EXPECT_TRUE(has(error("data fetch"), "data fetch needs cifar10|cifar100|flowers|seedlings"));
  EXPECT_EQ(error("data fetch flowers --sha256 12"),
            "--sha256 12: must be 64 hexadecimal digits\n");
  const Finished end =
      run_program(folder_.path(), "data fetch flowers", {.environment = {{"PATH", "/nowhere"}}});
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.errors,
            "can't start the program curl: No such file or directory; make deps installs what is "
            "missing\n");
  EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{});
}

}  // namespace
}  // namespace bv::test
