// CIFAR-10 and CIFAR-100 for Python: pickles written by hand, as Python 2 and 3 write them; and
// files that are refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/dataset.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

std::string little_endian(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}
std::string number(int value) {
  return value < 256 ? "K" + little_endian(value, 1) : "M" + little_endian(value, 2);
}
std::string text(const std::string& words) {  // Python 2's
  return "U" + little_endian(words.size(), 1) + words;
}
std::string unicode(const std::string& words) {
  return "\x8c" + little_endian(words.size(), 1) + words;
}
std::string list_of(const std::string& items) { return "](" + items + "e"; }

// The pieces of a batch, which a test may change.
struct Batch {
  int first = 0, count = 0, classes = 10;
  std::string key = "labels", rows, width = number(3072), type = "u1", order = "\x89", labels;
  std::string pixels;

  Batch(int images, int from, int kinds = 10) : first(from), count(images), classes(kinds) {
    if (classes == 100) key = "fine_labels";
    rows = number(count);
    for (int i = first; i < first + count; ++i) labels += number(i % classes);
    for (const std::vector<uint8_t> all = cifar_records(count, first); const uint8_t byte : all)
      pixels += static_cast<char>(byte);
    for (int i = count; i-- > 0;) pixels.erase(static_cast<size_t>(i) * 3073, 1);
  }

  // Protocol 2 as Python 2 writes it; only a file name is read back from its memo.
  std::string of_python2() const {
    const std::string dtype = "cnumpy\ndtype\nq\x0b" + text(type) + "K\0K\1\x87R(K\3"s + text("|") +
                              "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"s;
    const std::string array =
        "cnumpy.core.multiarray\n_reconstruct\nq\x07"
        "cnumpy\nndarray\nq\x08K\0\x85"s +
        text("b") + "\x87R(K\1" + rows + width + "\x86" + dtype + order + "T" +
        little_endian(pixels.size(), 4) + pixels + "tb";
    return "\x80\2}q\1(" + text("batch_label") + text("training batch 1 of 5") + text(key) +
           list_of(labels) + text("data") + array + text("filenames") +
           list_of(text("a.png") + "q\x0dh\x0d") + "u.";
  }
  // Protocol 4: frames, and a memo with implicit numbers, from which "numpy" is read back.
  std::string of_python3() const {
    const std::string array =
        unicode("numpy._core.multiarray") + unicode("_reconstruct") + "\x93\x94" +
        unicode("numpy") + "\x94" + unicode("ndarray") + "\x93K\0\x85"s + "C\1b" + "\x87R(K\1" +
        rows + width + "\x86" + "h\1" + unicode("dtype") + "\x93" + unicode(type) +
        "\x89\x88\x87R(K\3"s + unicode("|") + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"s +
        order + "B" + little_endian(pixels.size(), 4) + pixels + "tb";
    const std::string body = "}(" + unicode(key) + list_of(labels) + unicode("data") + array + "u.";
    return "\x80\4\x95" + little_endian(body.size(), 8) + body;
  }
  // Protocol 5, which builds arrays from a buffer.
  std::string of_protocol5() const {
    return "\x80\5}(" + unicode(key) + list_of(labels) + unicode("data") +
           "cnumpy.core.numeric\n_frombuffer\n(\x96" + little_endian(pixels.size(), 8) + pixels +
           "cnumpy\ndtype\n" + unicode(type) + "\x89\x88\x87R" + rows + width + "\x86" +
           unicode("C") + "tRu.";
  }
  // Protocol 2 as Python 3 writes it, with bytes stored as text.
  std::string of_python3_for_2() const {
    std::string utf8;
    for (const char c : pixels) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte < 0x80)
        utf8 += c;
      else
        utf8 += {static_cast<char>(0xc0 | byte >> 6), static_cast<char>(0x80 | (byte & 63))};
    }
    const std::string plain = of_python2(), bytes = "T" + little_endian(pixels.size(), 4) + pixels,
                      encoded = "c_codecs\nencode\nX" + little_endian(utf8.size(), 4) + utf8 +
                                "X\6\0\0\0latin1\x86R"s;
    std::string changed = plain;
    return changed.replace(plain.find(bytes), bytes.size(), encoded);
  }
};

std::string names(const std::string& key, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text("kind_" + std::to_string(i));
  return "\x80\2}(" + text("num_vis") + "M\0\x0c"s + text(key) + list_of(all) + "u.";
}

void write_cifar10(const std::string& folder, std::string (Batch::*form)() const) {
  write_text(folder + "/data_batch_1", (Batch(5, 0).*form)());
  write_text(folder + "/data_batch_2", (Batch(2, 5).*form)());
  write_text(folder + "/test_batch", (Batch(3, 0).*form)());
  write_text(folder + "/batches.meta", names("label_names", 10));
}

void expect_same(const DataSets& a, const DataSets& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.description, b.description);
  for (const auto& [one, other] :
       {std::pair{a.train.get(), b.train.get()}, {a.val.get(), b.val.get()}}) {
    ASSERT_EQ(one->size(), other->size());
    for (int64_t i = 0; i < one->size(); ++i) {
      EXPECT_EQ(one->label(i), other->label(i));
      EXPECT_EQ(one->image(i, 0).pixels, other->image(i, 0).pixels) << i;
    }
  }
}

TEST(CifarPickle, HasWhatTheBinaryFilesHave) {
  const TemporaryFolder folder;
  write_file(folder / "bin/data_batch_1.bin", cifar_records(7, 0));
  write_file(folder / "bin/test_batch.bin", cifar_records(3, 0));
  const DataSets binary = open_dataset({.path = folder / "bin"});
  const std::string unpacked = folder / "root/cifar-10-batches-py";
  for (const auto form :
       {&Batch::of_python2, &Batch::of_python3, &Batch::of_protocol5, &Batch::of_python3_for_2}) {
    write_cifar10(unpacked, form);
    const DataSets sets = open_dataset({.path = unpacked});
    expect_same(sets, binary);
    EXPECT_EQ(sets.classes[9], "kind_9");
    EXPECT_EQ(sets.train->name(6), unpacked + "/data_batch_2 record 1");
  }
  // torchvision's root, which also contains the archive.
  write_text(folder / "root/cifar-10-python.tar.gz", "x");
  expect_same(open_dataset({.path = folder / "root"}), binary);
  fs::remove(unpacked + "/batches.meta");
  EXPECT_EQ(open_dataset({.path = unpacked}).classes[9], "truck");
}

TEST(CifarPickle, OfCifar100HasTheFineLabels) {
  const TemporaryFolder folder;
  write_file(folder / "bin/train.bin", cifar100_records(66, 20));
  write_file(folder / "bin/test.bin", cifar100_records(3, 0));
  write_text(folder / "bin/fine_label_names.txt", cifar100_names());
  const std::string unpacked = folder / "root/cifar-100-python";
  write_text(unpacked + "/train", Batch(66, 20, 100).of_python2());
  write_text(unpacked + "/test", Batch(3, 0, 100).of_python2());
  write_text(unpacked + "/meta", names("fine_label_names", 100));
  const DataSets binary = open_dataset({.path = folder / "bin"});
  for (const std::string& path : {unpacked, folder / "root"}) {
    const DataSets sets = open_dataset({.path = path});
    expect_same(sets, binary);
    EXPECT_EQ(sets.classes, binary.classes);
  }
  // If train and test are folders, not files, they are parts with class folders.
  for (const char* name : {"train", "test"})
    for (const char* kind : {"cat", "dog"})
      write_ppm(folder / ("photos/"s + name + "/" + kind + "/1.ppm"), 9, 7, 1);
  write_text(folder / "photos/meta", "notes");
  EXPECT_EQ(open_dataset({.path = folder / "photos"}).kind, DataKind::photos);
}

class RefusedPickle : public testing::Test {
 protected:
  // The line about data_batch_1 with these contents, without its path.
  std::string line(const std::string& bytes) const {
    write_cifar10(folder_.path(), &Batch::of_python2);
    write_text(folder_ / "data_batch_1", bytes);
    const std::string message =
        error_of<DataError>([&] { open_dataset({.path = folder_.path()}); });
    const std::string begin = folder_ / "data_batch_1: ";
    EXPECT_TRUE(message.starts_with(begin)) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message.substr(std::min(message.size(), begin.size()));
  }
  void expect(const std::string& bytes, const std::string& part) const {
    EXPECT_TRUE(is_line(line(bytes), part));
  }
  TemporaryFolder folder_;
};

// Python would call these functions while loading; this reader refuses their names.
TEST_F(RefusedPickle, NamesThatCouldRunSomething) {
  const std::string end = ", which CIFAR's files don't have; use the file as it is distributed";
  const std::string mark = folder_ / "it-ran", command = text("touch " + mark) + "\x85R.";
  EXPECT_EQ(line("\x80\2cos\nsystem\n" + command), "at byte 2: the name os.system" + end);
  EXPECT_EQ(line("\x80\4" + unicode("posix") + unicode("system") + "\x93" + command),
            "at byte 17: the name posix.system" + end);
  EXPECT_EQ(line("\x80\2c__builtin__\neval\n" + command),
            "at byte 2: the name __builtin__.eval" + end);
  EXPECT_EQ(line("\x80\2cnumpy\nload\n" + command), "at byte 2: the name numpy.load" + end);
  // Objects made by other instructions, and known names used in other ways.
  expect("\x80\2(ios\nsystem\n", "at byte 3: instruction 0x69" + end);
  expect("\x80\2(" + text("x") + "o.", "instruction 0x6f" + end);
  expect("\x80\2cnumpy\nndarray\n)\x81.", "instruction 0x81" + end);
  expect("\x80\2cnumpy\nndarray\n)R.", "a call of numpy.ndarray" + end);
  expect("\x80\2" + text("x") + ")R.", "a call of a text" + end);
  expect("\x80\2c_codecs\nencode\n" + text("x") + text("rot13") + "\x86R.",
         "another encoding" + end);
  expect("\x80\2cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nNN\x87R.",
         "an array of another class" + end);
  expect("\x80\2cos\x1b[31m\nx\n.", "the name os?[31m.x" + end);
  expect("cos\nsystem\n(" + text("touch " + mark) + "tR.", "isn't a pickle of protocol 2 or later");
  EXPECT_FALSE(fs::exists(mark));
}

TEST_F(RefusedPickle, EveryTruncationAndWhatIsTooMuch) {
  const std::string whole = Batch(1, 0).of_python2(), pixels = "tb" + text("filenames");
  const size_t after = whole.find(pixels);
  for (size_t size = 0; size<whole.size(); size += size> 400 && size + 64 < after ? 61 : 1) {
    const std::string refusal = line(whole.substr(0, size));
    if (size < 2) continue;
    EXPECT_TRUE(is_line(refusal, "truncated: it ends at byte " + std::to_string(size) + ", with"));
    EXPECT_FALSE(has(refusal, ", within what begins at " + std::to_string(size)));
  }
  expect(whole + "xx", "has 2 bytes after its end; use the file as it is distributed");
  expect("\x80\2NN.", "doesn't end with one value on its stack");
  expect("\x80\6N.", "at byte 0: protocol 6");
  expect("\x80\2X\xff\xff\xff\xff", "truncated: it ends at byte 7");
}

TEST_F(RefusedPickle, WhatRefersToItself) {
  expect("\x80\2]q\1h\1a.", "at byte 5: a list that is used twice");
  expect("\x80\4}\x94(h\0h\0u."s, "at byte 5: a dict that is used twice");
  expect("\x80\2]q\1(h\1h\1h\1h\1e.", "a list that is used twice");
  expect("\x80\2h\7.", "at byte 2: a reference to a value that was never stored");
  expect("\x80\2q\1.", "at byte 2: an instruction without its operands");
  expect("\x80\2(\x85.", "an instruction without its operands");
  expect("\x80\2t.", "an instruction without its mark");
  expect("\x80\2}(Nu.", "a key without its value");
  expect("\x80\2NNa.", "items for None");
}

TEST_F(RefusedPickle, SizesThatDisagree) {
  const auto changed = [](auto change, std::string (Batch::*form)() const = &Batch::of_python2) {
    Batch batch(3, 0);
    change(batch);
    return (batch.*form)();
  };
  for (const auto form : {&Batch::of_python2, &Batch::of_python3, &Batch::of_protocol5}) {
    expect(changed([](Batch& b) { b.rows = number(4); }, form),
           "an array of 4 x 3072 elements has 9216 bytes");
    expect(changed([](Batch& b) { b.pixels.pop_back(); }, form),
           "an array of 3 x 3072 elements has 9215 bytes");
    expect(changed([](Batch& b) { b.type = "f4"; }, form),
           "an array of a type other than uint8, which CIFAR's files don't have");
  }
  expect(changed([](Batch& b) { b.rows = number(9), b.width = number(1024); }),
         "its 'data' isn't an array of N x 3072 bytes; is it a CIFAR-10 file?");
  expect(changed([](Batch& b) { b.rows = b.pixels = b.labels = "", b.rows = number(0); }),
         "its 'data' isn't an array of N x 3072 bytes");
  expect(changed([](Batch& b) { b.rows = "J\xff\xff\xff\xff"; }),
         "an array dimension that isn't a size");
  expect(changed([](Batch& b) { b.rows = "N"; }), "an array dimension that isn't a size");
  expect(changed([](Batch& b) { b.order = "\x88"; }), "an array that isn't stored by rows");
  expect(changed([](Batch& b) { b.labels += number(1); }), "it has 3 images and 4 labels");
  expect(changed([](Batch& b) { b.labels = number(1) + number(10) + number(1); }),
         "label 1, 10, isn't a number from 0 to 9; is it a CIFAR-10 file?");
  expect(changed([](Batch& b) { b.labels = "J\xff\xff\xff\xff" + number(1) + number(1); }),
         "label 0, -1, isn't a number from 0 to 9");
  expect(changed([](Batch& b) { b.labels = number(1) + number(1) + text("x"); }),
         "label 2 isn't a number from 0 to 9");
  expect(changed([](Batch& b) { b.key = "fine_labels"; }), "its 'labels' isn't a list");
  expect("\x80\2K\1.", "its 'data' isn't an array of N x 3072 bytes");
  write_cifar10(folder_.path(), &Batch::of_python2);
  write_text(folder_ / "batches.meta", names("label_names", 9));
  EXPECT_TRUE(is_line(error_of<DataError>([&] { open_dataset({.path = folder_.path()}); }),
                      folder_ / "batches.meta: has 9 class names, not 10"));
}

// A file with a changed byte at its start or end is read or refused, without a crash.
TEST_F(RefusedPickle, OtherBytes) {
  const std::string whole = Batch(1, 0).of_python2();
  write_cifar10(folder_.path(), &Batch::of_python2);
  size_t refused = 0, tried = 0;
  for (size_t at = 0; at < whole.size(); at += at == 350 ? whole.size() - 400 : 1)
    for (const int change : {1, 0x80, 0xff}) {
      std::string other = whole;
      other[at] = static_cast<char>(other[at] ^ change);
      write_text(folder_ / "data_batch_1", other);
      ++tried;
      refused += error_of<DataError>([&] { open_dataset({.path = folder_.path()}); }) != "no error";
    }
  EXPECT_GT(refused, tried / 4);  // other changes are in pixels and names
}

}  // namespace
}  // namespace bv::test
