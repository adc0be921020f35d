// Errors shown to the user. Every message is one line: what is wrong, where, what to do.
#pragma once
#include <exception>
#include <stdexcept>
#include <string>

namespace bv {

// The user's mistake: exit code 2 and this line.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The run can't continue (loss not finite, disk full, peer lost): exit code 1 and this line.
struct RunError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An error's message as one line, with control characters replaced. The standard library's messages
// about memory and files are replaced by informative ones.
std::string error_line(const std::exception&);

// Writes to standard error with one write(2), so that lines of several processes don't mix; gives
// up if standard error isn't writable within two seconds.
void print_error_line(const std::string&);

}  // namespace bv
