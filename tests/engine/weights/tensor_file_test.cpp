// Weights by path, whatever the file turns out to be.
#include "engine/weights/tensor_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/engine/weights/torch_archive.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

using namespace std::string_literals;

class TensorFiles : public testing::Test {
 protected:
  // The error message for a file with this content, without its path.
  std::string line(const std::string& content, const std::string& name = "w.bin") const {
    const std::string path = folder_ / name;
    write_text(path, content);
    const std::string message = error_of([&] { read_tensor_file(path); });
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  }
  void write(const std::string& name, const std::vector<std::string>& tensors) const {
    TensorFile file;
    for (const std::string& tensor : tensors)
      file.tensors[tensor] = {.shape = {1}, .data = {float(tensor.size())}};
    write_safetensors(folder_ / name, file);
  }
  std::string shards_line(const std::string& map) const {
    return line(R"({"metadata": {"total_size": 8}, "weight_map": {)" + map + "}}",
                "model.safetensors.index.json");
  }
  const TemporaryFolder folder_;
};

TEST_F(TensorFiles, AreToldByTheirFirstBytes) {
  const TorchTensor a{.name = "a", .elements = 2, .sizes = {2}, .strides = {1}};
  write_text(folder_ / "a.bin", torch_file(state_dict({a}), {of_floats({3, 4})}));
  EXPECT_EQ(read_tensor_file(folder_ / "a.bin").tensors.at("a").data[1], 4);
  write("b.pth", {"long"});
  EXPECT_EQ(read_tensor_file(folder_ / "b.pth").tensors.at("long").data[0], 4);
}

TEST_F(TensorFiles, SayWhatElseTheyAre) {
  EXPECT_EQ(line(""), "an empty file");
  EXPECT_EQ(line("\xff\xd8\xff\xe0\0\x10JF more"s), "an image, not weights (a .safetensors file)");
  EXPECT_EQ(line("\x89PNG\r\n\x1a\n"), "an image, not weights (a .safetensors file)");
  EXPECT_EQ(line("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
            "a Git LFS pointer, not the file itself; git lfs pull in its repository gets it");
  const std::string page =
      "a web page, not weights; download the file itself (huggingface.co: /resolve/ in place of "
      "/blob/ in the address)";
  for (const char* text : {"<!doctype html><html>", "\xEF\xBB\xBF\n <html lang=\"en\">", "<?xml "})
    EXPECT_EQ(line(text, "w.pth"), page) << text;
  const std::string json = "JSON text, not weights; give the .safetensors or .pth file";
  for (const char* text : {"{\"architecture\": \"resnet50\"}", "{\"meta\":{\"a\": 1}}", "[1, 2]"})
    EXPECT_EQ(line(text), json) << text;
  EXPECT_EQ(line("Not found\n"),
            "a text file, not weights (.safetensors, or what torch.save writes)");
  EXPECT_EQ(line("x"), "a text file, not weights (.safetensors, or what torch.save writes)");
  EXPECT_EQ(line("\x1f\x8b\x08"), "compressed by gzip; gunzip it first");
  EXPECT_TRUE(line("\x89HDF\r\n\x1a\n").starts_with("an HDF5 file, as Keras writes; "));
  EXPECT_EQ(line("w.pth" + std::string(252, '\0') + "ustar"),
            "a tar archive; unpack it and give the file inside");
  EXPECT_EQ(line("\1\2\3\4\5\6\7\x08\x09"), "not a .safetensors file, or cut short");
}

// Pickles that torch.save didn't write, or not with its default protocol
TEST_F(TensorFiles, SayHowAPickleIsConverted) {
  for (const std::string& begin : {"\x80\2}q\0."s, "\x80\4\x95\1"s, "\x80\5\x95\1"s}) {
    const std::string message = line(begin, "a b.pth"), path = folder_ / "a b";
    EXPECT_TRUE(
        message.starts_with("a Python pickle that torch.save didn't write in its default "
                            "way; if you trust it, convert it: python -c '"))
        << message;
    EXPECT_TRUE(message.ends_with(" '" + path + ".pth' '" + path + ".safetensors'")) << message;
  }
}

TEST_F(TensorFiles, HaveTheTensorsOfAllShards) {
  write("a.safetensors", {"one", "three"});
  write("b.safetensors", {"eleven"});
  const std::string map = R"("one": "a.safetensors", "three": "a.safetensors")";
  EXPECT_EQ(shards_line(map + R"(, "eleven": "b.safetensors")"), "no error");
  const TensorFile file = read_tensor_file(folder_ / "model.safetensors.index.json");
  EXPECT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors.at("eleven").data[0], 6);

  const std::string wrong = "; the files are not of one model, download all of them again";
  EXPECT_EQ(shards_line(map + R"(, "seven": "b.safetensors")"),
            "there is no 'seven' in b.safetensors" + wrong);
  EXPECT_EQ(shards_line(R"("one": "a.safetensors")"),
            "it doesn't know of 'three' in a.safetensors" + wrong);
  EXPECT_EQ(shards_line(map + R"(, "eleven": "c.safetensors")"),
            "its file c.safetensors isn't beside it (2 are needed); download it");
}

TEST_F(TensorFiles, HaveShardsOnlyBesideTheIndex) {
  for (const char* name :
       {"../a.safetensors", "/etc/passwd", "..", ".", "", "sub/a", "a\\\\b", "a\\u0000b"}) {
    const std::string message = shards_line(R"("w": ")" + std::string(name) + "\"");
    EXPECT_TRUE(message.starts_with("'w' is in '")) << message;
    EXPECT_TRUE(message.ends_with("', which is no name of a file beside the index")) << message;
  }
  EXPECT_TRUE(has(shards_line(R"("w": 3)"), "which is no name of a file beside the index"));
  EXPECT_TRUE(has(shards_line(""), "'weight_map' must name the tensors' files"));
  // An index of itself
  EXPECT_TRUE(has(shards_line(R"("w": "model.safetensors.index.json")"),
                  "JSON text, not weights; give the .safetensors or .pth file"));
}

TEST_F(TensorFiles, HavePartsByTheirNames) {
  write("w", {"student.a", "student.b.c", "teacher.a", "student"});
  const TensorFile part = read_tensor_file(folder_ / "w", {.key = "student"});
  ASSERT_EQ(part.tensors.size(), 2u);
  EXPECT_EQ(part.tensors.at("b.c").data[0], 11);
  EXPECT_EQ(error_of([&] { read_tensor_file(folder_ / "w", {.key = "ema"}); }),
            folder_ / "w: nothing in it is called ema; it has names like student");
}

}  // namespace
}  // namespace bv::test
