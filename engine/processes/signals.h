// A request to stop: SIGINT, SIGTERM or SIGHUP. Workers stop after a step that all ranks agree on.
#pragma once
#include <span>

namespace bv {

std::span<const int> stop_signals();  // without SIGHUP where nohup has it ignored

// The first stop signal received, else 0. Another one, a second later, ends the process.
int stop_signal();
void catch_stop_signals();

}  // namespace bv
