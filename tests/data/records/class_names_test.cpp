// --class-names: names for records whose labels have none.
#include "data/class_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "data/dataset.h"
#include "data/records/example.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// TFRecords of three labels, from 1, in tools/train and tools/validation.
class ClassNames : public ProgramTest {
 protected:
  void SetUp() override {
    if (!have_records) GTEST_SKIP() << "without protobuf";
    for (const auto& entry : fs::directory_iterator("tests/golden/records")) {
      const std::string name = entry.path().filename(), part = name.substr(0, name.find('-'));
      if (part != "train" && part != "validation") continue;
      fs::create_directories(in("tools/" + part));
      fs::copy_file(entry.path(), in("tools/" + part + "/" + name));
    }
    // As Windows editors save it, with a byte order mark.
    write_text(in("names.txt"),
               "\xEF\xBB\xBF"
               "ant\r\n  bee\r\ncrab 3\t\r\n\r\n");
  }
  void expect_refused(const std::string& words, const std::string& line) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_EQ(end.errors, line + "\n") << words;
  }
  const std::string training_ = on_vit + "--data tools --batch 4 --steps 2 ";
};

TEST_F(ClassNames, AreThoseOfTheLabels) {
  const DataSets bare = open_dataset({.path = in("tools")});
  DataOptions options{.path = in("tools")};
  options.class_names = in("names.txt");
  const DataSets sets = open_dataset(options);
  EXPECT_EQ(sets.classes, (Names{"ant", "bee", "crab 3"}));
  EXPECT_NE(sets.fingerprint, bare.fingerprint);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(sets.train->label(i), i % 3);
  options.classes = {"crab 3", "ant", "bee"};
  const DataSets ordered = open_dataset(options);
  EXPECT_EQ(ordered.classes, options.classes);
  EXPECT_EQ(ordered.train->label(0), 1);
  options.classes = {};
  write_text(in("names.txt"), "ant\nbee\ncrab\ndog");  // a name that no record uses
  EXPECT_EQ(open_dataset(options).classes, (Names{"ant", "bee", "crab", "dog"}));
}

TEST_F(ClassNames, ReachTheCheckpointAndPredictions) {
  go(training_ + "--class-names names.txt --out run");
  EXPECT_TRUE(has(contents(in("run/config.json")), "\"classes\": [\"ant\",\"bee\",\"crab 3\"]"))
      << contents(in("run/config.json"));
  EXPECT_TRUE(has(contents(in("run/last/weights.safetensors")), "crab 3"));
  EXPECT_TRUE(has(go("eval run").output, "crab 3"));
  EXPECT_TRUE(has(go("eval run --data ./tools").output, "crab 3"));  // the run's names, too
  EXPECT_TRUE(has(go("eval run --data tools --class-names names.txt").output, "crab 3"));
  EXPECT_TRUE(has(go("predict run/last tools").output, "crab 3"));
  go("--resume run --steps 3");
  write_text(in("names.txt"), "bee\nant\ncrab 3\n");
  EXPECT_TRUE(has(refuse("--resume run --steps 4").errors, "its files or classes have changed"));
}

TEST_F(ClassNames, OfARunOutliveTheirFile) {
  const std::string gone = "--class-names " + in("names.txt") + ": no such file";
  go(training_ + "--class-names names.txt --out run");
  const std::string before = go("eval run --json").output;
  fs::remove(in("names.txt"));
  const Finished end = go("eval run --json");
  EXPECT_EQ(end.output, before);
  EXPECT_TRUE(has(end.errors, gone + " any more; the names are those that the run has stored\n"));
  // The names are in another order than the labels, or the data is another one: which label has
  // which name can't be told.
  const std::string unknown =
      gone +
      ", and whether the names that the run has stored are in the order of the data's labels "
      "can't be told; give --class-names FILE";
  write_text(in("names.txt"), "ant\nbee\ncrab\n");
  go(training_ + "--class-names names.txt --classes crab,ant,bee --out turned");
  fs::remove(in("names.txt"));
  expect_refused("eval turned", unknown);
  fs::remove(fs::directory_iterator(in("tools/train"))->path());
  expect_refused("eval run", unknown);
}

TEST_F(ClassNames, AreWrittenIntoAnIndex) {
  go("data index tools --class-names names.txt");
  for (const char* index : {"tools/train.index", "tools/validation.index"})
    EXPECT_TRUE(has(contents(in(index)), "# class 0 ant\n# class 1 bee\n# class 2 crab 3\n"));
  EXPECT_EQ(open_dataset({.path = in("tools")}).classes, (Names{"ant", "bee", "crab 3"}));
  expect_refused(training_ + "--class-names names.txt",
                 "--class-names names.txt: the records of tools name their classes: class 0 is "
                 "'ant'; leave the option out");
}

TEST_F(ClassNames, OfOnePartThatNamesThemAlready) {
  go("data index tools/validation --class-names names.txt");
  DataOptions options{.path = in("tools/train"), .val = in("tools/validation")};
  options.class_names = in("names.txt");
  EXPECT_EQ(open_dataset(options).classes, (Names{"ant", "bee", "crab 3"}));
  write_text(in("names.txt"), "ant\nbee\ncrab\n");
  EXPECT_TRUE(has(error_of<DataError>([&] { open_dataset(options); }), "different classes"));
}

TEST_F(ClassNames, InTwoUnicodeForms) {
  write_text(in("names.txt"), "bl\u00FCte\nbee\ncrab\n");
  go("data index tools/train --class-names names.txt");
  write_text(in("names.txt"), "blu\u0308te\nbee\ncrab\n");
  go("data index tools/validation --class-names names.txt");
  DataOptions options{.path = in("tools/train"), .val = in("tools/validation")};
  EXPECT_EQ(open_dataset(options).classes, (Names{"bl\u00FCte", "bee", "crab"}));
  write_text(in("names.txt"), "bl\u00FCte\nbee\nblu\u0308te\n");
  options.class_names = in("names.txt");
  EXPECT_TRUE(is_line(error_of<DataError>([&] { open_dataset(options); }),
                      "line 3 names the class 'blu\u0308te', as does line 1"));
}

TEST_F(ClassNames, OfAnIndexWithoutNames) {
  go("data index tools");
  DataOptions options{.path = in("tools")};
  options.class_names = in("names.txt");
  EXPECT_EQ(open_dataset(options).classes, (Names{"ant", "bee", "crab 3"}));
  // One part counts from 0, the other from 1, so the first name's label is ambiguous.
  std::string index = contents(in("tools/validation.index"));
  for (const char* k : {"0", "1", "2"}) index[index.find(std::string("# class ") + k) + 10] = *k;
  write_text(in("tools/validation.index"), index);
  EXPECT_TRUE(has(error_of<DataError>([&] { open_dataset(options); }),
                  "validation.index have different classes: class 0 is '1' in one, '0' in"));
}

TEST_F(ClassNames, TooFewAreRefused) {
  write_text(in("names.txt"), "ant\nbee\n");
  const std::string line =
      "--class-names names.txt: has 2 names, but in tools/train/train-00000-of-00002 record 2 at "
      "byte 304 has the label 3, counted from 1; name each label's class, one per line";
  expect_refused(training_ + "--class-names names.txt", line);
  expect_refused("data index tools --class-names names.txt", line);
  EXPECT_FALSE(fs::exists(in("tools/train.index")));
}

TEST_F(ClassNames, BadFilesAreRefused) {
  const auto refused = [&](const std::string& text, const std::string& line) {
    write_text(in("names.txt"), text);
    expect_refused(training_ + "--class-names names.txt", "names.txt: " + line);
    expect_refused("data index tools --class-names names.txt", "names.txt: " + line);
  };
  refused("ant\n\nbee\ncrab\n",
          "line 2 is empty; write a class's name on each line, in label order");
  refused("ant\nbee\nant\n", "line 3 names the class 'ant', as does line 1; give it another name");
  refused(std::string("a\0n\0", 4),
          "line 1 has a control character or is not UTF-8; save the file as plain text, in UTF-8");
  refused("ant\nb\xff\xfe\n",
          "line 2 has a control character or is not UTF-8; save the file as plain text, in UTF-8");
  refused("\n\n", "no names; write those of at least two classes, one per line in label order");
  refused("ant", "one name; write those of at least two classes, one per line in label order");
  expect_refused(training_ + "--class-names none.txt", "none.txt: no such file");
  make_class_folders(in("photos"), 2, 4);
  expect_refused(on_vit + "--data photos --class-names names.txt",
                 "--class-names names.txt: is for records whose labels have no names; photos has "
                 "its own; leave the option out");
}

}  // namespace
}  // namespace bv::test
