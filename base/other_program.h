// Runs common programs (curl, tar, sha256sum) as child processes instead of linking libraries.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace bv {

struct ProgramEnd {
  int code;            // its exit code, or 128 + signal
  std::string output;  // standard output and error, interleaved as written; about the first 64 KiB
};

// Runs a program without a shell and waits for its end. Calls `go_on` at least ten times a second
// and sends the program SIGTERM once it returns false. The program's standard input is the file
// `input`. Throws UserError if the program is missing.
ProgramEnd run_to_end(const std::vector<std::string>& words, const std::function<bool()>& go_on,
                      const std::string& input = "/dev/null");

// A file's SHA-256 in hexadecimal, by sha256sum.
std::string sha256_of(const std::string& path);

}  // namespace bv
