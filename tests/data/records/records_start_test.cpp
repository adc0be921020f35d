// The time and memory that opening a large data set takes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "data/dataset.h"
#include "data/records/example.h"
#include "tests/comm/processes.h"
#include "tests/files.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

double processor_seconds(const rusage& use) {
  return double(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         double(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

// Opening a million images may take 2 s and 200 MB; by default, this tests a tenth of that.
// Sanitizers need more time and memory.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t more = 10;
#else
constexpr int64_t more = 1;
#endif

TEST(RecordsStart, OpensManyRecordsAtOnce) {
  if (!have_records) GTEST_SKIP() << "without protobuf";
  const int64_t count = std::getenv("BAREVISION_TEST_ALL") ? 1000000 : 100000;
  constexpr int64_t size = 90;
  const TemporaryFolder folder;
  std::string index = "# barevision index 1\n";
  for (int c = 0; c < 1000; ++c)
    index += "# class " + std::to_string(c) + " n" + std::to_string(1440764 + c) + "\n";
  for (int64_t i = 0; i < count; ++i)
    index += std::to_string(i * 1000 / count) + "\tmany-00000-of-00001.tfrecord\t" +
             std::to_string(i * size) + "\t" + std::to_string(size) + "\tn" +
             std::to_string(1440764 + i * 1000 / count) + "/n" + std::to_string(i) + ".JPEG\n";
  write_text(folder / "many.index", index);
  write_text(folder / "many-00000-of-00001.tfrecord", "");
  std::filesystem::resize_file(folder / "many-00000-of-00001.tfrecord", count * size);
  index = {};
  // Runs in its own process, whose peak memory is measured.
  Child child([&] {
    rusage before{}, after{};
    write_text("/proc/self/clear_refs", "5");  // forgets what the parent once had
    getrusage(RUSAGE_SELF, &before);
    const DataSets sets = open_dataset({.path = folder.path()});
    getrusage(RUSAGE_SELF, &after);
    const double seconds = processor_seconds(after) - processor_seconds(before);
    std::printf("%lld records: %.2f s, %ld MiB\n", static_cast<long long>(count), seconds,
                (after.ru_maxrss - before.ru_maxrss) >> 10);
    std::fflush(stdout);
    const bool all = sets.train->size() + sets.val->size() == count;
    const bool small = (after.ru_maxrss - before.ru_maxrss) * 1024 < count * 200 * more + (4 << 20);
    return all && small && seconds < 2.0 * double(count * more) / 1e6 ? 0 : 1;
  });
  EXPECT_EQ(child.wait().code, 0);
}

}  // namespace
}  // namespace bv::test
