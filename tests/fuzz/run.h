// The main loop of a fuzz program: takes FIRST [COUNT] on the command line, or runs the mutants of
// `make test`. FUZZ_SECONDS: as many from FIRST as that time allows.
#pragma once
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/watch.h"

namespace bv::test::fuzz {

struct Mutants {
  uint64_t few, all;  // in `make test`, in `make test-all`
};

// Fuzzer: run(number) returns what is wrong with that mutant's outcome, or ""; counts() returns
// lines about the outcomes of all mutants. `again`: the command that repeats a mutant. Returns the
// program's exit code.
template <class Fuzzer>
int run_mutants(const char* again, int argc, char** argv, Mutants mutants, unsigned max_seconds) {
  using Number = unsigned long long;
  using Clock = std::chrono::steady_clock;
  const char* set = std::getenv("FUZZ_SECONDS");
  const std::chrono::duration<double> time(set ? std::strtod(set, nullptr) : 0);
  const Number usual = std::getenv("BAREVISION_TEST_ALL") ? mutants.all : mutants.few;
  const Number first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const Number count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : argc > 1 ? 1 : usual;
  const auto begin = Clock::now();
  Fuzzer fuzzer;
  Number done = 0, failed = 0;
  for (; set ? Clock::now() - begin < time : done < count; ++done) {
    const Number number = first + done;
    arm(max_seconds);
    const auto problem = fuzzer.run(number);
    if (problem.empty()) continue;
    ++failed;
    std::printf("mutant %llu: %s; again: %s %llu 1\n", number, problem.c_str(), again, number);
  }
  std::printf("%s", fuzzer.counts().c_str());
  std::printf("%llu passed, %llu failed\n", done - failed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace bv::test::fuzz
