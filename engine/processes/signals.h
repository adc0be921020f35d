// SIGINT and SIGTERM in a worker: a request to stop after the step that all ranks agree on.
#pragma once

namespace bv {

// The number of the SIGINT or SIGTERM received, else 0. A second signal a second or more after the
// first ends the process at once (the terminal and the launcher may both deliver the same request).
int stop_signal();
void catch_stop_signals();

}  // namespace bv
