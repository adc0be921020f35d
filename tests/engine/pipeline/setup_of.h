// The set-up of a run on random pixels, as prepared in all its processes.
#pragma once
#include <string>

#include "app/commands/commands.h"
#include "base/text.h"
#include "engine/options/config.h"
#include "engine/setup/setup.h"
#include "kernels/cpu/backend.h"

namespace bv::test {

inline Setup setup_of(const std::string& words, int world) {
  const CommandLine line = parse_command_line(split(words + " --data synthetic", ' '));
  const auto backend = make_cpu_backend(1, false);
  return prepare(read_request(line), world, {DeviceKind::cpu}, *backend);
}

}  // namespace bv::test
