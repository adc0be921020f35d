// Records as other programs label and name them.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/datasets/image_list.h"
#include "app/datasets/pack_records.h"
#include "data/dataset.h"
#include "data/records/record_index.h"
#include "data/records/scan_records.h"
#include "data/records/tfrecord.h"
#include "data/sources.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

// The wire format of tf.train.Example, for values that this program never writes.
std::string field(int number, const std::string& bytes) {
  std::string text{static_cast<char>(number << 3 | 2)};
  size_t left = bytes.size();
  for (; left > 127; left >>= 7) text += static_cast<char>(left % 128 + 128);
  return text + static_cast<char>(left) + bytes;
}
std::string strings(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += field(1, value);
  return field(1, list);
}
std::string floats(const std::vector<float>& values) {
  std::string list(4 * values.size(), '\0');
  if (!values.empty()) std::memcpy(list.data(), values.data(), list.size());
  return field(2, field(1, list));
}
std::string integers(const std::vector<int>& values) {
  std::string list;
  for (const int value : values) list += static_cast<char>(value);
  return field(3, field(1, list));
}

using Feature = std::pair<std::string, std::string>;
std::string record(const std::vector<Feature>& features) {
  std::string map = field(1, field(1, "image/encoded") + field(2, strings({"P5 1 1 255 x"})));
  for (const auto& [key, value] : features) map += field(1, field(1, key) + field(2, value));
  return framed_record(field(1, map));
}
const std::string label = "image/class/label", text = "image/class/text";

class RecordLabels : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_records) GTEST_SKIP() << "without protobuf";
  }
  std::string in(const std::string& name) const { return folder_ / name; }
  void write(const std::string& file, const std::vector<std::vector<Feature>>& records) const {
    std::string bytes;
    for (const auto& features : records) bytes += record(features);
    write_text(in(file), bytes);
  }
  std::string refusal(const std::string& path, bool skip = false) const {
    return error_of<DataError>([&] { open_dataset({.path = in(path), .skip_bad_records = skip}); });
  }

  TemporaryFolder folder_;
};

TEST_F(RecordLabels, OfAnotherTypeAreNamed) {
  const std::pair<Feature, std::string> cases[] = {
      {{label, strings({"cat"})}, label + " holds a string, 'cat'; "},
      {{"label", floats({2})}, "label holds a float, 2; "},
      {{"label", integers({0, 0, 1})}, "label holds 3 integers: 0 0 1 (one-hot); "},
      {{label, integers({1, 2})}, label + " holds 2 integers: 1 2; "},
      {{label, strings({"a", "b", "c", "d", "e"})}, "5 strings: 'a' 'b' 'c' 'd' ...; "},
      {{label, integers({})}, label + " holds 0 integers; "}};
  const std::string read =
      "a label is read as one integer (int64) from image/class/label or label, or, if a record has "
      "neither, as a class's name from image/class/text";
  for (const auto& [feature, found] : cases) {
    write("tf/x.tfrecord", {{feature}, {feature}});
    const std::string line = refusal("tf");
    EXPECT_TRUE(is_line(line, "tf/x.tfrecord: record 0 at byte 0: ")) << line;
    EXPECT_TRUE(has(line, found + read)) << line;
    EXPECT_FALSE(has(line, "skip")) << line;
    EXPECT_TRUE(has(refusal("tf", true), "none of the records of records can be read")) << found;
  }
  write("tf/x.tfrecord", {{}, {}});
  EXPECT_TRUE(is_line(refusal("tf"), "record 0 at byte 0: it has no label; " + read));
  EXPECT_FALSE(has(refusal("tf"), "skip"));
  // One record among others that are labelled may be left out.
  write("tf/x.tfrecord", {{{label, integers({1})}}, {{label, integers({0})}}, {}});
  EXPECT_TRUE(has(refusal("tf"), "record 2 at byte "));
  EXPECT_TRUE(has(refusal("tf"), "--on-bad-image skip leaves such records out"));
  // The first key that holds one integer counts.
  write("tf/x.tfrecord", {{{label, floats({7})}, {"label", integers({1})}},
                          {{label, integers({0})}, {"label", floats({7})}}});
  EXPECT_EQ(open_dataset({.path = in("tf")}).classes, (std::vector<std::string>{"0", "1"}));
}

TEST_F(RecordLabels, MayBeNamesOfClassesAlone) {
  write("tf/train-00000-of-00002", {{{text, strings({"cat"})}}, {{text, strings({"ant"})}}});
  write("tf/train-00001-of-00002", {{{text, strings({"cat"})}}});
  write("tf/val-00000-of-00001", {{{text, strings({"bee"})}}, {{text, strings({"cat"})}}});
  const DataSets sets = open_dataset({.path = in("tf")});
  EXPECT_EQ(sets.classes, (std::vector<std::string>{"ant", "bee", "cat"}));
  ASSERT_EQ(sets.train->size(), 3);
  ASSERT_EQ(sets.val->size(), 2);
  const auto labels = [](const Dataset& part) {
    std::vector<int> all;
    for (int64_t i = 0; i < part.size(); ++i) all.push_back(part.label(i));
    return all;
  };
  EXPECT_EQ(labels(*sets.train), (std::vector<int>{2, 0, 2}));
  EXPECT_EQ(labels(*sets.val), (std::vector<int>{1, 2}));
  // An index keeps the names and their order.
  const auto scan = [&](ScanOptions options) {
    return scan_records(in("tf"), find_record_sets(in("tf")), options, [](int64_t) {});
  };
  for (const ScannedSet& set : scan({}))
    write_text(in("tf/" + set.name + ".index"), index_text(set.index));
  const DataSets indexed = open_dataset({.path = in("tf")});
  EXPECT_EQ(indexed.fingerprint, sets.fingerprint);
  EXPECT_EQ(labels(*indexed.val), labels(*sets.val));
  EXPECT_TRUE(is_line(error_of<DataError>([&] { scan({.label_base = 1}); }),
                      "--label-base: the records of " + in("tf") + " have names of classes"));
  // A record with a label among them.
  write("two/x.tfrecord", {{{text, strings({"cat"})}}, {{label, integers({1})}}});
  EXPECT_TRUE(is_line(refusal("two"), "record 1 at byte "));
  EXPECT_TRUE(has(refusal("two"), "has a label, 1, but other records have only a class's name"));
  write("two/x.tfrecord", {{{text, strings({"a\nb"})}}});
  EXPECT_TRUE(is_line(refusal("two"), "its class's name (image/class/text) has control"));
}

TEST_F(RecordLabels, OfClassesWithoutImagesAreWarnedOf) {
  std::vector<std::vector<Feature>> records;
  for (const int number : {0, 5, 9, 0, 5, 9}) records.push_back({{label, integers({number})}});
  write("tf/x.tfrecord", records);
  const auto notes = [&](DataOptions options) {
    options.path = in("tf");
    std::string lines;
    for (const std::string& note : open_dataset(options).notes) lines += note + "\n";
    return lines;
  };
  EXPECT_TRUE(has(notes({}), "warning: 7 of 10 classes have no image: 1, 2, 3, 4, 6, ...\n"));
  std::string names;
  for (int i = 0; i < 11; ++i) names += "name" + std::to_string(i) + "\n";
  write_text(in("names.txt"), names);
  EXPECT_TRUE(has(notes({.class_names = in("names.txt")}),
                  "warning: 8 of 11 classes have no image: name1, name2, name3"));
  records.clear();
  for (const int number : {0, 2}) records.push_back({{label, integers({number})}});
  write("tf/x.tfrecord", records);
  EXPECT_TRUE(has(notes({}), "warning: 1 of 3 classes has no image: 1\n"));
  records.push_back({{label, integers({1})}});
  write("tf/x.tfrecord", records);
  EXPECT_FALSE(has(notes({}), "no image"));
}

TEST_F(RecordLabels, OfListsMayLeaveClassesWithoutImages) {
  write_text(in("photos/1.pgm"), "P5 1 1 255 x");
  const ImageList list{.folder = in("photos"),
                       .classes = {"ant", "bee", "cat"},
                       .images = {{.path = "1.pgm", .label = 1}}};
  const auto packed = pack_records(list, "list.txt", in("packed"), {.name = "x"},
                                   [](int64_t, int64_t) { return true; });
  EXPECT_EQ(packed->empty_classes, "2 of 3 classes have no image: ant, cat");
}

TEST_F(RecordLabels, AreReadFromFilesOfAnyName) {
  const std::vector<std::vector<Feature>> two = {{{label, integers({0})}},
                                                 {{label, integers({1})}}};
  for (const char* name : {"part-00000", "train.record"}) {
    const std::string folder = "any/" + std::string(name);
    write(folder + "/" + name, two);
    write_text(in(folder + "/_SUCCESS"), "");
    write_text(in(folder + "/README.txt"), "two classes of one picture each");
    EXPECT_EQ(open_dataset({.path = in(folder), .val_fraction = 0}).train->size(), 2) << name;
  }
  write("split/train/part-00000", two);
  write("split/validation/part-00000", two);
  EXPECT_EQ(open_dataset({.path = in("split")}).val->size(), 2);
  // Not beside class folders, nor where other files have records' names, nor TensorBoard's files.
  write("photos/events.record", two);
  for (const char* name : {"photos/cat/1.pgm", "photos/dog/1.pgm"})
    write_text(in(name), "P5 1 1 255 x");
  EXPECT_FALSE(is_records(in("photos")));
  write("mixed/a.tfrecord", two);
  write("mixed/a.old", two);
  EXPECT_EQ(find_record_sets(in("mixed"))[0].files, std::vector<std::string>{"a.tfrecord"});
  write("logs/events.out.tfevents.1.host", two);
  EXPECT_FALSE(is_records(in("logs")));
}

TEST_F(RecordLabels, OfRecordsWithoutAPictureSayWhatIsThere) {
  const auto what = [](const std::vector<Feature>& features) {
    std::string map;
    for (const auto& [key, value] : features) map += field(1, field(1, key) + field(2, value));
    return error_of<BadImage>([&] { parse_example(field(1, map)); });
  };
  const std::string none = "an Example without an image: ";
  EXPECT_EQ(what({}), none + "it has none of image/encoded, image and jpeg");
  EXPECT_EQ(what({{"image/encoded", strings({""})}}), none + "image/encoded holds a string, ''");
  EXPECT_EQ(what({{"jpeg", strings({"a", "b"})}}), none + "jpeg holds 2 strings: 'a' 'b'");
  EXPECT_EQ(what({{"image", integers({1, 2})}}), none + "image holds 2 integers: 1 2");
}

TEST_F(RecordLabels, InCompressedFilesAreToBeUnpacked) {
  write_text(in("my tf/train.tfrecord.gz"), "\x1F\x8B\x08 and so on");
  EXPECT_EQ(refusal("my tf"), in("my tf") + ": has train.tfrecord.gz, a compressed file; its " +
                                  "records are read once it is unpacked: `gunzip '" + in("my tf") +
                                  "'/*.gz`");
  for (const std::string name : {"train.tar", "train.tar.gz"}) {
    const std::string folder = "of " + name;
    write_text(in(folder + "/" + name), "an archive");
    EXPECT_EQ(refusal(folder), in(folder) + ": has " + name +
                                   ", an archive; unpack it: `tar -xf '" + in(folder) + "/" + name +
                                   "' -C '" + in(folder) + "'`");
  }
  write_text(in("tf/train.tfrecord"), "\x1F\x8B\x08 and much more");
  const std::string file = in("tf/train.tfrecord");
  EXPECT_EQ(refusal("tf"), file + ": record 0 at byte 0: compressed by gzip: `mv " + file + " " +
                               file + ".gz && gunzip " + file + ".gz`");
  write_text(in("photos/cat/1.pgm"), "P5 1 1 255 x");
  write_text(in("photos/dog/1.pgm"), "P5 1 1 255 x");
  write_text(in("photos/backup.gz"), "\x1F\x8B\x08");
  EXPECT_EQ(refusal("photos"), "no error");
}

TEST_F(RecordLabels, OfGitLfsPointersAreToBeFetched) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\n",
                    what = "a Git LFS pointer: git lfs pull fetches the file that it stands for";
  write_text(in("tf/x.tfrecord"), pointer);
  EXPECT_EQ(refusal("tf"), in("tf/x.tfrecord") + ": record 0 at byte 0: " + what);
  write_text(in("tf/x.index"), pointer);
  EXPECT_EQ(refusal("tf/x.index"), "--data " + in("tf/x.index") + ": is " + what);
  write_text(in("tf/x.index"),
             "# barevision index 1\n# class 0 a\n# class 1 b\n0\tx.tfrecord\t0\t500\t1.jpg\n"
             "1\tx.tfrecord\t500\t500\t2.jpg\n");
  const DataSets sets = open_dataset({.path = in("tf"), .val_fraction = 0});
  EXPECT_EQ(error_of<BadImage>([&] { sets.train->image(0, 0); }), what);
}

}  // namespace
}  // namespace bv::test
