// The host side of the cpu backend: memory, streams, events, limits of the machine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine.h"
#include "comm/processes/affinity.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/stream.h"
#include "tests/emulated_bf16.h"

namespace bv::test {
namespace {

TEST(CpuBackend, AllocatesAlignedMemoryThatCanBeUsed) {
  const auto backend = make_cpu_backend(1, false);
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{5000000}}) {
    DeviceMemory memory(*backend, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0u);
    std::vector<char> pattern(bytes, 'x'), back(bytes);
    backend->to_device(memory.data(), pattern.data(), bytes, nullptr);
    backend->to_host(back.data(), memory.data(), bytes, nullptr);
    EXPECT_EQ(pattern, back);
    backend->zero(memory.data(), bytes, nullptr);
    EXPECT_EQ(memory.data()[bytes - 1], 0);
  }
  char foreign;
  EXPECT_THROW(backend->release(&foreign), std::invalid_argument);
  EXPECT_THROW(backend->allocate(size_t{1} << 60), std::runtime_error);
}

TEST(CpuBackend, SaysWhatItIs) {
  const auto backend = make_cpu_backend(2, false);
  EXPECT_TRUE(backend->describe().starts_with("cpu, 2 threads, AVX")) << backend->describe();
  EXPECT_NE(backend->describe().find(", oneDNN "), std::string::npos);
  EXPECT_TRUE(backend->supports(DType::fp32));
  EXPECT_FALSE(backend->supports(DType::fp16));
  EXPECT_TRUE(backend->converts(DType::fp16) && backend->converts(DType::bf16));
  const char* isa = std::getenv("BAREVISION_ISA");
  const bool avx2 = isa && std::string_view(isa) == "avx2";
  EXPECT_EQ(backend->supports(DType::bf16), has_bf16() && !avx2);
  const EmulatedBf16 emulated;
  EXPECT_EQ(make_cpu_backend(1, false)->supports(DType::bf16), emulated.lack().empty());
  EXPECT_GT(backend->memory_limit(), size_t{1} << 20);
  EXPECT_EQ(backend->communication_stream(), nullptr);
  EXPECT_EQ(backend->communication_stream(3), nullptr);
  EXPECT_THROW(make_cpu_backend(0, false), std::invalid_argument);
}

TEST(CpuBackend, RefusesAnInstructionSetThatItDoesntKnow) {
  setenv("BAREVISION_ISA", "sse", 1);
  EXPECT_THROW(make_cpu_backend(1, false), std::invalid_argument);
  unsetenv("BAREVISION_ISA");
  setenv("BAREVISION_BF16", "native", 1);
  EXPECT_THROW(make_cpu_backend(1, false), std::invalid_argument);
  unsetenv("BAREVISION_BF16");
}

TEST(CpuBackend, EventsOrderTheStreams) {
  const auto backend = make_cpu_backend(1, true);
  const Stream stream = backend->communication_stream();
  ASSERT_NE(stream, nullptr);
  const Event event = backend->create_event();
  std::atomic<int> value{0};
  std::atomic<bool> begun{false};
  CpuStream::of(stream)->submit([&] {
    while (!begun) usleep(100);
    usleep(30000);
    value = 1;
  });
  backend->record(event, stream);
  EXPECT_EQ(value, 0);  // nobody has waited yet
  begun = true;
  backend->wait(nullptr, event);
  EXPECT_EQ(value, 1);
  // A stream's work starts once the work that it waits for is done; it doesn't wait for later work.
  CpuStream other;
  CpuStream::of(stream)->submit([&] {
    usleep(30000);
    value = 2;
  });
  backend->record(event, stream);
  std::atomic<bool> open{false};
  CpuStream::of(stream)->submit([&] {
    while (!open) usleep(100);
  });
  int seen = 0;
  backend->wait(other.handle(), event);
  other.submit([&] { seen = value; });
  synchronize_stream(other.handle());
  EXPECT_EQ(seen, 2);
  open = true;
  backend->synchronize(stream);
  // Host memory is copied on the stream, in its order.
  int from = 5, to = 0;
  CpuStream::of(stream)->submit([&] { from = 6; });
  backend->copy(&to, &from, sizeof from, stream);
  backend->synchronize(stream);
  EXPECT_EQ(to, 6);
}

TEST(CpuBackend, EachChannelHasAStreamOfItsOwn) {
  const auto backend = make_cpu_backend(1, true);
  const Stream first = backend->communication_stream(), third = backend->communication_stream(2);
  EXPECT_NE(first, third);
  EXPECT_EQ(backend->communication_stream(0), first);
  EXPECT_EQ(backend->communication_stream(2), third);
  // Their work runs concurrently: the first stream's work waits for the third's.
  std::atomic<bool> open{false};
  CpuStream::of(first)->submit([&] {
    while (!open) usleep(100);
  });
  CpuStream::of(third)->submit([&] { open = true; });
  backend->synchronize(first);
  EXPECT_TRUE(open);
}

TEST(CpuStream, HandsErrorsToWhoWaits) {
  CpuStream stream;
  stream.submit([] { throw std::runtime_error("broken"); });
  EXPECT_THROW(synchronize_stream(stream.handle()), std::runtime_error);
  stream.submit([] {});
  EXPECT_NO_THROW(synchronize_stream(stream.handle()));
}

// ---- the machine --------------------------------------------------------------------------------

class Groups : public testing::Test {
 protected:
  Groups() {
    std::string name = testing::TempDir() + "groups-XXXXXX";
    root_ = mkdtemp(name.data());
    std::filesystem::create_directories(root_ + "/a/b");
  }
  ~Groups() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::ofstream(root_ + "/" + file) << text;
  }
  std::string root_;
};

TEST_F(Groups, TheTightestLimitCounts) {
  write("a/memory.max", "1000\n");
  write("a/b/memory.max", "max\n");
  EXPECT_EQ(memory_limit_of_groups(root_, "/a/b"), 1000u);
  write("memory.max", "500\n");
  EXPECT_EQ(memory_limit_of_groups(root_, "/a/b"), 500u);
  EXPECT_EQ(memory_limit_of_groups(root_, "/"), 500u);
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota_of_groups(root_, "/a/b"), 0);
  write("a/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota_of_groups(root_, "/a/b"), 2.5);
}

TEST_F(Groups, NoneIsNoLimit) {
  EXPECT_EQ(memory_limit_of_groups(root_, "/a/b"), SIZE_MAX);
  EXPECT_EQ(cpu_quota_of_groups(root_, "/a/b"), 0);
  EXPECT_EQ(memory_limit_of_groups("/nowhere", "/"), SIZE_MAX);
}

std::vector<int> cpus_of(const CoreShare& share) {
  std::vector<int> list;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &share.cpus)) list.push_back(cpu);
  return list;
}

TEST(Affinity, EveryCoreGoesToOnePart) {
  const std::vector<std::vector<int>> cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(cpus_of(share_of_cores(cores, 0, 2)), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(cpus_of(share_of_cores(cores, 1, 2)), (std::vector<int>{2, 3, 6, 7}));
  EXPECT_EQ(share_of_cores(cores, 1, 2).cores, 2);
  for (int parts = 1; parts <= 4; ++parts) {
    std::vector<int> taken(8);
    for (int part = 0; part < parts; ++part)
      for (int cpu : cpus_of(share_of_cores(cores, part, parts))) ++taken[cpu];
    EXPECT_EQ(taken, std::vector<int>(8, 1)) << parts;
  }
}

TEST(Affinity, MorePartsThanCoresShareThem) {
  const std::vector<std::vector<int>> cores = {{0}, {1}};
  for (int part = 0; part < 5; ++part) {
    const CoreShare share = share_of_cores(cores, part, 5);
    EXPECT_EQ(share.cores, 1);
    EXPECT_EQ(cpus_of(share), std::vector<int>{part < 3 ? 0 : 1});
  }
}

TEST(Affinity, NoKnownCoresIsNoPinning) {
  EXPECT_TRUE(cpus_of(share_of_cores(std::vector<std::vector<int>>{}, 1, 2)).empty());
}

}  // namespace
}  // namespace bv::test
