// data list, pack, index and unpack as users run them, and runs on their output.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "data/dataset.h"
#include "data/decode/decode_image.h"
#include "data/records/record_index.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

class RecordCommands : public ProgramTest {
 protected:
  void SetUp() override {
    if (!have_records) GTEST_SKIP() << "without protobuf";
    make_class_folders(in("photos"), 3, 8);
  }
  void expect_refused(const std::string& words, const std::string& part) const {
    const auto before = names_in(folder_.path());
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_TRUE(has(end.errors, part)) << words;
    EXPECT_EQ(std::ranges::count(end.errors, '\n'), 1) << end.errors;
    EXPECT_EQ(names_in(folder_.path()), before) << words;
  }
  // All files below a folder, with their contents.
  std::map<std::string, std::string> files_of(const std::string& folder) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(in(folder)))
      if (entry.is_regular_file())
        files[entry.path().lexically_relative(in(folder))] = contents(entry.path());
    return files;
  }
  // Photos of 64x48 pixels with 2 objects each, one of them small in every other photo.
  void make_coco() const {
    std::string images, objects;
    for (int i = 0; i < 6; ++i) {
      const std::string id = std::to_string(i);
      write_ppm(in("coco/p " + id + ".ppm"), 64, 48, i);
      images += (i ? "," : "") + std::string("{\"id\":") + std::to_string(90 - i) +
                ",\"file_name\":\"p " + id + ".ppm\",\"width\":64,\"height\":48,\"x\":[1,{}]}";
      for (int k = 0; k < 2; ++k)
        objects += std::string(i + k ? "," : "") + "{\"id\":" + std::to_string(2 * i + k) +
                   ",\"image_id\":" + std::to_string(90 - i) +
                   ",\"category_id\":" + std::to_string(k ? 7 : 3) +
                   ",\"iscrowd\":0,\"segmentation\":[[1,2,3.5]],\"bbox\":[" +
                   (k       ? "10.5,8,32,32.5]"
                    : i % 2 ? "0,0,40,31]"
                            : "0,0,40,48]") +
                   "}";
    }
    objects += ",{\"id\":99,\"image_id\":90,\"category_id\":3,\"iscrowd\":1,\"bbox\":[0,0,60,40]}";
    write_text(in("coco.json"), "{\"info\":{\"images\":[1]},\"images\":[" + images +
                                    "],\"annotations\":[" + objects +
                                    "],\"categories\":[{\"id\":3,\"name\":\"zebra\"},{\"id\":7,"
                                    "\"name\":\"apple\"}]}");
  }
};

TEST_F(RecordCommands, ThereAndBack) {
  const Finished list = go("data list photos list.txt");
  EXPECT_EQ(list.output,
            "list.txt: 24 images, 3 classes\nclass   images\nclass0       8\nclass1       8\n"
            "class2       8\n");
  EXPECT_TRUE(contents(in("list.txt"))
                  .starts_with("# barevision list 1\n# folder " + in("photos") +
                               "\n# class 0 class0\n# class 1 class1\n# class 2 "
                               "class2\nclass0/0.ppm 0\nclass0/1.ppm 0\n"));
  const Finished pack = go("data pack list.txt out --name all --shards 3");
  EXPECT_TRUE(pack.output.starts_with("out/all.index: 24 images, 3 classes, 3 shards, 0.1 MB; "))
      << pack.output;
  EXPECT_EQ(go("data unpack out back").output, "back: 24 images\n");
  EXPECT_EQ(files_of("back"), files_of("photos"));
  EXPECT_EQ(go("data stats out").output.substr(4), go("data stats photos").output.substr(7));
  EXPECT_TRUE(go("data check out/all.index").output.ends_with("clean\n"));
  expect_refused("data split out parts", "out: records, which training splits by itself");
  const std::string file = in("out/all-00000-of-00003.tfrecord"),
                    unlisted = "out/all-00003-of-00003.tfrecord";
  fs::copy_file(file, in(unlisted));
  EXPECT_EQ(run("data check out").code, 1);
  EXPECT_TRUE(has(run("data check out").output, "\na file of records isn't in out/all.index"));
  EXPECT_TRUE(has(run("data check out --json").output,
                  ",\"lost\":[\"a file of records isn't in out/all.index and is not read, " +
                      unlisted + "; move it elsewhere"));
  EXPECT_TRUE(go("data unpack out some").errors.starts_with("warning: a file of records isn't in"));
  fs::remove(in(unlisted));
  std::string damaged = contents(file);
  damaged[200] ^= 1;
  write_text(file, damaged);
  const Finished check = run("data check out");
  EXPECT_EQ(check.code, 1);
  EXPECT_TRUE(has(check.output,
                  "damaged: 1\n  out/all-00000-of-00003.tfrecord: record 0 at byte 0 "
                  "(class0/0.ppm): the record's checksum is wrong\n"));
  expect_refused("data unpack out again",
                 "record 0 at byte 0: the record's checksum is wrong (--on");
  const Finished skipped = go("data unpack out again --on-bad-image skip");
  EXPECT_TRUE(skipped.errors.starts_with("skipped 1 bad image, the first: out/all-00000"));
  EXPECT_EQ(skipped.output, "again: 23 images\n");
}

TEST_F(RecordCommands, PartsOfAFolderAreListed) {
  write_text(in("map.json"), "{\"class2\": 0, \"class0\": 1, \"class1\": 2}");
  go("data list photos list.txt --labels map.json --classes 2 --per-class 3");
  const std::string list = contents(in("list.txt"));
  EXPECT_EQ(list.substr(list.find("# class")),
            "# class 0 class2\n# class 1 class0\nclass0/0.ppm 1\nclass0/1.ppm 1\nclass0/2.ppm 1\n"
            "class2/0.ppm 0\nclass2/1.ppm 0\nclass2/2.ppm 0\n");
  write_text(in("pickle"), std::string("\x80\x04}q\0.", 6));
  write_text(in("twice.json"), "{\"class2\": 0, \"class0\": 1, \"class0\": 2}");
  write_text(in("gap.json"), "{\"class2\": 0, \"class0\": 1, \"class1\": 3}");
  write_text(in("fewer.json"), "{\"class2\": 0, \"class0\": 1}");
  expect_refused("data list photos new --labels pickle",
                 "--labels pickle: a Python pickle; give JSON: {\"cat\": 0, \"dog\": 1}");
  expect_refused("data list photos new --labels twice.json", "the key 'class0' is given twice");
  expect_refused("data list photos new --labels gap.json",
                 "'class1' has label 3; the labels of 3 classes are 0 to 2");
  expect_refused("data list photos new --labels fewer.json", "has no label for the class 'class1'");
  expect_refused("data list photos list.txt", "LIST list.txt exists; name a new file");
  expect_refused("data list photos", "data list needs DIR and LIST: a folder and a new file");
  make_cifar(in("cifar"));
  expect_refused("data list cifar new", "data unpack turns them into class folders");
}

TEST_F(RecordCommands, ListsOfOthersArePacked) {
  write_text(in("photos/others"), "class0/1.ppm 1\nclass1/2.ppm 0\nclass2/a b.ppm 1\n");
  write_ppm(in("photos/class2/a b.ppm"), 40, 40, 3);
  go("data pack photos/others out --name x");
  const RecordIndex index = read_index(in("out/x.index"));
  EXPECT_EQ(index.classes, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(index.name(index.rows[2]), "class2/a b.ppm");
  const auto refused = [&](const std::string& list, const std::string& part) {
    write_text(in("list"), list);
    expect_refused("data pack list new --name x", part);
  };
  refused("", "list: lists no images");
  refused("a\n", "list line 1: expected a path and its label, a whole number");
  refused("a -1\n", "list line 1: label -1 is not one of 0 to 999999");
  refused("# class 0 x\na 1\n", "list line 2: label 1 is not one of the 1 classes");
  refused("# class 0 x\n# class 1 x\n", "list line 2: names the class 'x' twice");
  refused("../a 0\n", "list line 1: ../a is not in the list's folder, . (# folder DIR");
  refused("photos/class0/1.ppm 0\nphotos/class0/1.ppm 0\n",
          "list: lists photos/class0/1.ppm twice");
  refused("nowhere.jpg 0\n", "./nowhere.jpg: no such file (--on-bad-image skip");
  refused("\x80\x04 0\n", "list line 1: a Python pickle");
  refused("photos/class0/1.ppm 0,0,41,9 0\n", "a box ends outside the image of 40x36 pixels");
  refused("photos/class0/1.ppm 0,0,9,9 0\nphotos/class0/2.ppm 0\n",
          "list: some lines have a box and some have none");
  expect_refused("data pack list new", "data pack needs --name N");
  expect_refused("data pack list new --name a/b", "--name a/b: can't be the beginning");
  expect_refused("data pack list new --name x --shards 2 --shard-mb 3", "--shards or --shard-mb");
  expect_refused("data pack list new --name x --quality 3", "--quality needs --resize");
}

TEST_F(RecordCommands, PackScalesDownAndLeavesNothingHalfWritten) {
  go("data list photos list.txt");
  const Finished full =
      run_program(folder_.path(), "data pack list.txt out --name x", {.file_size = 1000});
  EXPECT_EQ(full.code, 1);
  EXPECT_TRUE(has(full.errors, "File too large")) << full.errors;
  EXPECT_FALSE(fs::exists(in("out")));
  if (!BAREVISION_TURBOJPEG) return;
  go("data pack list.txt out --name x --resize 18 --quality 90");
  go("data unpack out small");
  const Finished check = run("data check small --min-side 18");
  EXPECT_TRUE(has(check.output, "small: 24 images, 3 classes\n")) << check.output;
  const std::string file = contents(in("small/class0/0.ppm"));
  EXPECT_TRUE(file.starts_with("\xFF\xD8"));
  const Image image = decode_image(std::vector<uint8_t>(file.begin(), file.end()), 0);
  EXPECT_EQ(std::pair(image.height, image.width), std::pair(18, 20));  // of 36x40
}

TEST_F(RecordCommands, TrainingFromRecordsIsTrainingFromTheFolder) {
  go("data list photos list.txt");
  go("data pack list.txt out --name x --shards 2");
  const std::string words = on_vit + "--batch 6 --val-fraction 0.25 --cache-mb 0 ";
  go(words + "--steps 5 --data photos --out a");
  go(words + "--steps 5 --data out --out b");
  EXPECT_TRUE(contents(in("a/last/weights.safetensors")) ==
              contents(in("b/last/weights.safetensors")));
  EXPECT_EQ(losses(in("a")), losses(in("b")));
  EXPECT_EQ(last_metric(in("a"), "epoch", "val_loss"), last_metric(in("b"), "epoch", "val_loss"));
  // A run stopped in the middle of an epoch is resumed.
  go(words + "--data out/x.index --out c --save-every 2steps --steps 2");
  go("--resume c --steps 5");
  EXPECT_TRUE(contents(in("a/last/weights.safetensors")) ==
              contents(in("c/last/weights.safetensors")));
  EXPECT_EQ(go("eval a/last --json").output, go("eval b/last --json").output);
  const Finished predicted = go("predict b out/x.index --json");
  EXPECT_EQ(std::ranges::count(predicted.output, '\n'), 24);
  go("preview --config b/config.json --count 4 --out seen");
  go("preview --config a/config.json --count 4 --out seen_of_folder");
  EXPECT_EQ(contents(in("seen/preview.html")), contents(in("seen_of_folder/preview.html")));
  // Records with other names are different data.
  const std::string index = contents(in("out/x.index"));
  write_text(in("out/x.index"), replaced(index, "class0/0.ppm", "class0/9.ppm"));
  const Finished other = refuse("--resume b --steps 6");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(has(other.errors, "its files or classes have changed since the run in b began"));
  // The same images in other files lead to a warning.
  write_text(in("out/x.index"), index);
  fs::last_write_time(in("out/x-00000-of-00002.tfrecord"), fs::file_time_type::clock::now());
  EXPECT_TRUE(has(go("--resume b --steps 6").output, "have changed in size, time or contents"));
}

TEST_F(RecordCommands, BadRecordsEndARunOrAreSkipped) {
  go("data list photos list.txt");
  go("data pack list.txt out --name x");
  std::string bytes = contents(in("out/x-00000-of-00001.tfrecord"));
  bytes[300] ^= 1;
  write_text(in("out/x-00000-of-00001.tfrecord"), bytes);
  const std::string words = on_vit + "--data out --batch 6 --epochs 1 --seed 3 ";
  const Finished failed = run(words + "--out a");
  EXPECT_EQ(failed.code, 2);
  EXPECT_TRUE(has(failed.errors,
                  "out/x-00000-of-00001.tfrecord: record 0 at byte 0 (class0/0.ppm): the record's "
                  "checksum is wrong (--on-bad-image skip"));
  const Finished skipped = go(words + "--out b --on-bad-image skip");
  EXPECT_TRUE(has(skipped.output, "1 of 24 images can't be read and will be skipped, the first " +
                                      std::string("out/x-00000-of-00001")));
  // Without an index, the damage is found before the first step.
  fs::remove(in("out/x.index"));
  const std::string record = "out/x-00000-of-00001.tfrecord: record 0 at byte 0: ";
  const Finished refused = refuse(words + "--out c");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(has(refused.errors, record + "its checksum is wrong (--on-bad-image skip leaves"));
  const std::string note = "a record can't be read and is left out, " + record;
  EXPECT_TRUE(has(go(words + "--out c --on-bad-image skip").output, "warning: " + note));
  EXPECT_TRUE(has(go("eval c --data out --on-bad-image skip").output, note));
  const Finished predicted = run("predict c out");
  EXPECT_EQ(predicted.code, 1);
  EXPECT_TRUE(has(predicted.errors, note));
}

TEST_F(RecordCommands, CocoBecomesPicturesOfItsObjects) {
  make_coco();
  const Finished list = go("data list --coco coco.json --images coco list.txt");
  EXPECT_EQ(list.output,
            "list.txt: 9 objects, 2 classes; left out: 1 crowd, 3 below 32 pixels\n"
            "class  images\napple       6\nzebra       3\n");
  EXPECT_TRUE(
      has(contents(in("list.txt")),
          "# class 1 zebra\np 0.ppm 0,0,40,48 1\np 0.ppm 10,8,33,33 0\np 1.ppm 10,8,33,33 0\n"));
  EXPECT_TRUE(go("data pack list.txt out --name objects")
                  .output.starts_with("out/objects.index: 6 images with 9 objects, 2 classes"));
  go("data unpack out back");
  EXPECT_EQ(files_of("back"), files_of("coco"));
  const DataSets sets = open_dataset({.path = in("out"), .val_fraction = 0.7});
  EXPECT_EQ(sets.train->size() + sets.val->size(), 9);
  // An object's image is its box in the photo, and a photo is in one part with all its objects.
  std::set<std::string> train, val;
  for (const auto& [part, names] : {std::pair(sets.train.get(), &train), {sets.val.get(), &val}})
    for (int64_t i = 0; i < part->size(); ++i) {
      const Image image = part->image(i, 8);
      EXPECT_EQ(std::pair(image.height, image.width),
                part->label(i) ? std::pair(48, 40) : std::pair(33, 33));
      names->insert(part->name(i).substr(part->name(i).find('(')));
    }
  EXPECT_EQ(val.size(), 4u);
  EXPECT_EQ(sets.val->size(), 5);  // both objects of one photo
  for (const std::string& name : val) EXPECT_FALSE(train.contains(name)) << name;
  const Image object = sets.val->image(0, 0);
  const std::string file = contents(in("coco/" + val.begin()->substr(1, 7)));
  const Image photo = decode_image(std::vector<uint8_t>(file.begin(), file.end()), 0);
  const int left = sets.val->label(0) ? 0 : 10, top = sets.val->label(0) ? 0 : 8;
  for (int y = 0; y < object.height; ++y)
    for (int x = 0; x < 3 * object.width; ++x)
      ASSERT_EQ(object.pixels[3 * y * object.width + x],
                photo.pixels[3 * ((y + top) * photo.width + left) + x]);
  go(on_vit + "--data out --batch 4 --steps 2 --out run");
  EXPECT_TRUE(has(go("eval run").output, "zebra"));
}

TEST_F(RecordCommands, CocoIsRefusedWithItsPlace) {
  make_coco();
  const std::string good = contents(in("coco.json"));
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& part) {
    write_text(in("coco.json"), replaced(good, from, to));
    expect_refused("data list --coco coco.json --images coco list.txt", part);
  };
  refused("\"images\":[{", "\"pictures\":[{", "coco.json: has no 'images'");
  refused("\"annotations\":", "\"objects\":", "coco.json: has no 'annotations'");
  refused("\"categories\":", "\"kinds\":", "coco.json: has no 'categories'");
  refused("[0,0,40,48]", "[0,0,40,50]",
          "coco.json: annotation 0 (id 0): its bbox is not inside p 0.ppm, 64x48 (--on-bad");
  refused("[0,0,40,48]", "[0,0,-1,4]", "annotation 0 (id 0): its bbox is not inside");
  refused("[0,0,40,48]", "[0,0,4]", "annotation 0 (id 0): its bbox is not inside");
  refused("\"image_id\":90", "\"image_id\":1", "annotation 0 (id 0): its image_id names no image");
  refused("\"category_id\":3", "\"category_id\":4", "its category_id names no category");
  refused("\"name\":\"zebra\"", "\"name\":\"apple\"", "two categories are called 'apple'");
  refused("\"id\":89", "\"id\":90", "number 1 of 'images' has no id, or one that is taken");
  refused("]}", "]", "coco.json: not JSON, at byte");
  write_text(in("coco.json"), replaced(good, "[0,0,40,48]", "[0,0,40,50]"));
  const Finished skip = go("data list --coco coco.json --images coco list.txt --on-bad-image skip");
  EXPECT_TRUE(has(skip.output, "1 bad one")) << skip.output;
  expect_refused("data list --coco coco.json new",
                 "--coco coco.json: needs --images DIR, the folder of its photos");
}

TEST_F(RecordCommands, IndexIsWrittenForOthersRecords) {
  for (const auto& entry : fs::directory_iterator("tests/golden/records")) {
    const std::string name = entry.path().filename(), part = name.substr(0, name.find('-'));
    if (part != "train" && part != "validation") continue;
    fs::create_directories(in("tools/" + part));
    fs::copy_file(entry.path(), in("tools/" + part + "/" + name));
  }
  EXPECT_EQ(go("data index tools").output,
            "tools/train.index: 8 images in 2 files, 3 classes\n"
            "tools/validation.index: 3 images in 1 file, 3 classes\n");
  EXPECT_EQ(contents(in("tools/idx_files/validation/validation-00000-of-00001.idx")),
            "0 152\n152 152\n304 152\n");
  EXPECT_TRUE(
      has(contents(in("tools/train.index")),
          "\n# class 2 3\n0\ttrain/train-00000-of-00002\t0\t152\ttrain-00000-of-00002-0000000."
          "png\n"));
  EXPECT_EQ(open_dataset({.path = in("tools")}).notes.size(), 0u);
  expect_refused("data index tools", "tools/train.index exists; remove it");
  expect_refused("data index photos", "photos: no TFRecords in it");
  fs::remove(in("tools/train.index"));
  fs::remove(in("tools/validation.index"));
  fs::remove_all(in("tools/idx_files"));
  std::string bytes = contents(in("tools/train/train-00000-of-00002"));
  bytes[200] ^= 1;
  write_text(in("tools/train/train-00000-of-00002"), bytes);
  expect_refused("data index tools",
                 "record 1 at byte 152: its checksum is wrong (--on-bad-image skip");
  const Finished skip = go("data index tools --on-bad-image skip");
  EXPECT_TRUE(
      skip.errors.starts_with("left out 1 damaged record, the first: tools/train/train-00000"))
      << skip.errors;
  EXPECT_TRUE(has(skip.output, "tools/train.index: 7 images"));
  EXPECT_EQ(open_dataset({.path = in("tools")}).train->size(), 7);
  EXPECT_EQ(go("data unpack tools back").output, "back: 10 images\n");
  EXPECT_EQ(files_of("back").size(), 10u);
  EXPECT_TRUE(files_of("back").contains("train/1/train-00000-of-00002-0000000.png"));
  // Unpacks a truncated file without an index, then with an index of the remaining records.
  write_text(in("tools/train/train-00001-of-00002"),
             contents(in("tools/train/train-00001-of-00002")).substr(0, 300));
  fs::remove(in("tools/train.index"));
  fs::remove(in("tools/validation.index"));
  EXPECT_EQ(go("data unpack tools rest --on-bad-image skip").output, "rest: 7 images\n");
  go("data index tools --on-bad-image skip");
  EXPECT_EQ(go("data unpack tools indexed").output, "indexed: 7 images\n");
  EXPECT_EQ(files_of("indexed"), files_of("rest"));
}

TEST_F(RecordCommands, CifarIsUnpacked) {
  make_cifar(in("cifar"), 20, 10);
  EXPECT_EQ(go("data unpack cifar png").output, "png: 30 images\n");
  make_cifar(in("above/cifar-10-batches-bin"), 20, 10);
  EXPECT_EQ(go("data unpack above again").output, "again: 30 images\n");
  EXPECT_EQ(files_of("again"), files_of("png"));
  expect_refused("data split above new", "CIFAR's files have a validation set of their own");
  const DataSets of_files = open_dataset({.path = in("png")}),
                 of_cifar = open_dataset({.path = in("cifar")});
  ASSERT_EQ(of_files.train->size(), 20);
  EXPECT_EQ(of_files.classes, of_cifar.classes);
  EXPECT_EQ(of_files.train->image(0, 0).pixels, of_cifar.train->image(0, 0).pixels);
  expect_refused("data unpack photos new", "photos: neither records nor CIFAR's files");
}

}  // namespace
}  // namespace bv::test
