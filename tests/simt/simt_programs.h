// Programs that tests start, and what they print.
#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/comm/processes.h"

namespace bv::test {

struct Ended {
  int code;
  std::string output;  // and errors
};
inline Ended shell(const std::string& command) {
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  if (!pipe) throw std::runtime_error("popen");
  Ended end{0, ""};
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) end.output.append(part, n);
  const int status = pclose(pipe);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

inline std::string build_folder() {
  return std::filesystem::relative(std::filesystem::path(own_path()).parent_path()).string();
}

}  // namespace bv::test
