#include "engine/console/log.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "base/files/file_io.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {

namespace {

constexpr size_t max_line = 1 << 16;  // bytes; the lines written here are shorter
constexpr int digits = 9;             // enough to read a float back exactly

Json number(std::optional<double> value) { return value ? json_number(*value, digits) : Json(); }

bool is_epoch(const std::string& line) { return line.find("\"kind\":\"epoch\"") != line.npos; }

int64_t step_of(const std::string& line) {
  const std::string key = "\"step\":";
  const size_t at = line.find(key);
  return at == line.npos ? -1 : std::strtoll(line.c_str() + at + key.size(), nullptr, 10);
}

}  // namespace

std::string to_json(const StepRecord& r) {
  return to_line({{"kind", "step"},
                  {"epoch", r.epoch},
                  {"step", r.step},
                  {"loss", number(r.loss)},
                  {"top1", number(r.top1)},
                  {"lr", number(r.lr)},
                  {"grad_norm", number(r.grad_norm)},
                  {"images_per_second", number(r.images_per_second)},
                  {"data_seconds", number(r.data_seconds)},
                  {"step_seconds", number(r.step_seconds)},
                  {"bubble_seconds", number(r.bubble_seconds)},
                  {"loss_scale", number(r.loss_scale)},
                  {"skipped", r.skipped}});
}

std::string to_json(const EpochRecord& r) {
  Json line = {{"kind", "epoch"},
               {"epoch", r.epoch},
               {"step", r.step},
               {"train_loss", number(r.train_loss)},
               {"train_top1", number(r.train_top1)},
               {"val_loss", number(r.val_loss)},
               {"val_top1", number(r.val_top1)}};
  if (r.val_top5) line["val_top5"] = number(r.val_top5);
  if (r.ema_loss) line["ema_loss"] = number(r.ema_loss);
  if (r.ema_top1) line["ema_top1"] = number(r.ema_top1);
  line["lr"] = number(r.lr);
  if (!r.precision.empty()) {
    line["precision"] = r.precision;
    line["precision_reason"] = r.precision_reason;
  }
  line["images_per_second"] = number(r.images_per_second);
  line["seconds"] = number(r.seconds);
  line["eval_seconds"] = number(r.eval_seconds);
  line["save_seconds"] = number(r.save_seconds);
  line["peak_memory_bytes"] = r.peak_memory_bytes;
  line["host_memory_bytes"] = r.host_memory_bytes;
  line["host_peak_memory_bytes"] = r.host_peak_memory_bytes;
  if (r.device_memory_bytes) line["device_memory_bytes"] = *r.device_memory_bytes;
  if (r.device_peak_memory_bytes) line["device_peak_memory_bytes"] = *r.device_peak_memory_bytes;
  return to_line(line);
}

std::string to_json(const RestartRecord& r) {
  return to_line({{"kind", "restart"},
                  {"step", r.step},
                  {"restart", r.number},
                  {"of", r.most},
                  {"rank", r.rank},
                  {"ended_in_step", r.ended_in},
                  {"cause", r.cause},
                  {"processes", r.processes},
                  {"processes_before", r.processes_before}});
}

int64_t end_of_step(const std::string& path, int64_t step, bool settled) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return 0;
  const InputFile file(path);
  std::string line, chunk;
  for (uint64_t at = 0; at < file.size(); at += chunk.size()) {
    chunk.resize(std::min<uint64_t>(file.size() - at, 1 << 16));
    file.read(at, std::as_writable_bytes(std::span(chunk)));
    for (size_t i = 0; i < chunk.size(); ++i) {
      line += chunk[i];
      if (chunk[i] != '\n' && line.size() < max_line) continue;
      const int64_t found = step_of(line);
      const bool again = found > step || (found == step && !settled && is_epoch(line));
      if (chunk[i] != '\n' || again) return int64_t(at + i + 1 - line.size());
      line.clear();
    }
  }
  return int64_t(file.size() - line.size());
}

}  // namespace bv
