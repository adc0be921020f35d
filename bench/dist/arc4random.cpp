// For packages (make dist): the function that Debian 12's static libstdc++ takes from glibc 2.36
// for std::random_device. With it, packages start on glibc 2.35.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" [[gnu::visibility("hidden")]] uint32_t arc4random() {
  uint32_t number = 0;
  if (getentropy(&number, sizeof number) != 0) std::abort();
  return number;
}
