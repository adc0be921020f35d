// Error messages, for tests.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace bv::test {

// The message of the Error that f throws, or "no error".
template <class Error = UserError, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

// Whether a message for the user is one line that contains `part`.
inline testing::AssertionResult is_line(const std::string& message, const std::string& part) {
  if (message.find('\n') != std::string::npos)
    return testing::AssertionFailure() << "more than one line: " << message;
  return has(message, part);
}

}  // namespace bv::test
