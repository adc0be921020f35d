// The main loop of a fuzz program: takes FIRST [COUNT] on the command line, or runs all mutants.
#pragma once
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/watch.h"

namespace bv::test::fuzz {

// Fuzzer: run(number) returns what is wrong with that mutant's outcome, or ""; counts() returns
// lines about the outcomes of all mutants. `again`: the command that repeats a mutant. Returns the
// program's exit code.
template <class Fuzzer>
int run_mutants(const char* again, int argc, char** argv, uint64_t all, unsigned max_seconds) {
  using Number = unsigned long long;
  const Number first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const Number count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : argc > 1 ? 1 : all;
  Fuzzer fuzzer;
  Number failed = 0;
  for (Number number = first; number < first + count; ++number) {
    arm(max_seconds);
    const auto problem = fuzzer.run(number);
    if (problem.empty()) continue;
    ++failed;
    std::printf("mutant %llu: %s; again: %s %llu 1\n", number, problem.c_str(), again, number);
  }
  std::printf("%s", fuzzer.counts().c_str());
  std::printf("%llu passed, %llu failed\n", count - failed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace bv::test::fuzz
