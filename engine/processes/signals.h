// SIGINT and SIGTERM in a worker: a request to stop after the step that all ranks agree on.
#pragma once

namespace bv {

// The first SIGINT or SIGTERM received, else 0. Another one, a second later, ends the process.
int stop_signal();
void catch_stop_signals();

}  // namespace bv
