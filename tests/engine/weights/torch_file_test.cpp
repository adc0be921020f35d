// Weights in torch.save's files, and malicious files: they would run code in Python, or make a
// reader read outside of them.
#include "engine/files/torch/torch_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/engine/weights/torch_archive.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

using namespace std::string_literals;
using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

TensorFile parsed(const std::string& file) {
  return parse_torch_file(std::as_bytes(std::span(file)), "w.pth");
}
// The error message for a file, without its path.
std::string line(const std::string& file) {
  const std::string message = error_of([&] { parsed(file); });
  EXPECT_EQ(message.find('\n'), message.npos) << message;
  const std::string begin = "w.pth: ";
  return message.starts_with(begin) ? message.substr(begin.size()) : message;
}

const std::string advice = "; nothing in it is run; if you trust it, save its state_dict alone";
const TorchTensor matrix{.name = "a", .elements = 6, .sizes = {2, 3}, .strides = {3, 1}};
const std::string six = of_floats({0, 1, 2, 3, 4, 5});

TEST(TorchFile, HasTensorsOfEveryTypeAndOrder) {
  const std::string halves("\0\x3c\0\xc0", 4), brains("\x80\x3f\0\xc0", 4);
  const std::vector<TorchTensor> tensors = {
      matrix,
      {.name = "turned", .elements = 6, .sizes = {3, 2}, .strides = {1, 3}},
      {.name = "slice", .elements = 6, .offset = 1, .sizes = {2, 2}, .strides = {3, 1}},
      {.name = "scalar", .elements = 6, .offset = 5},
      {.name = "none", .elements = 6, .sizes = {0, 4}, .strides = {4, 1}},
      {.name = "half",
       .type = "HalfStorage",
       .key = "1",
       .elements = 2,
       .sizes = {2},
       .strides = {1}},
      {.name = "brain",
       .type = "BFloat16Storage",
       .key = "2",
       .elements = 2,
       .sizes = {1, 2},
       .strides = {7, 1}},
      {.name = "bn.num_batches_tracked", .type = "LongStorage", .key = "3", .elements = 1}};
  const std::string file =
      torch_file(state_dict(tensors), {six, halves, brains, little_endian(300, 8)});
  TensorFile read = parsed(file);
  EXPECT_TRUE(read.metadata.empty());
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const TorchTensor& t : tensors) EXPECT_EQ(read.tensors.at(t.name).shape, t.sizes) << t.name;
  const auto data = [&](const char* name) { return read.tensors.at(name).data; };
  EXPECT_EQ(data("a"), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(data("turned"), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(data("slice"), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(data("scalar"), Floats{5});
  EXPECT_EQ(data("none"), Floats{});
  EXPECT_EQ(data("half"), (Floats{1, -2}));
  EXPECT_EQ(data("brain"), (Floats{1, -2}));
  EXPECT_EQ(data("bn.num_batches_tracked"), Floats{300});
}

TEST(TorchFile, MayBeACheckpointOrHaveParameters) {
  const std::string parameter =
      "ctorch._utils\n_rebuild_parameter\n" + matrix.value() + "\x88" + ordered_dict + "\x87R";
  const std::string dict = "}(" + pickled("a") + parameter + "u";
  for (const char* name : {"state_dict", "model"}) {
    const std::string checkpoint = "\x80\2}(" + pickled("epoch") + "K\3" + pickled("lr") + "G" +
                                   std::string(8, '\1') + pickled(name) + dict + pickled("betas") +
                                   "]" + "u.";
    EXPECT_EQ(parsed(torch_file(checkpoint, {six})).tensors.at("a").shape, (Shape{2, 3})) << name;
  }
  EXPECT_EQ(parsed(torch_file("\x80\2" + dict + ".", {six})).tensors.at("a").data[5], 5);
}

// Python would call these functions while it reads; here their names are only kept for messages.
TEST(TorchFile, RunsNothing) {
  const TemporaryFolder folder;
  const std::string mark = folder / "it-ran", command = pickled("touch " + mark),
                    end = ", which weights files don't have" + advice;
  const auto said = [](const std::string& pickle) { return line(torch_file(pickle, {six})); };
  const auto object = [](const std::string& name) {
    return "an object of " + name + ", not a state dict" + advice;
  };
  EXPECT_EQ(said("\x80\2cos\nsystem\n" + command + "\x85R."), object("os.system"));
  const auto unicode = [](const std::string& text) {
    return "\x8c" + little_endian(text.size(), 1) + text;
  };
  EXPECT_EQ(said("\x80\4" + unicode("builtins") + unicode("eval") + "\x93" + command + "\x85R."),
            object("builtins.eval"));
  EXPECT_EQ(said("\x80\2(ios\nsystem\n."), object("os.system"));
  // Beside the tensors it changes nothing.
  const std::string system = pickled("a\nb") + "cos\nsystem\n" + command + "\x85R";
  EXPECT_EQ(said("\x80\2}(" + pickled("a") + matrix.value() + system + "u."), "no error");
  // __setstate__ of a tensor, and of a class
  EXPECT_EQ(said("\x80\2" + matrix.value() + "}b."), "at byte 150: a state for a tensor" + end);
  EXPECT_EQ(said("\x80\2ctorch\nFloatStorage\n}b."), "at byte 23: a state for a name" + end);
  // A path to another file in place of a storage's key
  TorchTensor outside = matrix;
  for (const char* key : {"../../etc/passwd", "/etc/passwd", "", "0x1", "-1"}) {
    outside.key = key;
    EXPECT_TRUE(is_line(said(state_dict({outside})), ": a storage named '"s + key + "'" + end));
  }
  EXPECT_EQ(said("\x80\2" + pickled("/etc/passwd") + "Q."),
            "at byte 18: arguments that differ from torch.save's" + end);
  EXPECT_EQ(said("\x80\2(" + pickled("module") + "ctorch\nFloatStorage\n" + pickled("0") +
                 pickled("cpu") + pickled(int64_t{6}) + "tQ."),
            "at byte 54: a persistent id that is not a tensor's storage" + end);
  // Hooks, known names called with other arguments
  const std::string hook = ordered_dict + pickled("x") + "Ns";
  std::string hooked = matrix.value();
  hooked.replace(hooked.rfind(ordered_dict), ordered_dict.size(), hook);
  EXPECT_TRUE(is_line(said("\x80\2" + hooked + "."), ": a tensor with hooks" + end));
  EXPECT_TRUE(
      is_line(said("\x80\2ctorch\nFloatStorage\n)R."), "a call of torch.FloatStorage" + end));
  EXPECT_TRUE(is_line(said("\x80\2ccollections\nOrderedDict\n" + command + "\x85R."),
                      "arguments that differ from torch.save's" + end));
  EXPECT_FALSE(std::filesystem::exists(mark));
}

// Trainers save other things beside the tensors. Python pickles them by each of the instructions
// that make an object, with items and states, numbers of many bits, sets, values used twice.
TEST(TorchFile, SkipsWhatLiesBesideTheTensors) {
  const std::string namespace_ = "cargparse\nNamespace\n)\x81}" + pickled("lr") + "K\1sb",
                    counter = "ccollections\nCounter\n}K\x1eK\1s\x85R",
                    deque = "ccollections\ndeque\n)R(K\1K\2e", subclass = "cx\nDict\n)R(K\1K\2u",
                    path = "cpathlib\nPosixPath\n" + pickled("a") + "\x85R",
                    number = "\x8a\x10" + std::string(16, '\x7f'),
                    sets = "\x8f(K\1\x90(K\2\x91\x86", old = "(cx\nOld\nK\1o",
                    instance = "(K\1ix\nOld\n", popped = "K\1N0(K\2" + std::string("1"),
                    named = "cx\nC\n)}\x92", twice = "]q\x07h\x07\x86",
                    itself =
                        "]q\x08h\x08"
                        "a",
                    storage = TorchTensor{.type = "QInt8Storage", .key = "9"}.storage();
  int i = 0;
  std::string beside;
  for (const std::string& value : {namespace_, counter, deque, subclass, path, number, sets, old,
                                   instance, popped, named, twice, itself, storage})
    beside += pickled("k" + std::to_string(i++)) + value;
  const std::string pickle =
      "\x80\4}(" + beside + pickled("state_dict") + state_dict({matrix}).substr(2);
  const std::string file = torch_file(pickle.substr(0, pickle.size() - 1) + "u.", {six});
  EXPECT_EQ(line(file), "no error");
  EXPECT_EQ(parsed(file).tensors.at("a").data, (Floats{0, 1, 2, 3, 4, 5}));
}

// A tensor that is made in an unknown way may have other values than its storage.
TEST(TorchFile, RefusesTensorsThatItCannotMake) {
  const auto said = [](const std::string& value) {
    return line(torch_file("\x80\2}(" + pickled("a") + matrix.value() + pickled("b") + value + "u.",
                           {six, six}));
  };
  const std::string storage = TorchTensor{.key = "1", .elements = 6}.storage();
  EXPECT_EQ(said("ctorch._utils\n_rebuild_qtensor\n(" + storage + "K\1)tR"),
            "tensor 'b' is made by torch._utils._rebuild_qtensor, which can't be read" + advice);
  EXPECT_EQ(said("cx\nf\n(cx\ng\n(" + matrix.value() + "ttR"),
            "tensor 'b' is made by x.f, which can't be read" + advice);
  TorchTensor other = {.key = "1", .elements = 3, .sizes = {3}, .strides = {1}};
  for (const auto& [type, name] : {std::pair{"ComplexFloatStorage", "complex64"},
                                   {"QInt8Storage", "qint8"},
                                   {"FutureStorage", "unknown"}}) {
    other.type = type;
    EXPECT_EQ(said(other.value()), "tensor 'b' has elements of the type "s + name);
  }
  EXPECT_EQ(said("cx\nf\n)R"), "no error");  // not made from a tensor
}

TEST(TorchFile, ConvertsEveryType) {
  const auto read = [](const char* type, const std::string& storage) {
    const HostTensor tensor =
        parsed(torch_file(
                   state_dict(
                       {{.name = "a", .type = type, .elements = 2, .sizes = {2}, .strides = {1}}}),
                   {storage}))
            .tensors.at("a");
    EXPECT_EQ(tensor.integers, type != std::string("DoubleStorage"));
    return tensor.data;
  };
  const std::vector<double> doubles = {0.1, -3};
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), doubles.data(), 16);
  EXPECT_EQ(read("DoubleStorage", bytes), (Floats{0.1f, -3}));
  EXPECT_EQ(read("IntStorage", little_endian(7, 4) + "\xff\xff\xff\xff"), (Floats{7, -1}));
  EXPECT_EQ(read("ShortStorage", little_endian(7, 2) + "\xff\xff"), (Floats{7, -1}));
  EXPECT_EQ(read("CharStorage", "\7\xff"), (Floats{7, -1}));
  EXPECT_EQ(read("ByteStorage", "\7\xff"), (Floats{7, 255}));
  EXPECT_EQ(read("BoolStorage", "\1\0"s), (Floats{1, 0}));
}

TEST(TorchFile, TensorsStayInTheirStorage) {
  const auto said = [](auto change, const std::string& storage = six) {
    TorchTensor t = matrix;
    change(t);
    return line(torch_file(state_dict({t}), {storage}));
  };
  using T = TorchTensor&;
  const std::string beyond = "tensor 'a' reaches beyond its storage of 6 elements";
  EXPECT_EQ(said([](T t) { t.offset = 1; }), beyond);
  EXPECT_EQ(said([](T t) { t.offset = -1; }), "tensor 'a' has the offset -1");
  EXPECT_EQ(said([](T t) { t.strides = {4, 1}; }), beyond);
  EXPECT_EQ(said([](T t) { t.strides = {-3, 1}; }), "tensor 'a' has the stride -3");
  EXPECT_EQ(said([](T t) { t.sizes = {-2, 3}; }), "tensor 'a' has the size -2");
  EXPECT_EQ(said([](T t) { t.sizes = {3, 3}; }), beyond);
  const int64_t large = INT32_MAX;
  EXPECT_EQ(said([&](T t) { t.sizes = t.strides = {large, large, large}; }), beyond);
  EXPECT_EQ(said([&](T t) { t.sizes = {1, 1, large}, t.strides = {0, 0, large}; }), beyond);
  // One element, repeated a billion times by a stride of 0
  EXPECT_EQ(said([](T t) { t.sizes = {1 << 30}, t.strides = {0}; }),
            "tensor 'a' has 1073741824 elements, its storage 6");
  EXPECT_EQ(said([](T t) { t.sizes = {2}; }), "tensor 'a' has 1 dimension and 2 strides");
  EXPECT_EQ(said([](T t) { t.sizes = t.strides = Shape(17, 1); }),
            "tensor 'a' has 17 dimensions and 17 strides");
  EXPECT_EQ(said([](T t) { t.elements = 7; }),
            "tensor 'a' needs 7 elements of 4 bytes in storage 0, which has 24 bytes");
  EXPECT_EQ(said([](T t) { t.elements = -1; }), "tensor 'a' has the storage size -1");
  EXPECT_EQ(said([](T t) { t.key = "7"; }), "tensor 'a' needs storage 7, which the file lacks");
  EXPECT_EQ(line(torch_file(state_dict({matrix, matrix}), {six})), "tensor 'a' occurs twice");
  std::vector<TorchTensor> many(30, matrix);
  for (size_t i = 0; i < many.size(); ++i) many[i].name += std::to_string(i);
  EXPECT_EQ(line(torch_file(state_dict(many), {six})),
            "tensor 'a4' shares its storage with too many others");
  TorchTensor other = matrix;
  other.name = "b", other.type = "HalfStorage";
  EXPECT_EQ(line(torch_file(state_dict({matrix, other}), {six})),
            "tensor 'b' has a storage that is described twice, differently");
}

TEST(TorchFile, WhatIsNoStateDict) {
  const std::string none = "no state dict: it has no named tensors";
  EXPECT_EQ(line(torch_file("\x80\2}.", {})), none);
  EXPECT_EQ(line(torch_file("\x80\2" + matrix.value() + ".", {six})), none);
  EXPECT_EQ(line(torch_file("\x80\2}K\1" + matrix.value() + "s.", {six})), none);
  EXPECT_EQ(line(torch_file("\x80\2}" + pickled("model") + "cx\nNet\n)\x81s.", {})),
            none + "; its model is an object of x.Net" + advice);
  EXPECT_EQ(line(TorchArchive{.members = {{"w/model.json", "{}"}}}.bytes()),
            "a zip archive without a data.pkl, not a torch.save file");
  EXPECT_EQ(line(TorchArchive{.members = {{"w/data.pkl", state_dict({matrix})},
                                          {"w/byteorder", "big"},
                                          {"w/data/0", six}}}
                     .bytes()),
            "its numbers are big-endian; save it again on another machine");
}

// Two tensors in files of PyTorch before 1.6, whose storage keys are addresses.
class OldTorchFile : public testing::Test {
 protected:
  OldTorchFile() {
    first_.key = "94086832376832", first_.old = true;
    second_ = {.name = "b",
               .type = "HalfStorage",
               .key = "17",
               .elements = 2,
               .sizes = {2},
               .strides = {1},
               .old = true};
  }
  std::string file() const {
    return old_torch_file(
        state_dict({first_, second_}), {"17", first_.key},
        {little_endian(2, 8) + std::string("\0\x3c\0\xc0", 4), little_endian(6, 8) + six});
  }
  TorchTensor first_ = matrix, second_;
};

TEST_F(OldTorchFile, IsRead) {
  const TensorFile read = parsed(file());
  EXPECT_EQ(read.tensors.at("a").data, (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read.tensors.at("a").shape, (Shape{2, 3}));
  EXPECT_EQ(read.tensors.at("b").data, (Floats{1, -2}));
  const TemporaryFolder folder;
  write_text(folder / "a.pth", file());
  EXPECT_EQ(read_torch_file(folder / "a.pth").tensors.at("a").data[4], 4);
}

TEST_F(OldTorchFile, MustBeWholeAndRunsNothing) {
  const std::string whole = file();
  for (size_t size = 15; size < whole.size(); ++size) {
    const std::string message = line(whole.substr(0, size));
    ASSERT_TRUE(has(message, "truncated: ") || has(message, "isn't a pickle") ||
                has(message, "cut short in storage "))
        << size << message;
  }
  EXPECT_EQ(line(whole + "x"), "has 1 byte after its storages");
  EXPECT_EQ(line(replaced(whole, "little_endian\x88", "little_endian\x89")),
            "its numbers are big-endian; save it again on another machine");
  EXPECT_EQ(line(replaced(whole, "M\xe9\x03", "M\xea\x03")),
            "a torch.save file of an unknown version");
  first_.key = "5";
  const std::string own = file(), six_elements = little_endian(6, 8) + six;
  EXPECT_EQ(line(replaced(own, six_elements, little_endian(7, 8) + six + "1234")),
            "tensor 'a' needs 6 elements of 4 bytes in storage 5, which has 28 bytes");
  EXPECT_EQ(line(replaced(own, six_elements, little_endian(UINT64_MAX / 2, 8) + six)),
            "cut short in storage 2 of 2; get the file again");
  EXPECT_EQ(line(old_torch_file(state_dict({first_}), {"../x"}, {})),
            "a storage that no tensor uses: '../x'");
  EXPECT_EQ(line(old_torch_file(state_dict({first_}), {}, {})),
            "tensor 'a' needs storage 5, which the file lacks");
  EXPECT_EQ(line(old_torch_file("\x80\2cos\nsystem\n" + pickled("true") + "\x85R.", {}, {})),
            "an object of os.system, not a state dict" + advice);
  first_.key = "6", first_.type = "FutureStorage";
  EXPECT_EQ(line(file()), "a storage of the unknown type torch.FutureStorage");
}

class ZipArchives : public testing::Test {
 protected:
  // The error message for an archive with a change.
  static std::string said(auto change) {
    TorchArchive archive{.members = {{"w/data.pkl", state_dict({matrix})}, {"w/data/0", six}}};
    change(archive);
    return line(archive.bytes());
  }
  using A = TorchArchive&;
};

TEST_F(ZipArchives, OfEverySizeAreRead) {
  EXPECT_EQ(said([](A) {}), "no error");
  EXPECT_EQ(said([](A a) { a.zip64 = true; }), "no error");
  const std::string plain = torch_file(state_dict({matrix}), {six});
  // A comment that looks like the end of another archive
  std::string commented = plain;
  commented.replace(commented.size() - 2, 2, little_endian(26, 2));
  commented += "PK\5\6" + std::string(22, '\0');
  EXPECT_EQ(line(commented), "no error");
}

TEST_F(ZipArchives, MustBeWhole) {
  const std::string again = "; get the file again",
                    not_whole = "a damaged or incomplete zip archive: ";
  const std::string whole = torch_file(state_dict({matrix}), {six});
  for (size_t size = 4; size < whole.size(); ++size) {
    const std::string message = line(whole.substr(0, size));
    ASSERT_EQ(message, not_whole + "it has no end record" + again) << size;
  }
  std::string flipped = whole;
  flipped[flipped.find(six) + 3] ^= 1;
  EXPECT_EQ(line(flipped), not_whole + "the checksum of 'w/data/0' differs" + again);
  EXPECT_EQ(said([](A a) { a.shift = 1; }),
            not_whole + "the member 'w/data/0' isn't where the directory says" + again);
  EXPECT_EQ(said([](A a) { a.shift = 1 << 30; }),
            not_whole + "the member 'w/data/0' begins beyond the directory" + again);
  EXPECT_EQ(said([](A a) { a.members.push_back(a.members[1]); }),
            not_whole + "the member 'w/data/0' occurs twice" + again);
  const std::string packed =
      "a zip archive in which the member 'w/data.pkl' is compressed or encrypted; torch.save does "
      "neither";
  EXPECT_EQ(said([](A a) { a.method = 8; }), packed);
  EXPECT_EQ(said([](A a) { a.flags = 1; }), packed);
}

TEST_F(ZipArchives, LeadNowhereElse) {
  for (const std::string& name :
       {"../data/0"s, "w/../../x"s, "/w/x"s, "w\\x"s, ""s, "w/\0x"s, ".."s}) {
    const std::string message = said([&](A a) { a.members.emplace_back(name, "x"); });
    EXPECT_TRUE(message.starts_with("a zip archive with the member '")) << message;
    EXPECT_TRUE(message.ends_with("', which is refused")) << message;
  }
}

// An archive with a changed byte is read or refused, without a crash.
TEST_F(ZipArchives, OtherBytes) {
  const std::string whole = torch_file(state_dict({matrix}), {six});
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int change : {1, 0x80, 0xff}) {
      std::string other = whole;
      other[at] = static_cast<char>(other[at] ^ change);
      refused += line(other) != "no error";
    }
  EXPECT_GT(refused, whole.size());
}

}  // namespace
}  // namespace bv::test
