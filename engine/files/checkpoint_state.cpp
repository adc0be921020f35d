#include "engine/files/checkpoint_state.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <type_traits>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {
namespace {

using Kind = JsonValue::Kind;

constexpr std::string_view format = "barevision checkpoint";
// The last member; its value is the checksum of all bytes before this text.
constexpr std::string_view seal = ",\n \"crc32c\": \"";

std::string hex(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

// The numbers of state.json in its order.
template <class State, class F>
void each_number(State& c, F f) {
  f("step", c.step);
  f("epoch", c.epoch);
  f("batch", c.batch);
  f("update_count", c.update.count);
  f("loss_scale", c.update.loss_scale);
  f("good_steps", c.update.good_steps);
  f("skipped", c.update.skipped);
  f("best_top1", c.best_top1);
  f("best_step", c.best_step);
  f("loss_sum", c.loss_sum);
  f("loss_count", c.loss_count);
  f("data_fingerprint", c.data_fingerprint);
}

// JSON has no inf and NaN, which a sum of losses can be (after a step that fp16 skipped).
template <class T>
std::string number_text(T x) {
  if constexpr (std::is_integral_v<T>) return std::to_string(x);
  if (std::isfinite(x)) return format_number(x);
  return std::isnan(x) ? "\"nan\"" : x > 0 ? "\"inf\"" : "\"-inf\"";
}

class StateReader {
 public:
  explicit StateReader(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(const std::string& what) const { throw UserError(path_ + ": " + what); }

  const JsonValue& at(const JsonValue& object, std::string_view key) const {
    if (const JsonValue* value = object.find(key)) return *value;
    fail("damaged: no '" + std::string(key) + "'");
  }

  uint64_t count(const JsonValue& object, std::string_view key, uint64_t max) const {
    const JsonValue& value = at(object, key);
    const auto number = parse_unsigned(value.text);
    if (value.kind != Kind::number || !number || *number > max)
      fail("damaged: '" + std::string(key) + "' is not a count");
    return *number;
  }

  double real(const JsonValue& object, std::string_view key) const {
    const JsonValue& value = at(object, key);
    const auto number = parse_number(value.text);
    if (value.kind == Kind::number && number) return *number;
    if (value.text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value.text == "inf") return HUGE_VAL;
    if (value.text == "-inf") return -HUGE_VAL;
    fail("damaged: '" + std::string(key) + "' is not a number");
  }

  bool boolean(const JsonValue& object, std::string_view key) const {
    const JsonValue& value = at(object, key);
    if (value.kind != Kind::boolean)
      fail("damaged: '" + std::string(key) + "' is not true or false");
    return value.text == "true";
  }

  const std::string& text(const JsonValue& object, std::string_view key) const {
    const JsonValue& value = at(object, key);
    if (value.kind != Kind::text) fail("damaged: '" + std::string(key) + "' is not a text");
    return value.text;
  }

  FileDigest digest(const JsonValue& file) const {
    const std::string& crc = text(file, "crc32c");
    if (crc.size() != 8 || crc.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail("damaged: '" + printable(crc) + "' is not a checksum");
    return {.bytes = count(file, "bytes", INT64_MAX),
            .crc = uint32_t(std::stoul(crc, nullptr, 16))};
  }

 private:
  const std::string& path_;
};

std::string precision_text(const PrecisionState& s) {
  return "{\"epoch\": " + std::to_string(s.epoch) +
         ", \"sixteen_bits\": " + (s.sixteen_bits ? "true" : "false") +
         ", \"reason\": " + quote_json(s.reason) + ", \"renewed\": " + std::to_string(s.renewed) +
         ", \"lr\": " + number_text(s.lr) + ", \"loss_before\": " + number_text(s.losses[0]) +
         ", \"loss\": " + number_text(s.losses[1]) + "}";
}

PrecisionState read_precision(const StateReader& read, const JsonValue& object) {
  return {.epoch = int64_t(read.count(object, "epoch", INT64_MAX)),
          .sixteen_bits = read.boolean(object, "sixteen_bits"),
          .reason = read.text(object, "reason"),
          .renewed = int64_t(read.count(object, "renewed", INT64_MAX)),
          .lr = read.real(object, "lr"),
          .losses = {read.real(object, "loss_before"), read.real(object, "loss")}};
}

// Checks origin, version and checksum before anything else in the text is trusted.
JsonValue checked(std::string_view text, const StateReader& read, const std::string& path) {
  JsonValue state;
  try {
    state = parse_json_object(text, path);
  } catch (const UserError& e) {
    throw UserError(std::string(e.what()) + "; torn, or not a barevision checkpoint");
  }
  const auto& members = state.members;  // in the file's order: the format comes first
  if (members.empty() || members[0].first != "format" || members[0].second.text != format)
    read.fail("not a barevision checkpoint");
  const uint64_t version = read.count(state, "version", INT64_MAX);
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
  each_number(c, [&](const char* key, auto value) { add(key, number_text(value)); });
  if (c.best_loss) add("best_loss", number_text(*c.best_loss));
  if (c.precision) add("precision", precision_text(*c.precision));
  std::string list;
  for (const auto& [name, digest] : files)
    list += (list.empty() ? "\n  " : ",\n  ") + quote_json(name) +
            ": {\"bytes\": " + std::to_string(digest.bytes) + ", \"crc32c\": \"" + hex(digest.crc) +
            "\"}";
  if (!c.settled) add("settled", "false");
  add("top1_sum", number_text(c.top1_sum));
  add("data_contents", std::to_string(c.data_contents));
  std::string options;
  for (const auto& [name, items] : c.options) {
    std::vector<std::string> quoted;
    for (const std::string& item : items) quoted.push_back(quote_json(item));
    options +=
        (options.empty() ? "\n  " : ",\n  ") + quote_json(name) + ": [" + join(quoted, ", ") + "]";
  }
  add("options", "{" + options + "}");
  add("files", "{" + list + "}");
  const std::string crc = hex(crc32c(std::as_bytes(std::span(text))));
  return text + std::string(seal) + crc + "\"\n}\n";
}

CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path) {
  const StateReader read(path);
  const JsonValue state = checked(text, read, path);
  CheckpointState out{.progress = {.model = read.text(state, "model")}};
  each_number(out.progress, [&](const char* key, auto& value) {
    using T = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_floating_point_v<T>)
      value = T(read.real(state, key));
    else
      value = T(read.count(state, key, std::numeric_limits<T>::max()));
  });
  // Earlier versions of the program wrote none of these, and not every run has them all.
  const auto has = [&](std::string_view key) { return state.find(key) != nullptr; };
  if (has("top1_sum"))
    out.progress.top1_sum = read.real(state, "top1_sum");
  else if (out.progress.loss_count > 0)
    out.progress.top1_sum = std::numeric_limits<double>::quiet_NaN();
  // Earlier versions knew it of epochs alone.
  out.progress.settled = has("settled") ? read.boolean(state, "settled")
                                        : out.progress.batch != 0 || out.progress.loss_count == 0;
  if (has("best_loss")) out.progress.best_loss = read.real(state, "best_loss");
  if (has("precision")) out.progress.precision = read_precision(read, read.at(state, "precision"));
  if (has("data_contents"))
    out.progress.data_contents = read.count(state, "data_contents", UINT64_MAX);
  if (has("options"))
    for (const auto& [name, list] : read.at(state, "options").members) {
      std::vector<std::string>& items = out.progress.options[name];
      for (const JsonValue& item : list.items) items.push_back(item.text);
    }
  for (const auto& [name, digest] : read.at(state, "files").members)
    out.files[name] = read.digest(digest);
  return out;
}

void require_reachable(const Checkpoint& c, const RunLength& run, const std::string& path) {
  const auto require = [&](bool reachable, const std::string& what) {
    if (!reachable)
      throw UserError(path + ": damaged: " + what + " after " + std::to_string(c.step) +
                      " steps can't be in a run of " + std::to_string(run.batches) +
                      " batches per epoch, " + std::to_string(run.accumulate) + " per update");
  };
  const int64_t updates = (run.batches + run.accumulate - 1) / run.accumulate;
  // An epoch of the step's is small enough to be multiplied.
  require(c.batch < run.batches && c.batch % run.accumulate == 0 && c.epoch <= run.epochs &&
              c.epoch <= c.step / updates && c.epoch * updates + c.batch / run.accumulate == c.step,
          "epoch " + std::to_string(c.epoch) + ", batch " + std::to_string(c.batch));
  const auto require_at_most = [&](const char* name, int64_t value, int64_t max) {
    require(value <= max, std::string(name) + " " + std::to_string(value));
  };
  require_at_most("update_count", c.update.count, c.step);
  require_at_most("good_steps", c.update.good_steps, c.step);
  require_at_most("skipped", c.update.skipped, c.step);
  require_at_most("best_step", c.best_step, c.step);
  if (c.precision) {
    require(c.precision->epoch <= c.epoch + 1,
            "a precision of epoch " + std::to_string(c.precision->epoch));
    require(c.precision->renewed <= c.precision->epoch, "a precision that isn't decided yet");
  }
  const auto require_between = [&](const char* name, double value, double min, double max) {
    require(value >= min && value <= max, std::string(name) + " " + format_number(value));
  };
  constexpr float max_scale = std::numeric_limits<float>::max();
  require_between("loss_scale", c.update.loss_scale, 0, max_scale);
  require_between("best_top1", c.best_top1, -1, 1);
  require(!c.best_loss || std::isfinite(*c.best_loss), "a best loss that isn't a number");
  require_between("loss_count", c.loss_count, 0,
                  c.step == 0 ? 0 : std::numeric_limits<double>::max());
  if (!std::isnan(c.top1_sum)) require_between("top1_sum", c.top1_sum, 0, c.loss_count);
}

}  // namespace bv
