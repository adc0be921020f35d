// Class names that are equal in Unicode, or look alike.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/class_names.h"
#include "data/dataset.h"
#include "data/dataset_stats/data_check.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const std::string composed = "Bl\u00FCte", decomposed = "Blu\u0308te";

class AlikeNames : public testing::Test {
 protected:
  std::string in(const std::string& name) const { return folder_ / name; }
  void make(const Names& class_folders) {
    for (const std::string& name : class_folders)
      for (int i = 0; i < 4; ++i)
        write_ppm(in(name + "/" + std::to_string(i) + ".ppm"), 9, 8, ++made_);
  }
  DataSets open(Names classes = {}, Names order = {}) const {
    return open_dataset(
        {.path = folder_.path(), .classes = std::move(classes), .class_order = std::move(order)});
  }
  std::string refusal(Names classes = {}) const {
    return error_of<DataError>([&] { open(std::move(classes)); });
  }
  DataCheck check() const {
    return check_data(folder_.path(), 1, 1, [](int64_t, int64_t) {});
  }

  TemporaryFolder folder_;
  int made_ = 0;
};

// Decomposed, "Blüte" is sorted before "Blz", composed after it.
TEST_F(AlikeNames, TrainAndValInTwoForms) {
  make({"train/" + decomposed, "train/Blz", "val/" + composed, "val/Blz"});
  const DataSets sets = open();
  EXPECT_EQ(sets.classes, (Names{decomposed, "Blz"}));
  for (int64_t i = 0; i < sets.val->size(); ++i)
    EXPECT_EQ(sets.val->label(i), sets.val->name(i).find("Blz") == std::string::npos ? 0 : 1);
  EXPECT_EQ(open({composed, "Blz"}).classes, (Names{composed, "Blz"}));
  EXPECT_EQ(open({}, {"Blz", composed}).classes, (Names{"Blz", composed}));
  EXPECT_EQ(open({}, {"Blz", composed}).val->label(0), 1);
  EXPECT_TRUE(is_line(refusal({composed, decomposed, "Blz"}), "twice"));
  const DataCheck found = check();
  EXPECT_TRUE(found.clean());
  ASSERT_EQ(found.classes.size(), 2u);
  EXPECT_EQ(found.classes[0].val, 4);
}

TEST_F(AlikeNames, BothFormsInOneFolder) {
  make({composed, decomposed, "Gras"});
  EXPECT_EQ(refusal(), folder_.path() + ": its classes '" + decomposed + "' and '" + composed +
                           "' differ only in their Unicode form (for a shell they are "
                           "$'Blu\\u0308te' and $'Bl\\u00FCte'); rename one, or move its images "
                           "into the other");
  EXPECT_EQ(check().alike_classes,
            Names{"'" + decomposed + "' and '" + composed + "' differ only in their Unicode form"});
  EXPECT_FALSE(check().clean());
}

TEST_F(AlikeNames, CaseAndBlanksAreSaid) {
  make({"train/Cat", "train/dog", "val/cat", "val/dog"});
  const std::string parts = in("train") + " and " + in("val") + " have different classes: ";
  EXPECT_EQ(refusal(), parts +
                           "'Cat' is only in the first; 'cat' differs from it only in upper "
                           "and lower case");
  EXPECT_EQ(check().alike_classes, Names{"'Cat' and 'cat' differ only in upper and lower case"});
  fs::rename(in("train/Cat"), in("train/cat "));
  EXPECT_EQ(refusal(), parts +
                           "'cat ' is only in the first; 'cat' differs from it only in a blank "
                           "at the end");
}

TEST_F(AlikeNames, SideBySide) {
  make({"A", "a", "B", "b", "cat", "cat "});
  const DataSets sets = open();
  EXPECT_EQ(sets.classes.size(), 6u);
  EXPECT_EQ(
      sets.notes,
      Names{"warning: the classes 'A' and 'a' differ only in upper and lower case, and 2 more "
            "pairs likewise; if they are one class, move the images of one into the other"});
  EXPECT_EQ(check().alike_classes.size(), 3u);
  EXPECT_TRUE(is_line(refusal({"A", "a", "B", "b", "cat", "Cat"}),
                      "has no class 'Cat'; 'cat' differs from it only in upper and lower case"));
}

TEST(AlikeNamesOfLists, SayWhyTheyDiffer) {
  EXPECT_EQ(
      alike_names(Names{"cat", " CAT "}),
      Names{"'cat' and ' CAT ' differ only in upper and lower case and a blank at the end and "
            "a blank at the beginning"});
  EXPECT_TRUE(alike_names(Names{"cat", "cats", "c at"}).empty());
  EXPECT_EQ(alike_names(Names{"\u00D6l", "o\u0308l"}),
            Names{"'\u00D6l' and 'o\u0308l' differ only in upper and lower case"});
  EXPECT_EQ(lookalike_of("dog", Names{"cat"}), "");
  const ClassPositions places(Names{"x", composed});
  EXPECT_EQ(places.of(decomposed), 1u);
  EXPECT_FALSE(places.of("y"));
  EXPECT_TRUE(same_classes(Names{composed, "b"}, Names{decomposed, "b"}));
  EXPECT_FALSE(same_classes(Names{composed, "b"}, Names{"b", decomposed}));
}

}  // namespace
}  // namespace bv::test
