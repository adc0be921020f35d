// TFRecord framing, compared with the bytes of TensorFlow's and TensorBoard's writers.
#include "data/records/tfrecord.h"

#include <gtest/gtest.h>

#include <span>

#include "base/files/checksum.h"

namespace bv::test {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[static_cast<uint8_t>(c) >> 4];
    text += digits[c & 15];
  }
  return text;
}

TEST(TfRecord, ChecksumsAreCrc32c) {
  // RFC 3720, B.4; and the mask of leveldb applied to it.
  const std::string zeros(32, '\0');
  EXPECT_EQ(crc32c(std::as_bytes(std::span(zeros))), 0x8a9136aau);
  EXPECT_EQ(masked_checksum(zeros), ((0x8a9136aau >> 15) | (0x8a9136aau << 17)) + 0xa282ead8u);
}

TEST(TfRecord, FramesAsTheirWriterDoes) {
  EXPECT_EQ(hex(framed_record("")), "000000000000000029039807d8ea82a2");
  EXPECT_EQ(hex(framed_record("123456789")),
            "090000000000000037f97139"
            "313233343536373839"
            "e5b08ac7");
}

TEST(TfRecord, ReadsBackWhatIsWhole) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{7}, size_t{100000}}) {
    const std::string payload(length, 'x'), record = framed_record(payload);
    EXPECT_EQ(record.size(), length + record_overhead);
    EXPECT_EQ(first_record(record), payload);
    EXPECT_EQ(first_record(record + "rest"), payload);
    EXPECT_FALSE(first_record(record.substr(0, record.size() - 1)));
  }
  EXPECT_FALSE(first_record(""));
}

TEST(TfRecord, AnyFlippedBitIsNoticed) {
  const std::string record = framed_record("payload");
  for (size_t bit = 0; bit < 8 * record.size(); ++bit) {
    std::string damaged = record;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(first_record(damaged)) << bit;
  }
}

}  // namespace
}  // namespace bv::test
