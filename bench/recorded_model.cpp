#include "bench/recorded_model.h"

#include "app/commands/commands.h"
#include "engine/options/config.h"
#include "engine/setup/setup.h"
#include "engine/training/recording.h"

namespace bv {

std::vector<RecordedOperation> record_model(std::vector<std::string> arguments, bool together) {
  arguments.insert(arguments.end(), {"--data", "synthetic", "--classes", "1000", "--plan"});
  const auto backend = make_recording_backend();
  const Request request = read_request(parse_command_line(arguments));
  const Setup setup = prepare(request, 1, {DeviceKind::cpu}, *backend);
  return record_step(setup.graph, setup.trainer, together);
}

}  // namespace bv
