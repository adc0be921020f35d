// The launcher: starts N workers of this same program, supervises them and ends with their verdict.
#pragma once
#include <string>
#include <vector>

namespace bv {

// Starts `nproc` workers of this program (argv unchanged; tests start another `program`) and
// returns the exit code to end with: 0 if every worker exits with 0. A worker that fails ends the
// run: the launcher says which rank died first and of what ("rank 1 was killed by SIGKILL") and
// passes its exit code on (for a user error, which a worker has already printed, it adds nothing).
// SIGINT/SIGTERM are passed on; if the workers stop for one (exit code 128 + signal), so does the
// launcher; a second one kills. Workers die with the launcher. Warns if nproc exceeds the cores.
// Call it before any thread is started.
int run_launcher(int nproc, const std::vector<std::string>& argv,
                 const std::string& program = "/proc/self/exe");

}  // namespace bv
