// main() of the test programs, which are also the worker processes of their own tests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/text.h"
#include "tests/comm/processes.h"
#include "tests/comm/workers.h"

namespace bv::test {
namespace {

// Without the exit handlers: other threads may still run.
[[noreturn]] void be_a_worker(const Words& words) {
  int code = 93;
  try {
    code = workers().at(words.at(0))(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "threw %s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace
}  // namespace bv::test

int main(int count, char** words) {
  if (const char* worker = std::getenv(bv::test::worker_variable))
    bv::test::be_a_worker(bv::split(worker, ' '));
  testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
