// Data sets of TFRecords: the index, refusals, and equality with the packed folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <span>

#include "app/datasets/image_list.h"
#include "app/datasets/pack_records.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/records/record_index.h"
#include "data/records/scan_records.h"
#include "data/records/shard_names.h"
#include "data/records/tfrecord.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* two_rows =
    "# barevision index 1\n# class 0 ant\n# class 1 bee\n"
    "0\tr.tfrecord\t0\t100\tant/1.ppm\n1\tr.tfrecord\t100\t50\tbee/a b.ppm\n";

TEST(RecordIndex, IsReadAndWritten) {
  const RecordIndex index = parse_index(two_rows, "x.index");
  EXPECT_EQ(index.classes, (std::vector<std::string>{"ant", "bee"}));
  ASSERT_EQ(index.rows.size(), 2u);
  EXPECT_EQ(index.name(index.rows[1]), "bee/a b.ppm");
  EXPECT_EQ(index.rows[1].number, 1u);
  EXPECT_EQ(index_text(index), two_rows);
  EXPECT_EQ(idx_texts(index), (std::vector<std::string>{"0 100\n100 50\n"}));
  const std::string objects =
      "# barevision index 1\n# class 0 ant\n# class 1 bee\n0\tr\t0\t100\t1.jpg\t0,0,32,40\n"
      "1\tr\t0\t100\t1.jpg\t5,6,7,8\n";
  const RecordIndex boxes = parse_index(objects, "x.index");
  EXPECT_EQ(boxes.boxes[1], (Region{.top = 6, .left = 5, .height = 8, .width = 7}));
  EXPECT_EQ(index_text(boxes), objects);
  EXPECT_EQ(idx_texts(boxes), (std::vector<std::string>{"0 100\n"}));
}

TEST(RecordIndex, IsRefusedByLine) {
  const std::string head = "# barevision index 1\n# class 0 ant\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "not an index of records"},
      {"# barevision index 2\n", "an index of version 2; this program reads version 1"},
      {"# barevision index 1\n0\tr\t0\t50\ta\n", "line 2: label 0 is not one of the 0 classes"},
      {head, "lists no images"},
      {head + "# class 2 bee\n", "line 3: expected '# class 1 NAME'"},
      {head + "# class 1 ant\n", "line 3: names the class 'ant' twice"},
      {head + "0\tr\t0\n", "line 3: expected label, file, offset, size and name"},
      {head + "0\tr\t0\tx\ta\n", "line 3: expected label, file, offset, size and name"},
      {head + "1\tr\t0\t50\ta\n", "line 3: label 1 is not one of the 1 classes"},
      {head + "0\tr\t0\t15\ta\n", "line 3: a record can't have 15 bytes"},
      {head + "0\tr\t0\t50\ta\n0\tr\t49\t50\tb\n",
       "line 4: its record begins at 49, the one before ends at 50"},
      {head + "0\tr\t0\t50\ta\n0\tr\t0\t50\ta\n", "line 4: lists a record again"},
      {head + "0\t../r\t0\t50\ta\n", "line 3: the file ../r is not in the index's folder"},
      {head + "0\t/r\t0\t50\ta\n", "line 3: the file /r is not in the index's folder"},
      {head + "0\tr\t0\t50\ta\t1,2,3\n", "line 3: expected left,top,width,height"},
      {head + "0\tr\t0\t50\ta\t1,2,0,3\n", "line 3: expected left,top,width,height"},
      {head + "0\tr\t0\t50\ta\t1,2,3,4\n0\tr\t50\t50\tb\n",
       "some lines have a box and some have none"},
      {head + "0\tr\t9999999999999999999\t50\ta\n", "line 3: the offset is too large"},
      {head + "0\tr\t99999999999999999999\t50\ta\n", "line 3: the offset is too large"},
      {head + "99999999999\tr\t0\t50\ta\n",
       "line 3: label 99999999999 is not one of the 1 classes"},
      {head + "0\tr\t0\t99999999999\ta\n", "line 3: a record can't have 99999999999 bytes"},
      {head + "-1\tr\t0\t50\ta\n", "line 3: expected label, file, offset, size and name"},
  };
  for (const auto& [text, line] : cases)
    EXPECT_TRUE(is_line(error_of<DataError>([&] { parse_index(text, "x.index"); }), line)) << text;
}

class Records : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_records) GTEST_SKIP() << "without protobuf";
    for (int i = 0; i < 20; ++i)
      write_ppm(folder_ / ("photos/" + std::string(i % 2 ? "ant" : "bee") + "/" +
                           std::to_string(i) + ".ppm"),
                40 + i, 44, i);
  }
  std::string in(const std::string& name) const { return folder_ / name; }

  Packed pack(const std::string& from, const std::string& out, PackOptions options) const {
    const ImageList list = list_folder(in(from), {});
    return *pack_records(list, "list.txt", in(out), options, [](int64_t, int64_t) { return true; });
  }
  std::string refusal(const std::string& path) const {
    return error_of<DataError>([&] { open_dataset({.path = in(path)}); });
  }

  TemporaryFolder folder_;
};

std::vector<std::vector<uint8_t>> batches_of(const DataSets& sets, bool train) {
  const Dataset& data = train ? *sets.train : *sets.val;
  Loader loader(data, {.kind = sets.kind, .image_size = 32, .local_batch = 2, .workers = 2}, train);
  loader.start(0, 0);
  std::vector<std::vector<uint8_t>> all;
  for (int64_t k = 0; k < loader.batches_per_epoch() + (train ? 3 : 0); ++k) {
    const Batch& b = loader.next();
    all.emplace_back(b.images, b.images + 2 * 32 * 32 * 3);
    for (int i = 0; i < b.count; ++i) all.back().push_back(static_cast<uint8_t>(b.labels[i]));
  }
  return all;
}

TEST_F(Records, AreTheFolderTheyWerePackedFrom) {
  pack("photos", "packed", {.name = "some", .shards = 3, .workers = 2});
  EXPECT_EQ(names_in(in("packed")),
            (std::set<std::string>{"some-00000-of-00003.idx", "some-00000-of-00003.tfrecord",
                                   "some-00001-of-00003.idx", "some-00001-of-00003.tfrecord",
                                   "some-00002-of-00003.idx", "some-00002-of-00003.tfrecord",
                                   "some.index"}));
  for (const uint64_t seed : {0u, 1u}) {
    const DataOptions options{.val_fraction = 0.3, .split_seed = seed};
    DataOptions of_folder = options, of_records = options;
    of_folder.path = in("photos");
    of_records.path = in(seed ? "packed/some.index" : "packed");
    const DataSets folder = open_dataset(of_folder), records = open_dataset(of_records);
    EXPECT_EQ(records.classes, folder.classes);
    EXPECT_TRUE(records.held_out && records.records && !folder.records);
    ASSERT_EQ(records.train->size(), folder.train->size());
    ASSERT_EQ(records.val->size(), folder.val->size());
    EXPECT_EQ(batches_of(records, true), batches_of(folder, true));
    EXPECT_EQ(batches_of(records, false), batches_of(folder, false));
  }
  const DataSets sets = open_dataset({.path = in("packed")});
  EXPECT_TRUE(sets.notes.empty());
  EXPECT_EQ(sets.train->files(), 3);
  EXPECT_TRUE(
      has(sets.train->name(0), "packed/some-00000-of-00003.tfrecord: record 0 at byte 0 (ant/"))
      << sets.train->name(0);
  EXPECT_EQ(sets.description,
            in("packed") + ", 18 train, 2 val (split by --val-fraction), 2 classes");
  // An index without the rows of one shard, as if that shard were empty.
  std::string rest;
  for (const std::string& line : split(contents(in("packed/some.index")), '\n'))
    if (!line.empty() && !has(line, "some-00001-of")) rest += line + "\n";
  write_text(in("packed/some.index"), rest);
  write_text(in("packed/some-00001-of-00003.tfrecord"), "");
  EXPECT_EQ(
      open_dataset({.path = in("packed")}).notes,
      std::vector<std::string>{"warning: records are empty or missing: 1 of 3 shards of some, "
                               "the first some-00001-of-00003"});
}

// Each image is announced to the data set once, in the order of use and before it is read.
TEST(RecordsLoader, SaysWhatComesNext) {
  struct Listener : Dataset {
    int64_t size() const override { return 50; }
    int label(int64_t) const override { return 0; }
    std::string name(int64_t) const override { return "picture"; }
    Image image(int64_t index, int) const override {
      const std::lock_guard lock(mutex);
      late += !std::ranges::count(told, static_cast<uint32_t>(index));
      return black_image(8, 8);
    }
    void will_need(std::span<const uint32_t> indices) const override {
      const std::lock_guard lock(mutex);
      told.insert(told.end(), indices.begin(), indices.end());
    }
    mutable std::mutex mutex;
    mutable std::vector<uint32_t> told;
    mutable int late = 0;
  };
  for (const bool train : {true, false}) {
    const Listener data;
    std::vector<uint32_t> expected;
    Loader loader(data,
                  {.kind = DataKind::photos,
                   .image_size = 8,
                   .local_batch = 3,
                   .rank = 1,
                   .ranks = 2,
                   .workers = 2,
                   .prefetch = 1},
                  train);
    const std::vector<uint32_t> order = epoch_order(0, 4, 50);
    for (uint32_t k = 2; train && k < 8; ++k)
      for (uint32_t i = 0; i < 3; ++i) expected.push_back(order[6 * k + 3 + i]);
    for (uint32_t i = 25; !train && i < 50; ++i) expected.push_back(i);
    loader.start(train ? 4 : 0, train ? 2 : 0);
    for (int64_t k = train ? 2 : 0; k < loader.batches_per_epoch(); ++k) {
      loader.next();
      const std::lock_guard lock(data.mutex);
      ASSERT_LE(data.told.size(), size_t(3 * (k + (train ? 0 : 2) + 1 + 1 + 4))) << k;
    }
    const std::lock_guard lock(data.mutex);
    EXPECT_EQ(data.late, 0);
    ASSERT_GE(data.told.size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), data.told.begin()));
  }
}

TEST_F(Records, AreTheSameForAnyNumberOfWorkers) {
  for (const int workers : {1, 3})
    pack("photos", "w" + std::to_string(workers), {.name = "x", .shards = 2, .workers = workers});
  for (const std::string& name : names_in(in("w1")))
    EXPECT_EQ(contents(in("w1/" + name)), contents(in("w3/" + name))) << name;
  EXPECT_EQ(contents(in("w1/x-00000-of-00002.idx")), idx_texts(read_index(in("w1/x.index")))[0]);
}

TEST_F(Records, ASplitHasKnownNames) {
  const std::string photos = in("photos");
  pack("photos", "packed", {.name = "train"});
  EXPECT_EQ(open_dataset({.path = in("packed")}).val->size(), 2);
  for (const char* name : {"ant/1.ppm", "ant/2.ppm", "bee/3.ppm"})
    write_ppm(in("others/" + std::string(name)), 40, 44, 1);
  pack("others", "packed", {.name = "validation"});
  const DataSets sets = open_dataset({.path = in("packed")});
  EXPECT_EQ(sets.train->size(), 20);
  EXPECT_EQ(sets.val->size(), 3);
  EXPECT_FALSE(sets.held_out);
  pack("photos", "packed", {.name = "more"});
  EXPECT_TRUE(
      is_line(refusal("packed"), "has more.index, train.index, validation.index; a data set"));
  EXPECT_EQ(open_dataset({.path = in("packed/more.index")}).train->size(), 18);
  const DataSets named =
      open_dataset({.path = in("packed/more.index"), .val = in("packed/validation.index")});
  EXPECT_EQ(named.train->size(), 20);
  EXPECT_EQ(named.val->size(), 3);
  EXPECT_TRUE(is_line(
      error_of<DataError>([&] { open_dataset({.path = in("packed/more.index"), .val = photos}); }),
      "not records, but --data"));
}

TEST_F(Records, FingerprintFollowsNamesLabelsAndClasses) {
  pack("photos", "a", {.name = "x"});
  pack("photos", "b", {.name = "y", .shards = 4});
  const auto print = [&](const std::string& path) {
    return open_dataset({.path = in(path)}).fingerprint;
  };
  EXPECT_EQ(print("a"), print("b"));
  std::string text = contents(in("a/x.index"));
  write_text(in("a/x.index"), replaced(text, "ant/1.ppm", "ant/2.ppm"));
  EXPECT_NE(print("a"), print("b"));
  const size_t row = text.find("\n0\t") + 1;
  text[row] = '1';
  write_text(in("a/x.index"), text);
  EXPECT_NE(print("a"), print("b"));
  // A class without images is allowed; a single class is refused.
  const std::string more = replaced(contents(in("b/y.index")), "1 bee\n", "1 bee\n# class 2 cow\n");
  write_text(in("b/y.index"), more);
  EXPECT_EQ(open_dataset({.path = in("b")}).classes.size(), 3u);
  write_text(in("a/x.index"),
             "# barevision index 1\n# class 0 ant\n0\tx-00000-of-00001.tfrecord\t0\t" +
                 std::to_string(fs::file_size(in("a/x-00000-of-00001.tfrecord"))) + "\t1.ppm\n");
  EXPECT_TRUE(is_line(refusal("a"), "x.index: has one class, 'ant'; at least two are needed"));
}

// The message depends on which byte of a record is damaged.
TEST_F(Records, DamageIsSaidWithFileRecordAndOffset) {
  pack("photos", "packed", {.name = "x"});
  const std::string file = in("packed/x-00000-of-00001.tfrecord"), whole = contents(file);
  const RecordIndex index = read_index(in("packed/x.index"));
  const uint64_t second = index.rows[1].offset;
  const auto read = [&](size_t damaged) {
    std::string bytes = whole;
    bytes[damaged] ^= 1;
    write_text(file, bytes);
    const DataSets sets = open_dataset({.path = in("packed"), .val_fraction = 0});
    sets.train->image(0, 0);
    return sets.train->name(1) + ": " + error_of<BadImage>([&] { sets.train->image(1, 0); });
  };
  const std::string place = file + ": record 1 at byte " + std::to_string(second) + " (ant/";
  EXPECT_TRUE(read(second).starts_with(place));
  EXPECT_TRUE(read(second).ends_with(
      "): the checksum of the record's length is wrong, or it is not the file "
      "that was indexed"));
  EXPECT_TRUE(read(second + 500).ends_with("): the record's checksum is wrong"));
  // A file truncated in its last two records has two bad images.
  write_text(file, whole.substr(0, index.rows[18].offset + 20));
  const DataSets cut = open_dataset({.path = in("packed"), .val_fraction = 0});
  const std::string why = "the file was cut off at " + std::to_string(index.rows[18].offset + 20) +
                          " bytes, or it is not the file that was indexed";
  cut.train->image(17, 0);
  for (const int64_t i : {18, 19})
    EXPECT_EQ(error_of<BadImage>([&] { cut.train->image(i, 0); }), why);
  // Bytes that the index doesn't list are ignored: if bad records were skipped, an index may lack
  // the rest of a file.
  write_text(file, whole + "x");
  EXPECT_EQ(open_dataset({.path = in("packed"), .val_fraction = 0}).train->image(19, 0).height, 44);
  // Another file's contents.
  write_text(file, framed_record(std::string(100, 'x')) + whole);
  EXPECT_EQ(error_of<BadImage>([&] {
              open_dataset({.path = in("packed"), .val_fraction = 0}).train->image(0, 0);
            }),
            "the record has 116 bytes, the index says " + std::to_string(index.rows[0].size) +
                ": it is not the file that was indexed");
  fs::remove(file);
  EXPECT_TRUE(is_line(refusal("packed"), "x.index: lists " + file + ", which can't be read"));
  fs::create_symlink("gone", file);
  EXPECT_TRUE(
      is_line(refusal("packed"), "x.index: lists " + file + ", a link without a target (-> gone)"));
}

TEST_F(Records, PackRefuses) {
  const auto line = [&](PackOptions options) {
    try {
      pack("photos", "packed", options);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(line({.name = "x", .shards = 21}),
            "--shards 21: list.txt has 20 images, and no shard may be empty");
  write_text(in("photos/ant/1.ppm"), "P6 9 9 255 ");
  EXPECT_TRUE(is_line(line({.name = "x"}), "photos/ant/1.ppm: "));
  EXPECT_FALSE(fs::exists(in("packed")));
  const Packed packed = pack("photos", "packed", {.name = "x", .skip_bad = true});
  EXPECT_EQ(packed.skipped, 1);
  EXPECT_EQ(packed.records, 19);
  EXPECT_TRUE(
      is_line(line({.name = "x"}), "x-00000-of-00001.tfrecord exists; give another --name"));
}

TEST_F(Records, OfTensorFlowAreReadWithAndWithoutIndex) {
  const std::string golden = "tests/golden/records";
  for (const auto& entry : fs::directory_iterator(golden)) {
    const std::string name = entry.path().filename(), part = name.substr(0, name.find('-'));
    if (part != "train" && part != "validation") continue;
    fs::create_directories(in("tools/" + part));
    fs::copy_file(entry.path(), in("tools/" + part + "/" + name));
  }
  const auto check = [&](const DataSets& sets) {
    EXPECT_EQ(sets.classes, (std::vector<std::string>{"1", "2", "3"}));
    ASSERT_EQ(sets.train->size(), 8);
    ASSERT_EQ(sets.val->size(), 3);
    for (int64_t i = 0; i < 11; ++i) {
      const Dataset& part = i < 8 ? *sets.train : *sets.val;
      const int64_t at = i < 8 ? i : i - 8;
      EXPECT_EQ(part.label(at), i % 3);
      const Image image = part.image(at, 0);
      ASSERT_EQ(image.pixels.size(), 8u * 8 * 3);
      EXPECT_EQ(image.pixels[0], i * 20);
      EXPECT_EQ(image.pixels[3 * 8 * 2 + 1], 60);
    }
  };
  const DataSets found = open_dataset({.path = in("tools")});
  check(found);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_TRUE(has(found.notes[0], "were read for their labels; ./launcher data index"));
  // An .idx of other records, in the place where imagenet-tools writes it.
  const std::string idx = in("tools/idx_files/train/train-00000-of-00002.idx");
  write_text(idx, "0 10\n");
  EXPECT_TRUE(is_line(refusal("tools"), idx + ": doesn't match "));
  fs::remove(idx);
  const std::string file = in("tools/train/train-00001-of-00002"), whole = contents(file);
  write_text(file, whole.substr(0, 300));
  EXPECT_TRUE(is_line(refusal("tools"), file + ": record 1 at byte 152: the file is cut off"));
  EXPECT_TRUE(has(refusal("tools"),
                  " (--on-bad-image skip leaves such records out, with all after them in their "
                  "shards; data index has it too)"));
  write_text(file, "");
  EXPECT_TRUE(is_line(refusal("tools"), file + ": the file is empty (--on-bad-image skip leaves "
                                               "such files out; data index has it too)"));
  write_text(file, std::string(100, 'x'));
  EXPECT_TRUE(is_line(refusal("tools"), file + ": record 0 at byte 0: not a TFRecord file"));
  // The record is skipped and counted, with all records after it.
  const auto skipped = [&](const std::string& bytes, size_t left) {
    write_text(file, bytes);
    const ScannedSet set = scan_records(in("tools"), find_record_sets(in("tools")),
                                        {.skip_bad = true}, [](int64_t) {})[0];
    EXPECT_EQ(set.index.rows.size(), left);
    return set.skipped.text() + ": " + set.skipped.first;
  };
  EXPECT_EQ(skipped("", 4), "1 whole file: " + file + ": the file is empty");
  EXPECT_EQ(skipped(whole.substr(0, 300), 5), "1 record and all after it in this shard: " + file +
                                                  ": record 1 at byte 152: the file is cut off");
  std::string damaged = whole;
  damaged[100] ^= 1, damaged[152] ^= 1;
  EXPECT_EQ(skipped(damaged, 4), "1 record, 1 record and all after it in this shard: " + file +
                                     ": record 0 at byte 0: its checksum is wrong");
}

TEST_F(Records, LabelsBeginWhereTheyAreSaidTo) {
  const auto write = [&](std::vector<int> labels) {
    std::string file;
    for (const int label : labels)
      file += framed_record(write_example(
          {.image = contents(in("photos/ant/1.ppm")), .label = label, .height = 44, .width = 41}));
    write_text(in("tf/x.tfrecord"), file);
  };
  write({1, 2, 3});
  EXPECT_EQ(open_dataset({.path = in("tf")}).classes, (std::vector<std::string>{"1", "2", "3"}));
  write({0, 2, 1});
  EXPECT_EQ(open_dataset({.path = in("tf")}).classes, (std::vector<std::string>{"0", "1", "2"}));
  const auto scan = [&](int base) {
    return scan_records(in("tf"), find_record_sets(in("tf")), {.label_base = base}, [](int64_t) {});
  };
  EXPECT_TRUE(is_line(error_of<DataError>([&] { scan(1); }),
                      "x.tfrecord: record 0 at byte 0: its label is 0; use --label-base 0"));
  write({1, 2, 3});
  EXPECT_EQ(scan(0)[0].index.classes.size(), 4u);
  write({-1, 2});
  EXPECT_TRUE(is_line(refusal("tf"), "tf/x.tfrecord: record 0 at byte 0: its label is -1"));
}

TEST_F(Records, OfOneLabelHaveOneName) {
  const auto record = [&](const std::string& text) {
    return framed_record(write_example({.image = contents(in("photos/ant/1.ppm")),
                                        .label = 1,
                                        .text = text,
                                        .height = 44,
                                        .width = 41}));
  };
  const std::string first = record("ant");
  write_text(in("tf/x.tfrecord"), first + record("bee"));
  EXPECT_TRUE(is_line(refusal("tf"), "x.tfrecord: record 1 at byte " +
                                         std::to_string(first.size()) +
                                         ": its label, 1, has another name"));
}

TEST(MissingShards, AreTold) {
  using Files = std::vector<std::string>;
  EXPECT_EQ(missing_shards(Files{"a.tfrecord", "x-00000-of-00002", "x-00001-of-00002"}), "");
  EXPECT_EQ(missing_shards(Files{"x-00000-of-00004.tfrecord", "x-00003-of-00004.tfrecord",
                                 "y-00001-of-00002.tfrecord"}),
            "2 of 4 shards of x, the first x-00001-of-00004, 1 of 2 shards of y, the first "
            "y-00000-of-00002");
}

}  // namespace
}  // namespace bv::test
