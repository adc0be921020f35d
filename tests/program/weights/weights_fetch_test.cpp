// weights list and fetch, from a server on this machine that misbehaves like real servers.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/other_program.h"
#include "base/text.h"
#include "engine/files/safetensors.h"
#include "engine/options/model_config.h"
#include "engine/weights/model_tensors.h"
#include "tests/engine/weights/torch_archive.h"
#include "tests/program/http_server.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Begins = std::vector<size_t>;
using Names = std::set<std::string>;

class WeightsFetch : public ProgramTest {
 protected:
  // Its vit_tiny takes 200 kB.
  WeightsFetch() {
    fs::copy(models_folder(), in("models"), fs::copy_options::recursive);
    const std::string path = in("models/vit_tiny.json");
    write_text(path, replaced(replaced(contents(path), "\"embed_dim\": 192", "\"embed_dim\": 24"),
                              "\"depth\": 12", "\"depth\": 1"));
    const ModelConfig model = parse_model_config(contents(path), path, "vit_tiny");
    for (const ParameterShape& p : parameter_shapes(model, {})) {
      size_t count = 1;
      for (const int64_t n : p.shape) count *= size_t(n);
      tensors_[p.name] = {p.shape, std::vector<float>(count, 0.5f)};
    }
    file_ = file_of(tensors_);
  }
  std::string file_of(const Tensors& tensors) const {
    write_safetensors(in("made"), {}, views_of(tensors));
    const std::string file = contents(in("made"));
    fs::remove(in("made"));
    return file;
  }
  ProgramOptions options() const {
    return {
        .environment = {{"BAREVISION_CACHE", in("cache")}, {"BAREVISION_MODELS", in("models")}}};
  }
  std::string words(const HttpServer& server, const std::string& name = name_) const {
    return "weights fetch " + name + " --mirror " + server.place();
  }
  Finished fetch(const HttpServer& server) const {
    return run_program(folder_.path(), words(server), options());
  }
  Names names() const { return names_in(in("cache/timm")); }
  void expect_whole(const Finished& end) const {
    EXPECT_EQ(end.code, 0) << end.output << end.errors;
    EXPECT_EQ(names(), Names{only_ + ".safetensors"});
    EXPECT_TRUE(contents(path_()) == file_);
  }
  static void expect_failed(const Finished& end, const std::string& line, int code = 1) {
    EXPECT_EQ(end.code, code) << end.output << end.errors;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), line));
  }
  std::string path_() const { return in("cache/timm/" + only_ + ".safetensors"); }
  std::string by_hand() const {
    return "; by hand: put https://huggingface.co/timm/" + only_ +
           "/resolve/main/model.safetensors at " + path_() + "\n";
  }

  static inline const std::string only_ = "vit_tiny_patch16_224.augreg_in21k_ft_in1k",
                                  name_ = "timm/" + only_;
  Tensors tensors_;
  std::string file_;
};

std::string sha256_of_text(const std::string& folder, const std::string& text) {
  write_text(folder + "/text", text);
  const ProgramEnd end = run_to_end({"sha256sum", folder + "/text"}, [] { return true; });
  fs::remove(folder + "/text");
  return end.output.substr(0, 64);
}

TEST_F(WeightsFetch, DownloadsOnce) {
  const HttpServer server(file_, {{}});
  const Finished end = fetch(server);
  expect_whole(end);
  const std::string sha256 = sha256_of_text(folder_.path(), file_);
  const auto said = [&](const char* how) {
    return name_ +
           ": vit_tiny of 224 pixels, about 22 MiB, unverified; licence: apache-2.0; source: "
           "https://huggingface.co/timm/" +
           only_ + "\nunverified: SHA-256 " + sha256 +
           ", no checksum is recorded to compare it with\n" + how + ": " + path_() + ", " +
           std::to_string(tensors_.size()) +
           " tensors\ntrain from it: ./launcher vit_tiny --data PATH --weights " + name_ + "\n";
  };
  EXPECT_EQ(end.output, said("saved"));
  EXPECT_EQ(server.paths(),
            std::vector<std::string>{"/timm/" + only_ + "/resolve/main/model.safetensors"});
  EXPECT_EQ(fetch(server).output, said("already there"));
  EXPECT_EQ(server.begins(), Begins{0});
  const Finished list = run_program(folder_.path(), "weights list vit_tiny", options());
  EXPECT_TRUE(
      has(list.output, name_ + "      224     1000    22  apache-2.0    unverified, here\n"))
      << list.output;
}

TEST_F(WeightsFetch, TakesTheMirrorFromTheEnvironmentAndTheCacheFromTheLine) {
  const HttpServer server(file_, {{}});
  const Finished end = run_program(folder_.path(), "weights fetch " + name_ + " --cache other",
                                   {.environment = {{"BAREVISION_MIRROR", server.place() + "/"},
                                                    {"BAREVISION_MODELS", in("models")}}});
  EXPECT_EQ(end.code, 0) << end.errors;
  EXPECT_TRUE(contents(in("other/timm/" + only_ + ".safetensors")) == file_);
  EXPECT_TRUE(has(end.output, "\ntrain from it: BAREVISION_CACHE=other ./launcher vit_tiny "));
  const Finished home = run_program(folder_.path(), words(server),
                                    {.environment = {{"BAREVISION_CACHE", ""},
                                                     {"XDG_CACHE_HOME", in("xdg")},
                                                     {"BAREVISION_MODELS", in("models")}}});
  EXPECT_EQ(home.code, 0) << home.errors;
  EXPECT_TRUE(fs::exists(in("xdg/barevision/weights/timm")));
}

TEST_F(WeightsFetch, GoesOnWhereTheTransferBrokeOff) {
  const HttpServer server(file_, {{.cut = 1000}, {.cut = 500}, {}});
  expect_whole(fetch(server));
  EXPECT_EQ(server.begins(), (Begins{0, 1000, 1500}));
}

TEST_F(WeightsFetch, GoesOnWhereAnEarlierCommandStopped) {
  const HttpServer server(file_, {{.cut = 1000}, {.cut = 0}, {}});
  expect_failed(fetch(server), "; the same command resumes from the 1000 bytes in " + path_() +
                                   ".part" + by_hand().substr(0, 9));
  EXPECT_EQ(names(), Names{only_ + ".safetensors.part"});
  expect_whole(fetch(server));
  EXPECT_EQ(server.begins(), (Begins{0, 1000, 1000}));
}

TEST_F(WeightsFetch, BeginsAgainIfTheServersFileIsAnother) {
  const HttpServer old(std::string(file_.size(), 'x'),
                       {{.cut = 1000, .etag = "\"a\""}, {.cut = 0}});
  EXPECT_EQ(fetch(old).code, 1);
  EXPECT_EQ(contents(path_() + ".part"), std::string(1000, 'x'));
  const HttpServer server(file_, {{.etag = "\"b\""}});
  expect_whole(fetch(server));
  EXPECT_EQ(server.begins(), (Begins{1000, 0}));
}

TEST_F(WeightsFetch, AsksNothingForAFileThatIsWhole) {
  const HttpServer server(file_, {{.hang = true, .etag = "\"a\""}});
  Program program(folder_.path(), words(server), options());
  ASSERT_TRUE(wait_until([&] { return contents(path_() + ".part").size() == file_.size(); }));
  kill(-program.pid(), SIGKILL);
  program.wait();
  expect_whole(fetch(server));
  EXPECT_EQ(server.begins(), Begins{0});
}

TEST_F(WeightsFetch, SaysWhatToDoWithADamagedFile) {
  fs::create_directories(in("cache/timm"));
  const HttpServer server(file_, {{}});
  for (const std::string& text : {std::string("<html>"), file_.substr(0, 5000)}) {
    write_text(path_(), text);
    expect_failed(fetch(server), "; delete it and run ./launcher weights fetch " + name_, 2);
  }
  EXPECT_EQ(server.begins(), Begins());
}

TEST_F(WeightsFetch, StopsAndKeepsWhatHasArrived) {
  const HttpServer server(file_, {{.cut = 100000, .hang = true}});
  Program program(folder_.path(), words(server), options());
  ASSERT_TRUE(wait_until([&] { return contents(path_() + ".part").size() >= 50000; }));
  kill(program.pid(), SIGINT);
  EXPECT_EQ(program.wait().code, 128 + SIGINT);
  EXPECT_EQ(names(), Names{only_ + ".safetensors.part"});
}

TEST_F(WeightsFetch, OfTwoAtOnceOneDownloadsAndTheOtherWaits) {
  HttpServer server(file_, {{.cut = 100000, .hang = true}});
  Program one(folder_.path(), words(server), options());
  ASSERT_TRUE(wait_until([&] { return contents(path_() + ".part").size() >= 50000; }));
  Program other(folder_.path(), words(server), options());
  usleep(300 * 1000);
  EXPECT_FALSE(other.has_ended());
  server.release();
  // The process that waited may briefly open a .part file of its own.
  for (const Finished& end : {one.wait(), other.wait()}) expect_whole(end);
  EXPECT_EQ(server.begins(), Begins{0});
}

TEST_F(WeightsFetch, WhoWaitedGoesOnWhereTheOtherWasStopped) {
  const HttpServer server(file_, {{.cut = 100000, .hang = true}, {}});
  Program one(folder_.path(), words(server), options());
  ASSERT_TRUE(wait_until([&] { return contents(path_() + ".part").size() >= 50000; }));
  Program other(folder_.path(), words(server), options());
  usleep(300 * 1000);
  kill(one.pid(), SIGINT);
  EXPECT_EQ(one.wait().code, 128 + SIGINT);
  expect_whole(other.wait());
  ASSERT_EQ(server.begins().size(), 2u);
  EXPECT_GE(server.begins()[1], 50000u);
}

// The killed process's curl is still writing.
TEST_F(WeightsFetch, WhoWaitedWaitsForTheCurlOfAKilledProcess) {
  HttpServer server(file_, {{.cut = 100000, .hang = true}, {}});
  Program one(folder_.path(), words(server), options());
  ASSERT_TRUE(wait_until([&] { return contents(path_() + ".part").size() >= 50000; }));
  kill(one.pid(), SIGKILL);
  one.wait();
  Program other(folder_.path(), words(server), options());
  usleep(300 * 1000);
  EXPECT_EQ(server.begins(), Begins{0});
  server.release();
  expect_whole(other.wait());
}

TEST_F(WeightsFetch, RefusesAnotherFile) {
  const HttpServer server(file_, {{}});
  const std::string name = "torchvision/resnet18-f37072fd", path = in("cache/" + name + ".pth"),
                    sha256 = sha256_of_text(folder_.path(), file_);
  const Finished end = run_program(folder_.path(), words(server, name), options());
  expect_failed(end, server.place() + "/models/resnet18-f37072fd.pth: its SHA-256 is " + sha256 +
                         ", not f37072fd...; it was damaged in transit, or is another file; by "
                         "hand: put https://download.pytorch.org/models/resnet18-f37072fd.pth at " +
                         path);
  EXPECT_EQ(names_in(in("cache/torchvision")), Names{});
  write_text(path, file_);
  expect_failed(run_program(folder_.path(), words(server, name), options()),
                path + ": its SHA-256 is " + sha256 +
                    ", not f37072fd...; delete it and run ./launcher weights fetch " + name,
                2);
  EXPECT_EQ(server.begins(), Begins{0});
  // No weights at all, with nothing to compare
  const HttpServer page("<html>", {{}});
  expect_failed(fetch(page), path_() + ".part: a web page, not weights", 2);
  EXPECT_EQ(names(), Names{});
}

// A mirror may have something else under the name, or nothing that any model has.
TEST_F(WeightsFetch, KeepsNoTensorsOfAnotherModel) {
  const auto refused = [this](const Tensors& tensors, const std::string& misfit) {
    const HttpServer server(file_of(tensors), {{}});
    expect_failed(fetch(server),
                  server.place() + "/timm/" + only_ + "/resolve/main/model.safetensors: not " +
                      name_ + ", which is a vit_tiny: " + path_() +
                      ".part: these weights don't fit the model; " + misfit,
                  2);
    EXPECT_EQ(names(), Names{});
  };
  refused({{"w", {{1}, {1}}}}, "missing: ");
  Tensors other = tensors_;
  other["head.bias"] = {{10}, std::vector<float>(10)};
  refused(other, "wrong shape: head.bias [10] for [1000]");
  // Nor if it was put there by hand.
  write_text(path_(), file_of(other));
  const HttpServer server(file_, {{}});
  expect_failed(fetch(server), "; delete it and run ./launcher weights fetch " + name_, 2);
  EXPECT_EQ(server.begins(), Begins());
}

// A table with the checksum of a small file.
TEST_F(WeightsFetch, KnowsTheRightFile) {
  const std::string file = torch_file_of(tensors_), sha256 = sha256_of_text(folder_.path(), file);
  const HttpServer server(file, {{}});
  const std::string name = "torchvision/resnet18.IMAGENET1K_V1";
  const std::string table = in("models/weights/torchvision.json"),
                    entry = replaced(contents(table), "\"model\": \"resnet18\"",
                                     "\"model\": \"vit_tiny\", \"patch_size\": 16");
  for (const size_t digits : {8, 64}) {
    fs::remove_all(in("cache"));
    write_text(table, replaced(entry, "\"f37072fd\"", "\"" + sha256.substr(0, digits) + "\""));
    const Finished end = run_program(folder_.path(), words(server, name), options());
    EXPECT_EQ(end.code, 0) << end.errors;
    EXPECT_TRUE(has(end.output, digits == 8
                                    ? "unverified: SHA-256 " + sha256 +
                                          ", of which only the first digits are recorded, " +
                                          sha256.substr(0, 8) + "\n"
                                    : "\nSHA-256: " + sha256 + ", as recorded\n"));
    EXPECT_EQ(has(end.output, "about 45 MiB, unverified;"), digits == 8);
  }
}

TEST_F(WeightsFetch, SaysWhatTheServerSays) {
  const HttpServer missing("", {{.status = 404}});
  const Finished end = fetch(missing);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.errors, missing.place() + "/timm/" + only_ +
                            "/resolve/main/model.safetensors: curl: (22) The requested URL "
                            "returned error: 404" +
                            by_hand());
  EXPECT_EQ(names(), Names{});
  const Finished nobody = run_program(
      folder_.path(), "weights fetch " + name_ + " --mirror http://127.0.0.1:1", options());
  expect_failed(nobody, "curl: (7) Failed to connect to 127.0.0.1 port 1");
}

// A limit on file sizes stops curl in the middle of the download, as a full disk does.
TEST_F(WeightsFetch, KeepsWhatThereWasRoomFor) {
  const HttpServer server(file_, {{}});
  ProgramOptions full = options();
  full.file_size = 1000;
  expect_failed(run_program(folder_.path(), words(server), full),
                "can't write " + path_() +
                    ".part, is the disk full? (curl: (23) Failure writing output to destination); "
                    "the same command resumes from the 1000 bytes in " +
                    path_() + ".part; --cache DIR names another folder");
  expect_whole(fetch(server));
  EXPECT_EQ(server.begins(), (Begins{0, 1000}));
}

TEST_F(WeightsFetch, OnADiskThatIsFullOrReadOnly) {
  const SmallDisk disk(in("cache"), "64k");
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs can't be mounted here";
  const HttpServer server(file_, {{}});
  expect_failed(fetch(server), "can't write " + path_() + ".part, is the disk full? (curl: (23) ");
  EXPECT_EQ(names(), Names{only_ + ".safetensors.part"});
  fs::remove_all(in("cache/timm"));
  ASSERT_EQ(mount("", in("cache").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  expect_failed(fetch(server),
                "can't create " + in("cache/timm") +
                    ": Read-only file system; --cache DIR names another folder",
                2);
  EXPECT_EQ(server.begins(), Begins{0});
}

TEST_F(WeightsFetch, WhereACacheIsNoFolder) {
  write_text(in("cache"), "a file");
  const HttpServer server(file_, {{}});
  expect_failed(fetch(server), "can't create " + in("cache/timm") + ": ", 2);
}

// Files that root makes in another user's home would be in that user's way.
TEST_F(WeightsFetch, LeavesAnotherUsersCache) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directories(in("home/.cache"));
  if (chown(in("home/.cache").c_str(), 12345, 12345) != 0)
    GTEST_SKIP() << "this root can't give a folder away: " << std::strerror(errno);
  const HttpServer server(file_, {{}});
  const ProgramOptions o{
      .environment = {{"BAREVISION_CACHE", ""}, {"XDG_CACHE_HOME", ""}, {"HOME", in("home")}}};
  const Finished end = run_program(folder_.path(), words(server), o);
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.errors, in("home/.cache") +
                            " belongs to user 12345, you are root: --cache DIR names another "
                            "folder, BAREVISION_CACHE for all commands\n");
  EXPECT_EQ(names_in(in("home/.cache")), Names{});
  EXPECT_EQ(server.begins(), Begins{});
}

TEST_F(WeightsFetch, OfMistakes) {
  const auto error = [this](const std::string& line) {
    const Finished end = refuse(line);
    EXPECT_EQ(end.code, 2) << end.output;
    return end.errors;
  };
  const std::string list = "; ./launcher weights list shows all\n";
  EXPECT_EQ(
      error("weights fetch timm/resnet34.a9_in1k"),
      "no public weights timm/resnet34.a9_in1k are known; similar: timm/resnet34.a1_in1k" + list);
  EXPECT_EQ(error("weights fetch torchvision/resnet50"),
            "no public weights torchvision/resnet50 are known; similar: "
            "torchvision/resnet50-0676ba61, torchvision/resnet50-11ad3fa6" +
                list);
  EXPECT_TRUE(has(error("weights fetch resnet50"), " and 14 more" + list));
  EXPECT_TRUE(has(error("weights list resnet"), "unknown model 'resnet'"));
  EXPECT_TRUE(has(error("weights"), "weights fetch"));
  EXPECT_TRUE(has(error("weights fetch"), "weights fetch needs NAME"));
  const Finished none = run_program(
      folder_.path(), "weights list",
      {.environment = {{"BAREVISION_CACHE", ""}, {"XDG_CACHE_HOME", ""}, {"HOME", ""}}});
  EXPECT_EQ(none.errors,
            "no folder for public weights: neither BAREVISION_CACHE nor HOME is set\n");
}

}  // namespace
}  // namespace bv::test
