// Weights of a checkpoint that are read for something else than resuming their run.
#include "engine/files/checkpoint_read.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/files/checkpoint.h"
#include "engine/weights/tensor_file.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

// A run whose weights are their step's number.
class CheckpointRead : public testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t step : {1, 2, 3}) save(step);
  }
  void save(int64_t step) const {
    Checkpoint c{.model = "vit_tiny", .step = step};
    const auto n = static_cast<float>(step);
    c.weights.tensors["w"] = {.shape = {3}, .data = {n, n, n}};
    c.ema = c.weights;
    c.optimizer = c.weights;
    save_checkpoint(run_.path(), c, tensors_of(c), step == 2, 9);
  }
  void flip(const std::string& file) const {
    std::string bytes = contents(run_ / file);
    bytes[bytes.size() - 2] ^= 1;
    write_text(run_ / file, bytes);
  }
  // The error of reading a file, with DIR in place of the run's folder.
  std::string read(const std::string& file) const {
    return named([&] { read_tensor_file(run_ / file); });
  }
  std::string last() const {
    return named([&] { last_checkpoint(run_.path()); });
  }
  template <class F>
  std::string named(F f) const {
    std::string what = error_of(f);
    const std::string run = run_.path();
    for (size_t at; (at = what.find(run)) != what.npos;) what.replace(at, run.size(), "DIR");
    return what;
  }
  TemporaryFolder run_;
};

const std::string relink = "`ln -sfn step-00000002 DIR/last`",
                  instead = "; DIR/step-00000002 is intact: give it in place of DIR/";

TEST_F(CheckpointRead, AFlippedBitIsFound) {
  EXPECT_EQ(read_tensor_file(run_ / "last/weights.safetensors").tensors.at("w").data[0], 3);
  flip("step-00000003/weights.safetensors");
  EXPECT_EQ(read("last/weights.safetensors"),
            "DIR/step-00000003/weights.safetensors: damaged: its checksum doesn't match the saved "
            "file's" +
                instead + "last, or " + relink);
  EXPECT_EQ(read("step-00000003/weights.safetensors"),
            "DIR/step-00000003/weights.safetensors: damaged: its checksum doesn't match the saved "
            "file's" +
                instead + "step-00000003");
  EXPECT_EQ(read("last/ema.safetensors"), "no error") << "another file";
  EXPECT_EQ(read("best/weights.safetensors"), "no error");
  flip("step-00000003/ema.safetensors");
  EXPECT_TRUE(has(read("last/ema.safetensors"), "ema.safetensors: damaged: "));
}

TEST_F(CheckpointRead, AFileOfAnotherSizeIsFound) {
  const std::string file = "last/weights.safetensors", whole = contents(run_ / file);
  const std::string bytes = std::to_string(whole.size());
  write_text(run_ / file, whole.substr(0, 40));
  EXPECT_TRUE(has(read(file), ": truncated: 40 of " + bytes + " bytes" + instead));
  write_text(run_ / file, whole + "more");
  const std::string longer =
      "DIR/step-00000003/weights.safetensors: not the file that was saved: "
      "it has " +
      std::to_string(whole.size() + 4) + " bytes, state.json says " + bytes;
  EXPECT_EQ(read(file), longer + instead + "last, or " + relink);
  EXPECT_TRUE(has(named([&] { load_checkpoint(run_.path()); }), longer));
  fs::remove(run_ / file);
  EXPECT_EQ(read(file),
            "DIR/step-00000003/weights.safetensors: no such file" + instead + "last, or " + relink);
}

TEST_F(CheckpointRead, ADamagedStateIsFound) {
  write_text(run_ / "last/state.json", "{\"format\": 1}");
  EXPECT_EQ(
      read("last/weights.safetensors"),
      "DIR/step-00000003/state.json: not a barevision checkpoint" + instead + "last, or " + relink);
}

TEST_F(CheckpointRead, WithoutAnotherACopyIsTheWayOut) {
  for (const char* step : {"step-00000001", "step-00000002"}) fs::remove_all(run_ / step);
  flip("last/weights.safetensors");
  EXPECT_TRUE(read("last/weights.safetensors")
                  .ends_with("; there is no other intact checkpoint; a copy of the file in "
                             "another folder isn't checked"));
  write_text(run_ / "copy/weights.safetensors", contents(run_ / "last/weights.safetensors"));
  EXPECT_EQ(read("copy/weights.safetensors"), "no error");
}

TEST_F(CheckpointRead, TheLastOneIsThatOfAResumedRun) {
  EXPECT_EQ(last_checkpoint(run_.path()), run_ / "last");
  fs::remove(run_ / "last");
  EXPECT_EQ(last_checkpoint(run_.path()), run_ / "step-00000003");
  EXPECT_EQ(load_checkpoint(run_.path()).step, 3);
  fs::remove_all(run_ / "step-00000003");
  fs::create_symlink("step-00000003", run_ / "last");
  EXPECT_EQ(last(), "DIR/last: names DIR/step-00000003, which doesn't exist" + instead +
                        "last, or " + relink);
  fs::remove(run_ / "last");
  write_text(run_ / "last", "step-00000002\n");
  const std::string a_file = "DIR/last: a file in place of a checkpoint's folder";
  EXPECT_EQ(last(), a_file + instead + "last, or `rm -r DIR/last; " + relink.substr(1));
  EXPECT_TRUE(has(named([&] { load_checkpoint(run_.path()); }), a_file));
}

TEST_F(CheckpointRead, ALostAverageIsNotReplacedByTheWeights) {
  EXPECT_EQ(weights_in(run_ / "last"), run_ / "last/ema.safetensors");
  fs::remove(run_ / "last/ema.safetensors");
  EXPECT_EQ(weights_in(run_ / "last"), run_ / "last/ema.safetensors");
  EXPECT_TRUE(has(read("last/ema.safetensors"), "ema.safetensors: no such file" + instead));
  for (const char* step : {"step-00000001", "step-00000002"}) fs::remove_all(run_ / step);
  EXPECT_TRUE(read("last/ema.safetensors")
                  .ends_with(": no such file; there is no other intact checkpoint; the weights "
                             "without their average are in DIR/last/weights.safetensors"));
}

}  // namespace
}  // namespace bv::test
