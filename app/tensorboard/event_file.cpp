#include "app/tensorboard/event_file.h"

#if BAREVISION_TENSORBOARD
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "app/tensorboard/event.pb.h"
#include "base/text.h"
#include "comm/processes/world.h"
#include "data/records/tfrecord.h"
#include "engine/files/event_file_names.h"

namespace bv {
namespace {

using tensorboard::Event;

Event event_at(int64_t step) {
  Event event;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  event.set_wall_time(std::chrono::duration<double>(now).count());
  event.set_step(step);
  return event;
}

std::string record_of(const Event& event) { return framed_record(event.SerializeAsString()); }

// The number in a new file's name: seconds since 1970, or one more than the highest in the folder.
// TensorBoard reads a folder's files in the order of their names and never returns to an earlier
// one.
int64_t number_after(const std::string& folder) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  int64_t number = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  for (const std::filesystem::path& path : event_files(folder))
    number = std::max<int64_t>(
        number, 1 + std::strtoll(path.filename().c_str() + event_file_prefix.size(), nullptr, 10));
  return number;
}

std::string new_path(const std::string& folder) {
  char number[24];
  std::snprintf(number, sizeof number, "%010lld", static_cast<long long>(number_after(folder)));
  return folder + "/" + std::string(event_file_prefix) + number + "." + name_of_machine() + "." +
         std::to_string(getpid()) + ".0";
}

}  // namespace

EventFile::EventFile(const std::string& folder, int64_t first_step)
    : file_(new_path(folder), O_EXCL) {
  Event version = event_at(0), start = event_at(first_step);
  version.set_file_version("brain.Event:2");
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  kept_ = record_of(version) + record_of(start);
}

void EventFile::scalars(int64_t step, std::span<const Scalar> all) {
  Event event = event_at(step);
  for (const auto& [tag, number] : all) {
    auto& value = *event.mutable_summary()->add_value();
    value.set_tag(std::string(tag));
    value.set_simple_value(static_cast<float>(number));
  }
  kept_ += record_of(event);
}

void EventFile::text(int64_t step, std::string_view tag, std::string_view markdown) {
  Event event = event_at(step);
  auto& value = *event.mutable_summary()->add_value();
  value.set_tag(std::string(tag));
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  auto& tensor = *value.mutable_tensor();
  tensor.set_dtype(tensorboard::Tensor::STRING);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_string_val(std::string(markdown));
  kept_ += record_of(event);
}

void EventFile::parameters(std::string_view run, std::span<const HParam> all) {
  tensorboard::HParams content;
  auto& start = *content.mutable_session_start_info();
  start.set_group_name(std::string(run));
  Event event = event_at(0);
  start.set_start_time_secs(event.wall_time());
  for (const auto& [name, text] : all) {
    auto& value = (*start.mutable_hparams())[name];
    if (const auto number = parse_number(text))
      value.set_number_value(*number);
    else if (text == "true" || text == "false")
      value.set_bool_value(text == "true");
    else
      value.set_string_value(printable(text));
  }
  auto& value = *event.mutable_summary()->add_value();
  value.set_tag("_hparams_/session_start_info");
  auto& plugin = *value.mutable_metadata()->mutable_plugin_data();
  plugin.set_plugin_name("hparams");
  plugin.set_content(content.SerializeAsString());
  auto& nothing = *value.mutable_tensor();
  nothing.set_dtype(tensorboard::Tensor::FLOAT);
  nothing.mutable_tensor_shape();
  nothing.add_float_val(0);
  kept_ += record_of(event);
}

void EventFile::image(int64_t step, std::string_view tag, std::span<const std::byte> png,
                      int height, int width) {
  Event event = event_at(step);
  auto& value = *event.mutable_summary()->add_value();
  value.set_tag(std::string(tag));
  auto& image = *value.mutable_image();
  image.set_height(height);
  image.set_width(width);
  image.set_colorspace(3);  // RGB
  image.set_encoded_image_string(png.data(), png.size());
  kept_ += record_of(event);
}

void EventFile::flush() { file_.append(std::exchange(kept_, {})); }

}  // namespace bv
#endif
