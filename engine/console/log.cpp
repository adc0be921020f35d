#include "engine/console/log.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "base/file_io.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {

namespace {

constexpr size_t max_line = 1 << 16;  // bytes; ours are shorter
constexpr int digits = 9;             // enough for a float to be read back exactly

bool is_epoch(const std::string& line) { return line.find("\"kind\":\"epoch\"") != line.npos; }

int64_t step_of(const std::string& line) {
  const std::string key = "\"step\":";
  const size_t at = line.find(key);
  return at == line.npos ? -1 : std::strtoll(line.c_str() + at + key.size(), nullptr, 10);
}

}  // namespace

std::string to_json(const StepRecord& r) {
  JsonObject object(digits);
  object.text("kind", "step")
      .whole("epoch", r.epoch)
      .whole("step", r.step)
      .number("loss", r.loss)
      .number("top1", r.top1)
      .number("lr", r.lr)
      .number("grad_norm", r.grad_norm)
      .number("images_per_second", r.images_per_second)
      .number("data_seconds", r.data_seconds)
      .number("step_seconds", r.step_seconds)
      .number("bubble_seconds", r.bubble_seconds)
      .number("loss_scale", r.loss_scale)
      .whole("skipped", r.skipped);
  return object.finish();
}

std::string to_json(const EpochRecord& r) {
  JsonObject object(digits);
  object.text("kind", "epoch")
      .whole("epoch", r.epoch)
      .whole("step", r.step)
      .number("train_loss", r.train_loss)
      .number("train_top1", r.train_top1)
      .number("val_loss", r.val_loss)
      .number("val_top1", r.val_top1);
  if (r.val_top5) object.number("val_top5", r.val_top5);
  if (r.ema_loss) object.number("ema_loss", r.ema_loss);
  if (r.ema_top1) object.number("ema_top1", r.ema_top1);
  object.number("lr", r.lr);
  if (!r.precision.empty())
    object.text("precision", r.precision).text("precision_reason", r.precision_reason);
  return object.number("images_per_second", r.images_per_second)
      .number("seconds", r.seconds)
      .whole("peak_memory_bytes", r.peak_memory_bytes)
      .finish();
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
