// Runs programs that every system has, instead of linking libraries: curl, tar, sha256sum.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace bv {

struct ProgramEnd {
  int code;            // its exit code, or 128 + signal
  std::string output;  // standard output and error, as they came
};

// Runs a program without a shell and waits for its end. Calls `go_on` ten times a second; if it
// returns false, the program gets SIGTERM. Its standard input is the file `input`. Throws UserError
// if the program is missing.
ProgramEnd run_to_end(const std::vector<std::string>& words, const std::function<bool()>& go_on,
                      const std::string& input = "/dev/null");

}  // namespace bv
