// Files of records that aren't those of the index: exchanged, not listed, or without one.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/datasets/unpack_records.h"
#include "data/dataset.h"
#include "data/dataset_stats/data_check.h"
#include "data/records/record_index.h"
#include "data/records/scan_records.h"
#include "data/records/tfrecord.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

class LostRecords : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_records) GTEST_SKIP() << "without protobuf";
  }
  std::string in(const std::string& name) const { return folder_ / name; }
  // A shard of two records of the same size and class.
  void write(const std::string& file, std::optional<int64_t> label, const std::string& text) {
    std::string bytes;
    for (int i = 0; i < 2; ++i)
      bytes += framed_record(write_example({.image = "P5 1 1 255 " + std::string(1, ++pixel_),
                                            .label = label,
                                            .text = text,
                                            .height = 1,
                                            .width = 1}));
    write_text(in(file), bytes);
  }
  // As data index does.
  void index(const std::string& folder, ScanOptions options = {}) const {
    for (const ScannedSet& set :
         scan_records(in(folder), find_record_sets(in(folder)), options, [](int64_t) {}))
      write_text(in(folder + "/" + set.name + ".index"), index_text(set.index));
  }
  void exchange(const std::string& one, const std::string& other) const {
    const std::string bytes = contents(in(one));
    write_text(in(one), contents(in(other)));
    write_text(in(other), bytes);
  }
  static DataSets open(const std::string& path) {
    return open_dataset({.path = path, .val_fraction = 0});
  }
  std::string refusal(const std::string& path = "tf") const {
    return error_of<DataError>([&] { open(in(path)); });
  }
  // The message when all pictures are read.
  std::string reading() const {
    return error_of<DataError>([&] {
      const DataSets sets = open(in("tf"));
      for (int64_t i = 0; i < sets.train->size(); ++i) sets.train->image(i, 0);
    });
  }
  static DataCheck check(const std::string& path) {
    return check_data(path, 1, 1, [](int64_t, int64_t) {});
  }

  TemporaryFolder folder_;
  char pixel_ = 'a';
};

const std::string first = "x-00000-of-00002.tfrecord", second = "x-00001-of-00002.tfrecord";

TEST_F(LostRecords, ExchangedFilesEndARun) {
  write("tf/" + first, 1, "ant");
  write("tf/" + second, 2, "bee");
  index("tf");
  EXPECT_EQ(reading(), "no error");
  exchange("tf/" + first, "tf/" + second);
  const std::string line =
      in("tf/" + first) + ": record 0 at byte 0 has the class 'bee', " + in("tf/x.index") +
      " lists one of the class 'ant' there: it is not the file that was indexed; put that back, or "
      "index this one: `rm " +
      in("tf/x.index") + " && ./launcher data index " + in("tf") + "`";
  EXPECT_EQ(reading(), line);
  EXPECT_EQ(error_of<DataError>([&] { check(in("tf")); }), line);
  fs::create_directory(in("out"));
  EXPECT_EQ(error_of<DataError>([&] {
              unpack_records(in("tf"), in("out"), true, [](int64_t, int64_t) { return true; });
            }),
            line);
  fs::remove(in("tf/x.index"));
  index("tf");
  EXPECT_EQ(reading(), "no error");
  // Indexed files that have .idx.
  exchange("tf/" + first, "tf/" + second);
  write_text(in("tf/x-00000-of-00002.idx"), "0 1\n");
  EXPECT_TRUE(is_line(reading(), "`rm " + in("tf/x.index") + " " + in("tf") + "/*.idx && "));
}

TEST_F(LostRecords, ExchangedLabelsEndARun) {
  for (const int base : {0, 1}) {
    write("tf/" + first, base, "");
    write("tf/" + second, base + 1, "");
    index("tf", {.label_base = base});
    EXPECT_EQ(reading(), "no error");
    exchange("tf/" + first, "tf/" + second);
    EXPECT_TRUE(is_line(reading(), base ? first + ": record 0 at byte 0 has the label 2, "
                                        : second + ": record 0 at byte 0 has the label 0, "));
    fs::remove(in("tf/x.index"));
  }
  // Names of classes that are numbers, as those of digits are, in records counted from 1.
  write("tf/" + first, 1, "0");
  write("tf/" + second, 2, "1");
  index("tf");
  EXPECT_EQ(reading(), "no error");
  write_text(in("tf/" + second), contents(in("tf/" + first)));
  EXPECT_TRUE(is_line(reading(), second + ": record 0 at byte 0 has the class '0', "));
}

TEST_F(LostRecords, FilesThatTheIndexDoesntListAreSaid) {
  write("tf/" + first, 1, "ant");
  write("tf/" + second, 2, "bee");
  EXPECT_EQ(check(in("tf")).lost, Lines{});
  index("tf");
  write("tf/x-00002-of-00002.tfrecord", 2, "bee");
  const std::string line = "a file of records isn't in " + in("tf/x.index") + " and is not read, " +
                           in("tf/x-00002-of-00002.tfrecord") +
                           "; move it elsewhere, or list it: `rm " + in("tf/x.index") +
                           " && ./launcher data index " + in("tf") + "`";
  for (const char* path : {"tf", "tf/x.index"}) {
    EXPECT_EQ(open(in(path)).notes, Lines{"warning: " + line});
    EXPECT_EQ(check(in(path)).lost, Lines{line});
    EXPECT_FALSE(check(in(path)).clean());
  }
  fs::create_directory(in("out"));
  const auto unpacked =
      unpack_records(in("tf"), in("out"), false, [](int64_t, int64_t) { return true; });
  EXPECT_EQ(unpacked->warnings, Lines{line});
  // Another set is another data set: an index that is named doesn't list it.
  fs::rename(in("tf/x-00002-of-00002.tfrecord"), in("tf/train-00000-of-00001.tfrecord"));
  EXPECT_EQ(open(in("tf/x.index")).notes, Lines{});
  EXPECT_TRUE(
      has(check(in("tf")).lost[0], "train-00000-of-00001.tfrecord; move it into another folder"));
}

TEST_F(LostRecords, MissingFilesAreFound) {
  write("tf/x-00000-of-00003", 1, "ant");
  write("tf/x-00001-of-00003", 2, "bee");
  write("tf/._x-00002-of-00003", 2, "bee");  // hidden
  const std::string line =
      "records are empty or missing: 1 of 3 shards of x, the first x-00002-of-00003";
  EXPECT_EQ(check(in("tf")).lost, Lines{line});
  EXPECT_FALSE(check(in("tf")).clean());
  fs::create_directory(in("out"));
  const auto unpacked =
      unpack_records(in("tf"), in("out"), false, [](int64_t, int64_t) { return true; });
  EXPECT_EQ(unpacked->warnings, Lines{line});
}

// After a bad length the shard's other records can't be found.
TEST_F(LostRecords, TheRestOfAShardIsLeftOutInWords) {
  write("tf/x-00000-of-00002", 1, "ant");
  write("tf/x-00001-of-00002", 2, "bee");
  const std::string whole = contents(in("tf/x-00001-of-00002"));
  const size_t size = whole.size() / 2;
  const auto warning = [&](const std::string& bytes) {
    write_text(in("tf/x-00001-of-00002"), bytes);
    return open_dataset({.path = in("tf"), .val_fraction = 0, .skip_bad_records = true}).notes[1];
  };
  const std::string path = in("tf/x-00001-of-00002"),
                    place = path + ": record 1 at byte " + std::to_string(size) + ": ";
  EXPECT_EQ(warning(whole.substr(0, size + 20)),
            "warning: 1 record and all after it in this shard can't be read and are left out, " +
                place + "the file is cut off");
  std::string damaged = whole;
  damaged[size + 20] ^= 1;
  EXPECT_EQ(warning(damaged),
            "warning: a record can't be read and is left out, " + place + "its checksum is wrong");
}

// data index writes the indexes of all sets, so all of them have to go first.
TEST_F(LostRecords, TheWayToRebuildNamesTheIndexesOfAllSets) {
  for (const std::string set : {"train", "val"})
    write("tf/" + set + "-00000-of-00001", set == "val" ? 2 : 1, set == "val" ? "bee" : "ant");
  index("tf");
  write_text(in("tf/train.index"), "");
  EXPECT_TRUE(has(refusal(), "`rm " + in("tf/train.index") + " " + in("tf/val.index") +
                                 " && ./launcher data index " + in("tf") + "`"))
      << refusal();
}

TEST_F(LostRecords, WhatStandsInThePlaceOfAnIndexIsNamed) {
  write("tf/" + first, 1, "ant");
  write("tf/" + second, 2, "bee");
  const std::string rebuild =
      "`rm " + in("tf/x.index") + " && ./launcher data index " + in("tf") + "`";
  write_text(in("tf/x.index"), "");
  EXPECT_EQ(refusal(), in("tf/x.index") + ": the file is empty; " + rebuild +
                           " writes it again from the records");
  write_text(in("tf/x.index"), "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\n");
  EXPECT_TRUE(is_line(refusal(), "x.index: a Git LFS pointer: git lfs pull"));
  write_text(in("tf/x.index"), "0 52\n");  // of another program
  EXPECT_EQ(open(in("tf")).notes,
            Lines{"all records of " + in("tf") + " were read for their labels, since " +
                  in("tf/x.index") + " is no index (it doesn't begin with '# barevision index'); " +
                  rebuild + " stores them, so that later runs start at once"});
}

}  // namespace
}  // namespace bv::test
