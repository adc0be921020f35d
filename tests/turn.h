// Large tests take turns in `make test`.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace bv::test {

// `make test` without FILTER runs a quarter of the large tests: those of the commit's turn, 0 to 3,
// in BAREVISION_TEST_TURN (mk/tests.mk). If that is unset, as in `make test-all`, all of them run.
inline bool is_its_turn(uint32_t number) {
  const char* turn = std::getenv("BAREVISION_TEST_TURN");
  const bool is_set = turn && *turn >= '0' && *turn <= '3' && !turn[1];
  return !is_set || number % 4 == uint32_t(*turn - '0');
}
inline bool is_its_turn(std::string_view test) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : test) hash = (hash ^ uint8_t(c)) * 16777619u;
  return is_its_turn(hash ^ hash >> 16);
}

}  // namespace bv::test
