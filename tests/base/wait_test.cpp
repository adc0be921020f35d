// Every kind of wait lets the devices' queues proceed, and sleeps no longer than they allow.
#include "base/wait.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <future>
#include <thread>

#include "base/background.h"
#include "base/descriptor.h"
#include "base/threads.h"

namespace bv::test {
namespace {

thread_local int ticks = 0, ticks_wanted = 0;
std::atomic<int> reached = 0;  // how many waits have had all their ticks

// Queues that proceed for a number of ticks of the test's thread, then show it to others.
int proceed() {
  if (ticks_wanted == 0) return INT_MAX;
  if (++ticks == ticks_wanted) ++reached;
  return ticks < ticks_wanted ? ticks % 2 : INT_MAX;
}

// The event of a wait comes once the queues have proceeded.
class Wait : public testing::Test {
 protected:
  void SetUp() override {
    on_each_tick(proceed);
    reached = ticks = 0;
    ticks_wanted = 5;
  }
  void TearDown() override {
    on_each_tick(nullptr);
    ticks_wanted = 0;
  }
  static void until_reached() {
    while (reached == 0) std::this_thread::yield();
  }
};

TEST_F(Wait, ForACondition) {
  std::mutex mutex;
  Condition changed;
  bool ready = false;
  const std::jthread other([&] {
    until_reached();
    const std::lock_guard lock(mutex);
    ready = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ready; });
  EXPECT_GE(ticks, 5);
}

// A queue may need what the lock guards.
TEST_F(Wait, ForAConditionReleasesTheLockInATick) {
  static std::mutex mutex;
  static bool ready;
  ready = false;
  on_each_tick([] {
    const std::lock_guard lock(mutex);
    ready = true;
    return 0;
  });
  Condition changed;
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ready; });
}

TEST_F(Wait, ForAConditionEndsInTime) {
  std::mutex mutex;
  Condition never;
  std::unique_lock lock(mutex);
  EXPECT_FALSE(never.wait_for(lock, std::chrono::milliseconds(20), [] { return false; }));
  EXPECT_GE(ticks, 5);
}

TEST_F(Wait, ForAFile) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor from(ends[0]), to(ends[1]);
  const std::jthread other([&] {
    until_reached();
    EXPECT_EQ(write(to.fd(), "x", 1), 1);
  });
  pollfd item{from.fd(), POLLIN, 0};
  while (wait_for_files({&item, 1}, -1) == 0) {
  }
  EXPECT_EQ(item.revents, POLLIN);
  EXPECT_GE(ticks, 5);
}

TEST_F(Wait, ForAWord) {
  std::atomic<uint32_t> word = 0;
  const std::jthread other([&] {
    until_reached();
    word = 1;
    futex_wake_all(word);
  });
  while (word == 0) futex_wait(word, 0, 10000);
  EXPECT_GE(ticks, 5);
}

TEST_F(Wait, ForATime) {
  const auto begin = std::chrono::steady_clock::now();
  pause_ms(20);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
  EXPECT_GE(ticks, 5);
}

TEST_F(Wait, ForOtherThreads) {
  in_threads(
      1, 1, [](int64_t) { until_reached(); }, std::chrono::hours(1), [](int64_t) {});
  EXPECT_GE(ticks, 5);
}

TEST_F(Wait, ForBackgroundJobs) {
  Background background;
  background.post(until_reached);
  background.wait();
  EXPECT_GE(ticks, 5);
}

TEST_F(Wait, OfAThreadThatUsesNoDevice) {
  std::thread([] { pause_ms(2); }).join();
  EXPECT_EQ(ticks, 0);
}

}  // namespace
}  // namespace bv::test
