#include "engine/files/checkpoint_state.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <type_traits>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr std::string_view format = "barevision checkpoint";
// The last member; its value is the checksum of all bytes before this text.
constexpr std::string_view seal = ",\n \"crc32c\": \"";

std::string hex(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

// Calls f(key, value) for the numbers of state.json, in file order.
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

// JSON has neither inf nor NaN. Unknown values are NaN, as is the loss of an epoch whose updates
// fp16 all skipped.
template <class T>
Json number(T x) {
  if constexpr (std::is_integral_v<T>) return x;
  if (std::isfinite(x)) return json_number(x);
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

class StateReader : public JsonReader {
 public:
  using JsonReader::JsonReader;
  double real(const std::string& key) {
    const Json& value = need(key);
    if (value.is_number()) return value;
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return HUGE_VAL;
    if (value == "-inf") return -HUGE_VAL;
    fail(key, "is not a number");
  }
};

FileDigest read_digest(const Json& object, const std::string& path) {
  JsonReader read(object, path);
  const std::string& crc = read.text("crc32c");
  if (crc.size() != 8 || crc.find_first_not_of("0123456789abcdef") != crc.npos)
    read.fail("'" + printable(crc) + "' is not a checksum");
  return {.bytes = read.count("bytes", INT64_MAX), .crc = uint32_t(std::stoul(crc, nullptr, 16))};
}

PrecisionState read_precision(const Json& object, const std::string& path) {
  StateReader read(object, path);
  return {.epoch = int64_t(read.count("epoch", INT64_MAX)),
          .sixteen_bits = read.flag("sixteen_bits"),
          .reason = read.text("reason"),
          .renewed = int64_t(read.count("renewed", INT64_MAX)),
          .lr = read.real("lr"),
          .losses = {read.real("loss_before"), read.real("loss")}};
}

// Checks origin, version and checksum before anything else in the text is trusted.
Json checked(std::string_view text, const std::string& path) {
  Json state;
  try {
    state = parse_json_object(text, path);
  } catch (const UserError& e) {
    throw UserError(std::string(e.what()) + "; truncated, or not a barevision checkpoint");
  }
  JsonReader read(state, path);
  if (state.value("format", Json()) != format) read.fail("not a barevision checkpoint");
  const uint64_t version = read.count("version", INT64_MAX);
  if (version > Checkpoint::version)
    read.fail("made by a newer barevision: format " + std::to_string(version) +
              ", this one reads " + std::to_string(Checkpoint::version));
  if (version != Checkpoint::version) read.fail("unknown format " + std::to_string(version));
  const size_t sealed = std::min(text.rfind(seal), text.size());
  const std::string crc = hex(crc32c(std::as_bytes(std::span(text.substr(0, sealed)))));
  if (text.substr(sealed) != std::string(seal) + crc + "\"\n}\n")
    read.fail("damaged: its checksum doesn't match its contents");
  return state;
}

}  // namespace

std::string write_checkpoint_state(const Checkpoint& c,
                                   const std::map<std::string, FileDigest>& files) {
  Json state = {{"format", format}, {"version", Checkpoint::version}, {"model", c.model}};
  each_number(c, [&](const char* key, auto value) { state[key] = number(value); });
  if (c.best_loss) state["best_loss"] = number(*c.best_loss);
  if (const auto& p = c.precision)
    state["precision"] = {{"epoch", p->epoch},           {"sixteen_bits", p->sixteen_bits},
                          {"reason", p->reason},         {"renewed", p->renewed},
                          {"lr", number(p->lr)},         {"loss_before", number(p->losses[0])},
                          {"loss", number(p->losses[1])}};
  if (!c.settled) state["settled"] = false;
  state["top1_sum"] = number(c.top1_sum);
  state["data_contents"] = c.data_contents;
  state["options"] = c.options;
  for (Json& list = state["files"] = Json::object(); const auto& [name, digest] : files)
    list[name] = {{"bytes", digest.bytes}, {"crc32c", hex(digest.crc)}};
  std::string text = state.dump(1, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - std::string_view("\n}").size());
  const std::string crc = hex(crc32c(std::as_bytes(std::span(text))));
  return text + std::string(seal) + crc + "\"\n}\n";
}

CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path) try {
  const Json state = checked(text, path);
  StateReader read(state, path);
  CheckpointState out{.progress = {.model = read.text("model")}};
  each_number(out.progress, [&](const char* key, auto& value) {
    using T = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_floating_point_v<T>)
      value = T(read.real(key));
    else
      value = T(read.count(key, std::numeric_limits<T>::max()));
  });
  // Optional members: earlier versions of the program wrote none, and not every run has them all.
  Checkpoint& c = out.progress;
  if (read.has("top1_sum"))
    c.top1_sum = read.real("top1_sum");
  else if (c.loss_count > 0)
    c.top1_sum = std::numeric_limits<double>::quiet_NaN();
  // Earlier versions evaluated at the end of an epoch only, and didn't write `settled`.
  c.settled = read.has("settled") ? read.flag("settled") : c.batch != 0 || c.loss_count == 0;
  if (read.has("best_loss")) c.best_loss = read.real("best_loss");
  if (const Json* precision = read.object("precision"))
    c.precision = read_precision(*precision, path);
  if (read.has("data_contents")) c.data_contents = read.count("data_contents", UINT64_MAX);
  if (const Json* options = read.object("options")) c.options = options->get<decltype(c.options)>();
  for (const auto& [name, digest] : read.need("files").items())
    out.files[name] = read_digest(digest, path);
  return out;
} catch (const Json::exception&) {
  throw UserError(path + ": damaged: a value has the wrong type");
}

void require_reachable(const Checkpoint& c, const RunLength& run, const std::string& path) {
  const auto require = [&](bool reachable, const std::string& what) {
    if (!reachable)
      throw UserError(path + ": damaged: " + what + " after " + std::to_string(c.step) +
                      " steps can't be in a run of " + std::to_string(run.batches) +
                      " batches per epoch, " + std::to_string(run.accumulate) + " per update");
  };
  const int64_t updates = (run.batches + run.accumulate - 1) / run.accumulate;
  // c.epoch <= c.step / updates is checked before the product is formed, so it can't overflow.
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
  require(!c.best_loss || !std::isnan(*c.best_loss), "a best loss that isn't a number");
  require_between("loss_count", c.loss_count, 0,
                  c.step == 0 ? 0 : std::numeric_limits<double>::max());
  if (!std::isnan(c.top1_sum)) require_between("top1_sum", c.top1_sum, 0, c.loss_count);
}

}  // namespace bv
