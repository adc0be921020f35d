#include "base/error.h"

#include <unistd.h>

#include <filesystem>
#include <new>

#include "base/text.h"
#include "base/wait.h"

namespace bv {

// The message names the program as the user called it (as_called).
std::string error_line(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) || dynamic_cast<const std::length_error*>(&e))
    return "out of memory; try a smaller --batch, --cache-mb or --workers, or fewer processes (-n)";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&e)) {
    const std::string path = printable(file->path1().string(), std::string::npos);
    return (path.empty() ? "a file or folder can't be used" : path) + ": " + file->code().message();
  }
  return as_called(printable(e.what(), std::string::npos));
}

void print_error_line(const std::string& line) {
  constexpr int patience_ms = 2000;
  const std::string text = line + "\n";
  pollfd item{STDERR_FILENO, POLLOUT, 0};
  if (wait_for_files({&item, 1}, patience_ms) < 1) return;
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nothing can be done
}

}  // namespace bv
