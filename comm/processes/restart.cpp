#include "comm/processes/restart.h"

#include <climits>
#include <cstdlib>

#include "base/json.h"

namespace bv {
namespace {

Json json_of(const Restart& r) {
  return {{"restart", r.number},    {"of", r.most},
          {"rank", r.after.rank},   {"step", r.after.step},
          {"cause", r.after.cause}, {"processes", r.processes},
          {"folder", r.folder},     {"unlogged", Json::array()}};
}

// Without `unlogged`.
Restart restart_of(const Json& object, const std::string& name) {
  JsonReader reader(object, name);
  return {.number = reader.whole("restart", INT_MAX),
          .most = reader.whole("of", INT_MAX),
          .after = {.rank = int(reader.count("rank", INT_MAX)),
                    .step = int64_t(reader.count("step", INT64_MAX)),
                    .cause = reader.text("cause")},
          .folder = reader.text("folder"),
          .processes = int(reader.count("processes", INT_MAX))};
}

}  // namespace

std::string to_json(const Restart& r) {
  Json object = json_of(r);
  for (const Restart& before : r.unlogged) object["unlogged"].push_back(json_of(before));
  return to_line(object);
}

std::optional<Restart> restart_from_environment() {
  const char* const text = std::getenv(restart_variable);
  if (!text || !*text) return std::nullopt;
  const std::string name = restart_variable;
  const Json object = parse_json_object(text, name);
  Restart restart = restart_of(object, name);
  for (const Json& before : JsonReader(object, name).need("unlogged"))
    restart.unlogged.push_back(restart_of(before, name));
  return restart;
}

}  // namespace bv
