// Errors shown to the user. Every message is one line: what, where, what to do.
#pragma once
#include <stdexcept>
#include <string>

namespace bv {

// The user's mistake: exit code 2 and this line.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The run can't continue (not finite, disk full, a peer lost): exit code 1 and this line.
struct RunError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace bv
