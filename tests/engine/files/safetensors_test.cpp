#include "engine/files/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/files/checksum.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace {

using namespace bv;
using namespace bv::test;
namespace fs = std::filesystem;

std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t n = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &n, 8);
  return file + header + data;
}

TensorFile parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

std::string refusal(const std::string& file) {
  return error_of([&] { parse(file); });
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

TensorFile example() {
  TensorFile file;
  file.metadata = {{"format", "pt"}, {"classes", "[\"a\",\"b\"]"}};
  file.tensors["w"] = {.shape = {2, 3}, .data = {1, -2, 3.5f, 0, -0.0f, 1e-40f}};
  file.tensors["b"] = {.shape = {1}, .data = {7}};
  file.tensors["scalar"] = {.shape = {}, .data = {9}};
  file.tensors["empty"] = {.shape = {0, 4}, .data = {}};
  return file;
}

TEST(Checksum, OfZipIsCrc32) {
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32(bytes.subspan(cut), crc32(bytes.first(cut))), 0xcbf43926u);
}

TEST(Checksum, IsCrc32c) {
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32c(bytes), 0xe3069283u);
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8a9136aau);
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), 0xe3069283u);
}

TEST(Safetensors, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  const TensorFile file = example();
  const FileDigest digest = write_safetensors(path, file);
  EXPECT_EQ(digest, InputFile(path).digest());
  EXPECT_EQ(digest.bytes, fs::file_size(path));
  const TensorFile back = read_safetensors(path);
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (const auto& [name, t] : file.tensors) {
    const HostTensor& other = back.tensors.at(name);
    EXPECT_EQ(other.shape, t.shape);
    ASSERT_EQ(other.data.size(), t.data.size());
    EXPECT_TRUE(std::equal(t.data.begin(), t.data.end(), other.data.begin(), [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    })) << name;
  }
}

TEST(Safetensors, EqualContentsGiveEqualBytes) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", example());
  write_safetensors(folder / "b", example());
  const std::string bytes = contents(folder / "a");
  EXPECT_EQ(bytes, contents(folder / "b"));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_LT(bytes.find("\"b\""), bytes.find("\"scalar\""));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);  // no other files
}

TEST(Safetensors, ReadsEveryFloatAndCounters) {
  const std::string data =
      raw<double>({1.5, -1e300}) + raw<float>({2.25f}) + raw<uint16_t>({0x3f80, 0xc040, 0x7fc0}) +
      raw<uint16_t>({0x3c00, 0xc500, 0x0001, 0x8000, 0x7bff, 0xfc00, 0x7e00}) + raw<int64_t>({-7}) +
      raw<int32_t>({-70000}) + raw<int16_t>({-300}) + raw<int8_t>({-3}) + raw<uint8_t>({200, 1});
  const TensorFile file = parse(file_of(
      "{" + tensor("d", "F64", "2", "0,16") + "," + tensor("f", "F32", "1,1", "16,20") + "," +
          tensor("h", "F16", "7", "26,40") + "," + tensor("b", "BF16", "3", "20,26") + "," +
          tensor("n", "I64", "", "40,48") + "," + tensor("i", "I32", "1", "48,52") + "," +
          tensor("s", "I16", "1", "52,54") + "," + tensor("c", "I8", "1", "54,55") + "," +
          tensor("u", "U8", "1", "55,56") + "," + tensor("t", "BOOL", "1", "56,57") + "}  ",
      data));
  for (const auto& [name, value] :
       std::map<std::string, float>{{"i", -70000}, {"s", -300}, {"c", -3}, {"u", 200}, {"t", 1}})
    EXPECT_EQ(file.tensors.at(name).data, std::vector<float>{value}) << name;
  for (const auto& [name, t] : file.tensors)
    EXPECT_EQ(t.integers, std::string("nisctu").find(name) != std::string::npos) << name;
  EXPECT_EQ(file.tensors.at("d").data, (std::vector<float>{1.5f, -HUGE_VALF}));
  EXPECT_EQ(file.tensors.at("f").data, (std::vector<float>{2.25f}));
  EXPECT_EQ(file.tensors.at("n").data, (std::vector<float>{-7}));
  const auto& b = file.tensors.at("b").data;
  EXPECT_EQ(b[0], 1.0f);
  EXPECT_EQ(b[1], -3.0f);
  EXPECT_TRUE(std::isnan(b[2]));
  const auto& h = file.tensors.at("h").data;
  EXPECT_EQ((std::vector<float>(h.begin(), h.begin() + 6)),
            (std::vector<float>{1, -5, 0x1p-24f, -0.0f, 65504, -HUGE_VALF}));
  EXPECT_TRUE(std::signbit(h[3]));
  EXPECT_TRUE(std::isnan(h[6]));
}

TEST(Safetensors, EveryHalfIsWhatTheProcessorSays) {
  std::string data(65536 * 2, '\0');
  for (uint32_t i = 0; i < 65536; ++i) std::memcpy(&data[2 * i], &i, 2);
  const TensorFile file = parse(file_of("{" + tensor("h", "F16", "65536", "0,131072") + "}", data));
  for (uint32_t i = 0; i < 65536; ++i) {
    _Float16 half;
    std::memcpy(&half, &data[2 * i], 2);
    const float want = float(half), got = file.tensors.at("h").data[i];
    if (std::isnan(want))
      ASSERT_TRUE(std::isnan(got)) << i;
    else
      ASSERT_TRUE(got == want && std::signbit(got) == std::signbit(want)) << i;
  }
}

TEST(Safetensors, UnsoundFilesAreRefusedWithTheirReason) {
  const std::string f = "f: not a valid .safetensors file: ";
  const std::string eight(8, '\0');
  const auto header = [](const std::string& tensors) { return "{" + tensors + "}"; };
  const std::string good = tensor("a", "F32", "2", "0,8");
  EXPECT_EQ(refusal(file_of(header(good), eight)), "no error");
  const std::vector<std::array<std::string, 3>> cases = {
      {"", "", "its header is not JSON at its byte 1"},
      {"{", "", "its header is not JSON at its byte 2"},
      {header(good) + "x", eight, "its header is not JSON at its byte 55"},
      {"[]", "", "its header has a list in the wrong place"},
      {"7", "", "its header has a number in the wrong place"},
      {std::string(100000, '['), "", "its header has a list in the wrong place"},
      {header("\"a\":" + std::string(1000, '{')), "", "its header is not JSON at its byte 7"},
      {header(good + "," + good), eight, "its header names 'a' twice"},
      {header("\"__metadata__\":{\"k\":1}"), "", "its header has a number in the wrong place"},
      {header("\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}"), "",
       "its header has the metadata 'k' twice"},
      {header(tensor("a", "F32", "2", "0,9")), eight + "x",
       "tensor 'a' has 9 bytes of data but its shape needs 8"},
      {header(tensor("a", "F32", "-2", "0,8")), eight,
       "its header has the number -2 in place of a size or an offset"},
      {header(tensor("a", "F32", "2.0", "0,8")), eight,
       "its header has the number 2.0 in place of a size or an offset"},
      {header(tensor("a", "F32", "2", "8,0")), eight, "tensor 'a' ends before it begins"},
      {header(tensor("a", "F32", "4611686018427387904,4", "0,0")), "",
       "tensor 'a' has a shape of more elements than can be counted"},
      {header(tensor("a", "F32", "9223372036854775808,0", "0,0")), "",
       "tensor 'a' has a dimension of 9223372036854775808"},
      {header(tensor("a", "F32", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2", "0,8")), eight,
       "tensor 'a' has too many dimensions"},
      {header(tensor("a", "F32", "2", "0,8,8")), eight,
       "its header has a number in the wrong place"},
      {header("\"a\":{\"dtype\":\"F32\",\"shape\":[2]}"), eight,
       "tensor 'a' needs a dtype, a shape and two data_offsets, and nothing else"},
      {header(good + "," + tensor("b", "F32", "1", "4,8")), eight,
       "tensor 'b' begins at byte 4 but the data before it ends at 8"},
      {header(tensor("a", "F32", "1", "4,8")), eight,
       "tensor 'a' begins at byte 4 but the data before it ends at 0"},
      {header(tensor("a", "F32", "1", "0,4")), eight,
       "4 bytes after the last tensor belong to no tensor"}};
  for (const auto& [text, data, reason] : cases)
    EXPECT_EQ(refusal(file_of(text, data)), f + reason);
}

TEST(Safetensors, OtherDtypesAreNamed) {
  EXPECT_EQ(
      refusal(file_of("{" + tensor("mask", "F8_E4M3", "", "0,1") + "}", std::string(1, '\0'))),
      "f: tensor 'mask' has dtype F8_E4M3; floats of 16 to 64 bits, integers and BOOL can be read");
}

TEST(Safetensors, EveryCutIsNoticed) {
  const TemporaryFolder folder;
  write_safetensors(folder / "w", example());
  const std::string whole = contents(folder / "w");
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal(whole.substr(0, n)), "no error") << n;
  EXPECT_EQ(
      refusal(whole.substr(0, whole.size() - 1)),
      "f: cut short: tensor 'w' ends at byte 32 of the data, which has 31; get the file again");
  EXPECT_EQ(refusal(std::string(8, '\xff')), "f: not a .safetensors file, or cut short");
  EXPECT_EQ(refusal(std::string("\x09\0\0\0\0\0\0\0{", 9)),
            "f: not a .safetensors file, or cut short: a header of 9 bytes in a file of 9");
}

TEST(Safetensors, WhatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_safetensors(folder / "none"), UserError);
  EXPECT_EQ(error_of([&] { read_safetensors(folder.path()); }),
            folder.path() + ": a folder where a file is expected");
}

TEST(Safetensors, FullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "disk", "64k");
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs can't be mounted here";
  const std::string path = folder / "disk/w";
  write_safetensors(path, example());
  const std::string before = contents(path);
  TensorFile large = example();
  large.tensors["large"] = {.shape = {50000}, .data = std::vector<float>(50000)};
  try {
    write_safetensors(path, large);
    ADD_FAILURE() << "200 kB fitted on 64";
  } catch (const WriteError& e) {
    EXPECT_TRUE(e.disk_full());
    EXPECT_EQ(e.what(), "can't write " + path + ": No space left on device");
  }
  EXPECT_EQ(contents(path), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "disk"), {}), 1);
}

}  // namespace
