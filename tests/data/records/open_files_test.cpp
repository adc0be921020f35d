// Data sets of more files than a process may open.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/records/example.h"
#include "data/records/tfrecord.h"
#include "tests/comm/processes.h"
#include "tests/files.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

int open_now() { return static_cast<int>(names_in("/proc/self/fd").size()); }

// Writes `count` shards of a record each; record i is a pixel of the value i.
void write_shards(const std::string& folder, int count) {
  std::string index = "# barevision index 1\n# class 0 even\n# class 1 odd\n";
  for (int i = 0; i < count; ++i) {
    const std::string name = "s" + std::to_string(i), number = std::to_string(i % 2);
    const std::string bytes = framed_record(
        write_example({.image = std::string("P5 1 1 255 ") + char(i), .label = i % 2}));
    write_text(folder + "/" + name, bytes);
    index += number + "\t" + name + "\t0\t" + std::to_string(bytes.size()) + "\t" + name + "\n";
  }
  write_text(folder + "/x.index", index);
}

// The whole test in a process of its own, which lowers its hard limit.
int read_with_limit(const std::string& folder, int count, int limit, int most_open) {
  const rlimit few{rlim_t(limit), rlim_t(limit)};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
  const DataSets sets = open_dataset({.path = folder, .val_fraction = 0});
  const int before = open_now();
  int wrong = 0, most = 0;
  const auto read = [&](int first) {
    for (int i = 0; i < 2 * count; ++i) {
      const int at = (first + 7 * i) % count;
      wrong += sets.train->image(at, 0).pixels[0] != at;
    }
  };
  std::vector<uint32_t> all;
  for (int i = 0; i < count; ++i) all.push_back(uint32_t(i));
  sets.train->will_need(all);
  {
    std::jthread one([&] { read(0); });
    read(count / 2);
  }
  most = open_now() - before;
  std::fprintf(stderr, "%d wrong, %d stay open\n", wrong, most);
  return wrong == 0 && most <= most_open && most >= most_open - 4 ? 0 : 1;
}

TEST(RecordsOpen, StayOpenWithinTheLimit) {
  if (!have_records) GTEST_SKIP() << "without protobuf";
  const TemporaryFolder folder;
  write_shards(folder.path(), 200);
  // Half of a small limit is for other files, a quarter for another part.
  const Ending few = Child([&] { return read_with_limit(folder.path(), 200, 100, 25); }).wait();
  EXPECT_EQ(few.code, 0) << few.errors;
  // All of them stay open if they may.
  const Ending many = Child([&] { return read_with_limit(folder.path(), 200, 900, 200); }).wait();
  EXPECT_EQ(many.code, 0) << many.errors;
}

}  // namespace
}  // namespace bv::test
