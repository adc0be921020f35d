#include "engine/files/checkpoint_state.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>

#include "engine/base/checksum.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/text.h"

namespace bv {
namespace {

using Kind = JsonValue::Kind;

constexpr std::string_view format = "barevision checkpoint";
// The last member; its value is the checksum of all bytes before this.
constexpr std::string_view seal = ",\n \"crc32c\": \"";

std::string hex(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

// JSON has no inf and NaN; a sum of losses may have (a step that fp16 skipped).
std::string real_text(double x) {
  if (std::isfinite(x)) return json_number(x);
  return std::isnan(x) ? "\"nan\"" : x > 0 ? "\"inf\"" : "\"-inf\"";
}

class StateReader {
 public:
  explicit StateReader(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(const std::string& what) const { throw UserError(path_ + ": " + what); }

  const JsonValue& at(const JsonValue& object, std::string_view key) const {
    for (const auto& [name, value] : object.members)
      if (name == key) return value;
    fail("damaged: no '" + std::string(key) + "'");
  }

  uint64_t count(const JsonValue& object, std::string_view key, uint64_t max = INT64_MAX) const {
    const JsonValue& value = at(object, key);
    const auto number = parse_unsigned(value.text);
    if (value.kind != Kind::number || !number || *number > max)
      fail("damaged: '" + std::string(key) + "' is no count");
    return *number;
  }

  double real(const JsonValue& object, std::string_view key) const {
    const JsonValue& value = at(object, key);
    const auto number = parse_number(value.text);
    if (value.kind == Kind::number && number) return *number;
    if (value.text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value.text == "inf") return HUGE_VAL;
    if (value.text == "-inf") return -HUGE_VAL;
    fail("damaged: '" + std::string(key) + "' is no number");
  }

  const std::string& text(const JsonValue& object, std::string_view key) const {
    const JsonValue& value = at(object, key);
    if (value.kind != Kind::text) fail("damaged: '" + std::string(key) + "' is no text");
    return value.text;
  }

  FileDigest digest(const JsonValue& file) const {
    const std::string& crc = text(file, "crc32c");
    if (crc.size() != 8 || crc.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail("damaged: '" + printable(crc) + "' is no checksum");
    return {.bytes = count(file, "bytes"), .crc = uint32_t(std::stoul(crc, nullptr, 16))};
  }

 private:
  const std::string& path_;
};

// Whose it is and whether it is whole, before anything in it is believed.
JsonValue checked(std::string_view text, const StateReader& read, const std::string& path) {
  JsonValue state;
  try {
    state = parse_json_object(text, path);
  } catch (const UserError& e) {
    throw UserError(std::string(e.what()) + "; torn, or not a checkpoint of barevision's");
  }
  const auto& members = state.members;  // as written: the format comes first
  if (members.empty() || members[0].first != "format" || members[0].second.text != format)
    read.fail("not a checkpoint of barevision's");
  const uint64_t version = read.count(state, "version");
  if (version > Checkpoint::version)
    read.fail("made by a newer barevision: format " + std::to_string(version) +
              ", this one reads " + std::to_string(Checkpoint::version));
  if (version != Checkpoint::version) read.fail("of an unknown format " + std::to_string(version));
  const size_t sealed = std::min(text.rfind(seal), text.size());
  const std::string crc = hex(crc32c(std::as_bytes(std::span(text.substr(0, sealed)))));
  if (text.substr(sealed) != std::string(seal) + crc + "\"\n}\n")
    read.fail("damaged: its checksum is not that of its contents");
  return state;
}

}  // namespace

std::string write_checkpoint_state(const Checkpoint& c,
                                   const std::map<std::string, FileDigest>& files) {
  std::string text = "{\n \"format\": " + quote_json(format);
  const auto add = [&text](const char* key, const std::string& value) {
    text += ",\n " + quote_json(key) + ": " + value;
  };
  add("version", std::to_string(Checkpoint::version));
  add("model", quote_json(c.model));
  add("step", std::to_string(c.step));
  add("epoch", std::to_string(c.epoch));
  add("batch", std::to_string(c.batch));
  add("update_count", std::to_string(c.update_count));
  add("loss_scale", real_text(c.loss_scale));
  add("good_steps", std::to_string(c.good_steps));
  add("skipped", std::to_string(c.skipped));
  add("best_top1", real_text(c.best_top1));
  add("best_step", std::to_string(c.best_step));
  add("loss_sum", real_text(c.loss_sum));
  add("loss_count", real_text(c.loss_count));
  add("data_fingerprint", std::to_string(c.data_fingerprint));
  std::string list;
  for (const auto& [name, digest] : files)
    list += (list.empty() ? "\n  " : ",\n  ") + quote_json(name) +
            ": {\"bytes\": " + std::to_string(digest.bytes) + ", \"crc32c\": \"" + hex(digest.crc) +
            "\"}";
  add("files", "{" + list + "}");
  const std::string crc = hex(crc32c(std::as_bytes(std::span(text))));
  return text + std::string(seal) + crc + "\"\n}\n";
}

CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path) {
  const StateReader read(path);
  const JsonValue state = checked(text, read, path);
  const auto count = [&](const char* key) { return int64_t(read.count(state, key)); };
  const auto count32 = [&](const char* key) { return int32_t(read.count(state, key, INT32_MAX)); };
  CheckpointState out{
      .progress = {.model = read.text(state, "model"),
                   .step = count("step"),
                   .epoch = count("epoch"),
                   .batch = count("batch"),
                   .update_count = count32("update_count"),
                   .loss_scale = float(read.real(state, "loss_scale")),
                   .good_steps = count32("good_steps"),
                   .skipped = count32("skipped"),
                   .best_top1 = read.real(state, "best_top1"),
                   .best_step = count("best_step"),
                   .loss_sum = read.real(state, "loss_sum"),
                   .loss_count = read.real(state, "loss_count"),
                   .data_fingerprint = read.count(state, "data_fingerprint", UINT64_MAX)}};
  for (const auto& [name, digest] : read.at(state, "files").members)
    out.files[name] = read.digest(digest);
  return out;
}

}  // namespace bv
