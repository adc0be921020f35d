// The mean and deviation of pixels.
#include "data/dataset_stats/pixel_statistics.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/threads.h"
#include "tests/data/data_files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

PixelStatistics statistics(const std::string& path, int threads) {
  const DataSets sets = open_dataset({.path = path, .val_fraction = 0});
  return pixel_statistics(*sets.train, threads, [](int64_t) {});
}

TEST(PixelStatistics, OfEachImageAndOfAllPixels) {
  TemporaryFolder folder;
  write_text(folder / "a/1.ppm", "P6 3 1 255 " + std::string("\0\xFF\x33\0\0\x33\xFF\0\x33", 9));
  write_text(folder / "b/1.ppm", "P6 1 1 255 " + std::string("\xFF\0\x33", 3));
  const PixelStatistics s = statistics(folder.path(), 1);
  EXPECT_EQ(s.images, 2);
  EXPECT_EQ(s.pixels, 4);
  EXPECT_DOUBLE_EQ(s.of_each_image.mean[0], (1. / 3 + 1) / 2);
  EXPECT_DOUBLE_EQ(s.of_each_image.mean[1], 1. / 6);
  EXPECT_DOUBLE_EQ(s.of_each_image.mean[2], 0.2);
  EXPECT_DOUBLE_EQ(s.of_each_image.deviation[0], std::sqrt(1. / 3) / 2);  // of 0 0 1; one pixel: 0
  EXPECT_DOUBLE_EQ(s.of_all_pixels.mean[0], 0.5);
  EXPECT_DOUBLE_EQ(s.of_all_pixels.deviation[0], 0.5);
  EXPECT_DOUBLE_EQ(s.of_all_pixels.deviation[1], std::sqrt(3.) / 4);
  EXPECT_EQ(s.of_all_pixels.deviation[2], 0);
}

TEST(PixelStatistics, DoNotDependOnTheThreads) {
  TemporaryFolder folder;
  for (int i = 0; i < 60; ++i)
    write_ppm(folder / (i % 2 ? "a/" : "b/") + std::to_string(i) + ".ppm", 20 + i, 7, i);
  const PixelStatistics one = statistics(folder.path(), 1), five = statistics(folder.path(), 5);
  EXPECT_EQ(one.of_each_image.mean, five.of_each_image.mean);
  EXPECT_EQ(one.of_each_image.deviation, five.of_each_image.deviation);
  EXPECT_EQ(one.of_all_pixels.deviation, five.of_all_pixels.deviation);
}

// NumPy's values, from tests/golden/images/make_pixel_statistics.py.
TEST(PixelStatistics, AsNumPyHasThem) {
  const char* data = std::getenv("BAREVISION_DATA");
  const fs::path folder = data ? data : "../shared/data";
  if (!fs::exists(folder / "seedlings")) GTEST_SKIP() << "no " << folder / "seedlings";
  std::ifstream file("tests/golden/images/pixel_statistics.json");
  const auto golden = nlohmann::json::parse(file);
  for (const std::string name : {"seedlings", "flowers"}) {
    const auto& expected = golden.at(name);
    const PixelStatistics s = statistics(folder / name, 2);
    EXPECT_EQ(s.images, expected.at("images"));
    EXPECT_EQ(s.pixels, expected.at("pixels"));
    for (int c = 0; c < 3; ++c) {
      const auto number = [&](const char* kind, const char* what) {
        return expected.at(kind).at(what).at(c).get<double>();
      };
      EXPECT_NEAR(s.of_each_image.mean[c], number("of_each_image", "mean"), 1e-6);
      EXPECT_NEAR(s.of_each_image.deviation[c], number("of_each_image", "std"), 1e-6);
      EXPECT_NEAR(s.of_all_pixels.mean[c], number("of_all_pixels", "mean"), 1e-6);
      EXPECT_NEAR(s.of_all_pixels.deviation[c], number("of_all_pixels", "std"), 1e-6);
    }
  }
}

TEST(InThreads, EachOnceAndErrorsEndIt) {
  constexpr int64_t many = 100000;  // enough to outlast any pause of a thread
  std::vector<std::atomic<int>> calls(many);
  in_threads(
      many, 4, [&](int64_t i) { ++calls[i]; }, std::chrono::milliseconds(1), [](int64_t) {});
  for (const auto& count : calls) EXPECT_EQ(count, 1);
  const auto fail = [&](int64_t i) {
    if (i == 3) throw DataError("three");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++calls[i];
  };
  EXPECT_EQ(error_of<DataError>(
                [&] { in_threads(many, 4, fail, std::chrono::milliseconds(1), [](int64_t) {}); }),
            "three");
  EXPECT_EQ(calls[many - 1], 1);  // not called again: the error ended the loop
  const auto sleep = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  const auto stop = [](int64_t) { throw DataError("stop"); };
  EXPECT_EQ(
      error_of<DataError>([&] { in_threads(many, 2, sleep, std::chrono::milliseconds(1), stop); }),
      "stop");
}

}  // namespace
}  // namespace bv::test
