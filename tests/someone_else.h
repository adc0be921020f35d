// Root may read everything, so tests of what may not be read open files as someone else.
#pragma once
#include <sys/fsuid.h>
#include <unistd.h>

namespace bv::test {

class AsSomeoneElse {
 public:
  AsSomeoneElse() {
    if (geteuid() == 0) setfsuid(65534);
  }
  ~AsSomeoneElse() { setfsuid(geteuid()); }
  AsSomeoneElse(const AsSomeoneElse&) = delete;
  // False for the root of a container whose users are all its own.
  static bool can() {
    const AsSomeoneElse other;
    return setfsuid(uid_t(-1)) != 0;  // changes nothing, and returns the present one
  }
};

}  // namespace bv::test
