// A data set with images that can't be read: one count in all places, and what may be removed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

const std::string skip = "--on-bad-image skip ";

class ProgramBadImages : public ShallowProgramTest {
 protected:
  // 3 of 40 images can't be read. Only decoding finds the last one, whose header is that of a PNG.
  void SetUp() override {
    make_class_folders(in("photos"), 2, 20);
    write_text(in("photos/class0/7.ppm"), "");
    write_text(in("photos/class1/12.ppm"), "<html>404</html>");
    fs::remove(in("photos/class1/3.ppm"));
    write_text(in("photos/class1/3.png"),
               std::string("\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR\0\0\0\x28\0\0\0\x24", 24));
  }
  // Only headers are read before the first step of a set of more than 64 MB.
  void make_it_large() const {
    fs::resize_file(in("photos/class0/0.ppm"), uint64_t{65} << 20);  // sparse
  }
  // The number before `word` in a line of the output that begins with "data: ".
  static int64_t number_before(const std::string& word, const std::string& output) {
    const size_t line = output.find("data: "), end = output.find(" " + word, line);
    const size_t begin = output.rfind(' ', end - 1);
    return std::stoll(output.substr(begin + 1, end - begin - 1));
  }
  int64_t lines_in(const std::string& file) const {
    return std::ranges::count(contents(in(file)), '\n');
  }
  void remove_bad() const {
    for (const char* file : {"class0/7.ppm", "class1/12.ppm", "class1/3.png"})
      fs::remove(in("photos/") + file);
  }
};

const std::string words = on_vit + "--data photos --batch 4 --val-fraction 0.3 ";

TEST_F(ProgramBadImages, AreLeftOutOfEveryCount) {
  const Finished end = go(words + skip + "--steps 2 --out run");
  const int64_t train = number_before("train", end.output), val = number_before("val", end.output);
  EXPECT_EQ(train + val, 37) << end.output;
  EXPECT_TRUE(has(end.output,
                  "warning: 3 of 40 images can't be read and will be skipped, the first "
                  "photos/class0/7.ppm: the file is empty"));
  EXPECT_TRUE(has(end.output, "bad images skipped: 3\n"));
  EXPECT_EQ(lines_in("run/train.txt"), train);
  EXPECT_EQ(lines_in("run/val.txt"), val);
  EXPECT_EQ(contents(in("run/skipped.txt")), "class0/7.ppm\nclass1/12.ppm\nclass1/3.png\n");
  const std::string counts = std::to_string(train) + " train, " + std::to_string(val) + " val";
  EXPECT_TRUE(has(contents(in("run/report.json")), counts));
  for (const std::string n : {"", " -n 2"}) {
    const Finished eval = go("eval run" + n);
    EXPECT_TRUE(has(eval.output, counts)) << eval.output;
    EXPECT_TRUE(has(eval.output, "val: " + std::to_string(val) + " images, "));
    EXPECT_FALSE(has(eval.output, "warning: ")) << eval.output;
  }
  EXPECT_TRUE(has(run("data check photos").output, "photos: 40 images, 2 classes\ndamaged: 3\n"));
  const Finished stats = go("data stats photos " + skip);
  EXPECT_TRUE(has(stats.output, "photos: 37 images, "));
  EXPECT_TRUE(has(stats.errors, "skipped bad image photos/class1/3.png: PNG data is cut off\n"));
}

// Those that a run has found bad may go, before the first step or while it trains.
TEST_F(ProgramBadImages, MayBeRemovedOnceTheyAreSkipped) {
  for (const std::string n : {"", "-n 2 "}) {
    SCOPED_TRACE(n);
    make_it_large();
    const std::string options = n + words + skip + "--epochs 4 ";
    go(options + "--out whole");
    go(options + "--steps 8 --out run");
    EXPECT_EQ(lines_in("run/skipped.txt"), 3);
    remove_bad();
    const Finished end = go(n + "--resume run --epochs 4");
    EXPECT_FALSE(has(end.output, "have changed")) << end.output;
    for (const char* file : {"/last/weights.safetensors", "/last/state.safetensors"})
      EXPECT_TRUE(contents(in("run") + file) == contents(in("whole") + file)) << file;
    EXPECT_EQ(losses(in("run")), losses(in("whole")));
    const Finished eval = go("eval run");
    EXPECT_FALSE(has(eval.output, "warning: ")) << eval.output;
    EXPECT_TRUE(has(eval.output, std::to_string(lines_in("run/val.txt")) + " val"));
    for (const char* folder : {"run", "whole", "photos"}) fs::remove_all(in(folder));
    SetUp();
  }
}

TEST_F(ProgramBadImages, AGoodOneThatIsGoneIsNamed) {
  go(words + skip + "--steps 2 --out run");
  remove_bad();
  for (const std::string list : {"train.txt", "val.txt"}) {
    const std::string good = split(contents(in("run/" + list)), '\n')[0],
                      before = contents(in(good));
    fs::remove(in(good));
    const Finished end = refuse("--resume run --steps 3");
    EXPECT_EQ(end.code, 2) << end.output;
    EXPECT_EQ(end.errors, in("photos") +
                              ": its files or classes have changed since the run in run began (" +
                              good +
                              " is gone); put them back (--on-bad-image skip skips bad ones), or "
                              "start a new run from --weights run/last/weights.safetensors\n");
    write_text(in(good), before);
  }
  write_text(in("photos/class1/new.ppm"), contents(in("photos/class1/1.ppm")));
  EXPECT_TRUE(has(refuse("--resume run --steps 3").errors, "/photos/class1/new.ppm is new); "));
  fs::remove(in("photos/class1/new.ppm"));
  go("--resume run --steps 3");
  // One that was skipped and is good now is used, and may not go.
  write_text(in("photos/class0/7.ppm"), contents(in("photos/class0/8.ppm")));
  go("--resume run --steps 4");
  EXPECT_EQ(lines_in("run/skipped.txt"), 2);
  fs::remove(in("photos/class0/7.ppm"));
  EXPECT_TRUE(has(refuse("--resume run --steps 5").errors, "photos/class0/7.ppm is gone); "));
}

// Whatever the bytes of a name, also once the data has moved.
TEST_F(ProgramBadImages, MayHaveAnyName) {
  for (const char* name : {"photos/class0/caf\xe9.ppm", "photos/class0/a\\n\nb.ppm"})
    write_text(in(name), "");
  go(words + skip + "--epochs 2 --out whole");
  go(words + skip + "--epochs 2 --steps 3 --out run");
  fs::remove(in("photos/class0/a\\n\nb.ppm"));
  remove_bad();
  go("--resume run --epochs 2 --steps 5");
  fs::rename(in("photos"), in("moved"));
  go("--resume run --epochs 2 --data moved");
  EXPECT_TRUE(contents(in("run/last/weights.safetensors")) ==
              contents(in("whole/last/weights.safetensors")));
}

TEST_F(ProgramBadImages, AreFoundByLint) {
  fs::copy_file(in("photos/class0/1.ppm"), in("photos/class1/1.ppm"),
                fs::copy_options::overwrite_existing);
  for (int i = 2; i < 20; ++i) fs::remove(in("photos/class1/" + std::to_string(i) + ".ppm"));
  write_ppm(in("photos/class1/0.ppm"), 30, 40, 1);
  const std::string lint = "lint " + words + "--image-size 64 ";
  const Finished end = go(lint);
  for (const char* line :
       {"warning: damaged: 2 of 23 images: photos/class0/7.ppm: the file is empty, "
        "photos/class1/3.png: PNG data is cut off; use --on-bad-image skip, which leaves them "
        "out\n",
        "warning: with a side below 32 pixels: 1 of 23 images: photos/class1/0.ppm: 30x40; ",
        "warning: equal images in different classes: 1: photos/class0/1.ppm = "
        "photos/class1/1.ppm; "})
    EXPECT_TRUE(has(end.output, line)) << end.output;
  EXPECT_EQ(refuse(lint + "--strict").code, 2);
  const Finished skipping = go(lint + skip);
  EXPECT_TRUE(has(skipping.output, "warning: 2 of 23 images can't be read and will be skipped"));
  EXPECT_FALSE(has(skipping.output, "damaged"));
  for (int i = 20; i < 40; ++i)
    write_ppm(in("photos/class0/" + std::to_string(i) + ".ppm"), 40, 36, i);
  EXPECT_TRUE(has(go(lint).output,
                  "warning: the largest class has 40 images, the smallest 3: a model can ignore "
                  "'class1'"));
}

}  // namespace
}  // namespace bv::test
