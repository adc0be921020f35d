#include "comm/processes/restart.h"

#include <climits>
#include <cstdlib>

#include "base/json.h"

namespace bv {

std::string to_json(const Restart& r) {
  return to_line({{"restart", r.number},
                  {"of", r.most},
                  {"rank", r.after.rank},
                  {"step", r.after.step},
                  {"cause", r.after.cause},
                  {"processes", r.processes},
                  {"folder", r.folder}});
}

std::optional<Restart> restart_from_environment() {
  const char* const text = std::getenv(restart_variable);
  if (!text || !*text) return std::nullopt;
  const std::string name = restart_variable;
  const Json object = parse_json_object(text, name);
  JsonReader reader(object, name);
  return Restart{.number = reader.whole("restart", INT_MAX),
                 .most = reader.whole("of", INT_MAX),
                 .after = {.rank = int(reader.count("rank", INT_MAX)),
                           .step = int64_t(reader.count("step", INT64_MAX)),
                           .cause = reader.text("cause")},
                 .folder = reader.text("folder"),
                 .processes = int(reader.count("processes", INT_MAX))};
}

}  // namespace bv
