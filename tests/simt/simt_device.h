// Shared by the tests of the stand-in's device side. Each kernel named "planted" has the bug in its
// name, and the message must name the kernel, the block, the threads and the line.
#pragma once
#include <array>
#include <filesystem>

#include "tests/simt/simt_host.h"

namespace bv::simt_gpu {

using simt::Order;
constexpr std::array orders{Order::forward, Order::reverse, Order::random};

// Runs the kernel now, without a stream.
template <auto kernel, class... Args>
void run(dim3 grid, dim3 block, size_t shared_bytes, const Args&... args) {
  simt::run({.name = kernel_name<kernel>(),
             .grid = grid,
             .block = block,
             .shared_bytes = shared_bytes,
             .body = [=] { kernel(args...); }});
}

template <auto kernel, class... Args>
std::string error_of(dim3 grid, dim3 block, size_t shared_bytes, const Args&... args) {
  return message_of([&] { run<kernel>(grid, block, shared_bytes, args...); });
}

// A line of the calling file, as messages name it.
inline std::string at(int line, std::source_location here = std::source_location::current()) {
  return std::filesystem::path(here.file_name()).filename().string() + ":" + std::to_string(line) +
         ":";
}

inline testing::AssertionResult says(const std::string& text,
                                     std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos)
      return testing::AssertionFailure() << text << "\ndoesn't say: " << part;
  return testing::AssertionSuccess();
}

template <class Body>
void in_each_order(Body body) {
  for (const Order order : orders) simt::order = order, body();
  simt::order = Order::forward;
}

class SimtDevice : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    simt::order = Order::forward;
    unsetenv("SIMT_ARCH");
  }
};

}  // namespace bv::simt_gpu
