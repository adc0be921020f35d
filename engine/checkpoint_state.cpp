#include "engine/checkpoint_state.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/checksum.h"
#include "engine/error.h"
#include "engine/json_depth.h"

namespace bv {
namespace {

using nlohmann::json;

constexpr const char* format = "barevision checkpoint";

std::string hex(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

// Of the text without its own checksum; the dump of a parsed text is the text that was dumped.
std::string own_checksum(const json& state) {
  const std::string text = state.dump(-1, ' ', false, json::error_handler_t::replace);
  return hex(crc32c(std::as_bytes(std::span(text))));
}

// JSON has no inf and NaN; a sum of losses may have (a step that fp16 skipped).
json number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

class StateReader {
 public:
  explicit StateReader(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(const std::string& what) const { throw UserError(path_ + ": " + what); }

  const json& at(const json& object, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail("damaged: no '" + key + "'");
    return *found;
  }

  int64_t count(const json& object, const std::string& key, int64_t most) const {
    const json& value = at(object, key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t(most))
      fail("damaged: '" + key + "' is no count");
    return value.get<int64_t>();
  }

  double real(const json& object, const std::string& key) const {
    const json& value = at(object, key);
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return HUGE_VAL;
    if (value == "-inf") return -HUGE_VAL;
    fail("damaged: '" + key + "' is no number");
  }

  std::string text(const json& object, const std::string& key) const {
    const json& value = at(object, key);
    if (!value.is_string()) fail("damaged: '" + key + "' is no text");
    return value.get<std::string>();
  }

  uint64_t fingerprint(const json& object, const std::string& key) const {
    const json& value = at(object, key);
    if (!value.is_number_unsigned()) fail("damaged: '" + key + "' is no number");
    return value.get<uint64_t>();
  }

  FileDigest digest(const json& file) const {
    if (!file.is_object()) fail("damaged: no size and checksum of a file");
    const std::string crc = text(file, "crc32c");
    FileDigest out{.bytes = uint64_t(count(file, "bytes", INT64_MAX))};
    if (crc.size() != 8 || crc.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail("damaged: '" + printable(crc) + "' is no checksum");
    out.crc = uint32_t(std::stoul(crc, nullptr, 16));
    return out;
  }

 private:
  const std::string& path_;
};

// Whose it is and whether it is whole, before anything in it is believed.
json checked(std::string_view text, const StateReader& read) {
  json state = json_deeper_than(text, 3) ? json() : json::parse(text, nullptr, false);
  const bool ours = state.is_object() && state.value("format", json()) == format;
  const json version = ours ? state.value("version", json()) : json();
  if (!version.is_number_integer()) read.fail("not a checkpoint of barevision's, or torn");
  if (version > Checkpoint::version)
    read.fail("made by a newer barevision: format " + version.dump() + ", this one reads " +
              std::to_string(Checkpoint::version));
  if (version != Checkpoint::version) read.fail("of an unknown format " + version.dump());
  const std::string checksum = read.text(state, "crc32c");
  state.erase("crc32c");
  if (checksum != own_checksum(state))
    read.fail("damaged: its checksum is not that of its contents");
  return state;
}

}  // namespace

std::string write_checkpoint_state(const Checkpoint& c,
                                   const std::map<std::string, FileDigest>& files) {
  json state = {{"format", format},
                {"version", Checkpoint::version},
                {"model", c.model},
                {"step", c.step},
                {"epoch", c.epoch},
                {"batch", c.batch},
                {"update_count", c.update_count},
                {"loss_scale", number(c.loss_scale)},
                {"good_steps", c.good_steps},
                {"skipped", c.skipped},
                {"best_top1", number(c.best_top1)},
                {"best_step", c.best_step},
                {"loss_sum", number(c.loss_sum)},
                {"loss_count", number(c.loss_count)},
                {"data_fingerprint", c.data_fingerprint},
                {"files", json::object()}};
  for (const auto& [name, digest] : files)
    state["files"][name] = {{"bytes", digest.bytes}, {"crc32c", hex(digest.crc)}};
  state["crc32c"] = own_checksum(state);
  return state.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path) {
  const StateReader read(path);
  const json state = checked(text, read);
  constexpr int64_t most = INT64_MAX, most32 = INT32_MAX;
  CheckpointState out{
      .progress = {.model = read.text(state, "model"),
                   .step = read.count(state, "step", most),
                   .epoch = read.count(state, "epoch", most),
                   .batch = read.count(state, "batch", most),
                   .update_count = int32_t(read.count(state, "update_count", most32)),
                   .loss_scale = float(read.real(state, "loss_scale")),
                   .good_steps = int32_t(read.count(state, "good_steps", most32)),
                   .skipped = int32_t(read.count(state, "skipped", most32)),
                   .best_top1 = read.real(state, "best_top1"),
                   .best_step = read.count(state, "best_step", most),
                   .loss_sum = read.real(state, "loss_sum"),
                   .loss_count = read.real(state, "loss_count"),
                   .data_fingerprint = read.fingerprint(state, "data_fingerprint")}};
  const json& files = read.at(state, "files");
  if (!files.is_object()) read.fail("damaged: 'files' is no list of files");
  for (const auto& [name, digest] : files.items()) out.files[name] = read.digest(digest);
  return out;
}

}  // namespace bv
