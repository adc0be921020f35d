#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/text.h"

namespace bv {

size_t text_width() {
  constexpr int64_t narrowest = 44, usual = 80, widest = 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size.ws_col = 0;
  int64_t columns = size.ws_col;
  if (const char* given = std::getenv("COLUMNS"); given && columns == 0)
    columns = parse_integer(given).value_or(0);
  return static_cast<size_t>(std::clamp(columns > 0 ? columns : usual, narrowest, widest));
}

}  // namespace bv
