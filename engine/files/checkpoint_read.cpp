#include "engine/files/checkpoint_read.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "engine/files/checkpoint.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

// The file isn't the one that was saved.
struct Damaged : UserError {
  using UserError::UserError;
};

TensorFile read_tensors(const std::string& path, const FileDigest& wanted) {
  const InputFile file(path);
  const std::string has = std::to_string(file.size()), saved = std::to_string(wanted.bytes);
  if (file.size() < wanted.bytes)
    throw Damaged(path + ": truncated: " + has + " of " + saved + " bytes");
  if (file.size() > wanted.bytes)
    throw Damaged(path + ": not the file that was saved: it has " + has + " bytes, " + state_name +
                  " says " + saved);
  if (file.digest() != wanted)
    throw Damaged(path + ": damaged: its checksum doesn't match the saved file's");
  return read_safetensors(path);
}

TensorFile read_listed(const std::string& folder, const std::string& name) {
  const CheckpointState state = read_state(folder);
  const auto digest = state.files.find(name);
  if (digest == state.files.end())
    throw UserError(folder + "/" + name + ": not a file of this checkpoint: its " + state_name +
                    " doesn't list it");
  return read_tensors(folder + "/" + name, digest->second);
}

Checkpoint load_step(const std::string& folder) {
  CheckpointState state = read_state(folder);
  Checkpoint c = std::move(state.progress);
  const std::map<std::string, TensorFile*> places = {
      {weights_name, &c.weights}, {ema_name, &c.ema}, {optimizer_name, &c.optimizer}};
  const auto known = [&](const auto& file) { return places.contains(file.first); };
  if (!state.files.contains(weights_name) || !std::ranges::all_of(state.files, known))
    throw UserError(folder + "/" + state_name +
                    ": damaged: lists files that don't belong to a checkpoint");
  for (const auto& [name, digest] : state.files)
    *places.at(name) = read_tensors(folder + "/" + name, digest);
  return c;
}

// All of a checkpoint is needed to resume, otherwise only a file of weights.
using Needed = std::optional<std::string>;
constexpr Needed all_to_resume = std::nullopt;

// The name of the newest other checkpoint of which the needed files are intact; empty: none.
std::string intact_step(const std::string& run, const std::string& damaged, const Needed& file) {
  for (const StepFolder& step : steps_of(run)) {
    const std::string folder = run + "/" + step.name();
    std::error_code ignored;
    if (fs::equivalent(folder, damaged, ignored)) continue;
    try {
      if (file)
        read_listed(folder, *file);
      else
        load_step(folder);
      return step.name();
    } catch (const std::exception&) {
    }
  }
  return "";
}

// The command that makes a step the last one.
std::string relink(const std::string& run, const std::string& step) {
  const std::string last = run + "/last", word = shell_word(last);
  std::error_code ignored;
  const bool copied = !fs::is_symlink(last, ignored) && fs::exists(last, ignored);
  return "`" + (copied ? "rm -r " + word + "; " : "") + "ln -sfn " + step + " " + word + "`";
}

// How to continue from an intact earlier checkpoint, if there is one; never done silently.
std::string intact_checkpoint(const std::string& run, const std::string& damaged) {
  const std::string step = intact_step(run, damaged, all_to_resume);
  if (step.empty()) return "";
  return "; " + run + "/" + step + " is intact: " + relink(run, step) +
         ", then --resume, continues from it";
}

// Advice if no other checkpoint is intact: whether the damaged one's weights can be used.
std::string what_is_left(const std::string& damaged) {
  const std::string none = "; there is no other intact checkpoint: start ";
  try {
    read_listed(damaged, weights_name);
    return none + "a new run from --weights " + damaged + "/" + weights_name +
           ", with another --out";
  } catch (const std::exception&) {
    return none + "anew, with another --out";
  }
}

std::string way_on(const std::string& run, const std::string& damaged) {
  const std::string intact = intact_checkpoint(run, damaged);
  return intact.empty() ? what_is_left(damaged) : intact;
}

// The same for a file of weights in `folder`, as the user named it: DIR/last, DIR/best or a step.
std::string other_weights(const fs::path& folder, const std::string& damaged,
                          const std::string& file) {
  const fs::path inside = folder.filename() == "." || folder.filename() == ".."
                              ? fs::absolute(folder).lexically_normal()
                              : folder;
  const std::string run = inside.has_parent_path() ? inside.parent_path().string() : ".",
                    step = intact_step(run, damaged, file);
  if (step.empty()) {
    std::error_code ignored;
    return std::string("; there is no other intact checkpoint") +
           (fs::exists(fs::path(damaged) / file, ignored)
                ? "; a copy of the file in another folder isn't checked"
            : file == ema_name
                ? "; the weights without their average are in " + (folder / weights_name).string()
                : "");
  }
  const std::string give = "give it in place of " + folder.string();
  return "; " + run + "/" + step + " is intact: " + give +
         (folder.filename() == "last" ? ", or " + relink(run, step) : "");
}

std::string behind_link(const fs::path& folder) {
  std::error_code ignored;
  const fs::path target = fs::read_symlink(folder, ignored);
  return target.empty() ? folder : folder.parent_path() / target;
}

std::string last_folder(const std::string& run, const Needed& file) {
  std::error_code ignored;
  const std::string last = run + "/last";
  if (!fs::is_directory(run, ignored)) throw UserError(run + ": no such folder");
  if (!file && fs::exists(run + "/" + state_name, ignored))
    throw UserError(run + ": a single checkpoint; name the run folder above it");
  if (!fs::exists(fs::symlink_status(last, ignored))) {
    const std::vector<StepFolder> steps = steps_of(run);
    if (!steps.empty()) return run + "/" + steps[0].name();
    throw UserError(run + ": no checkpoint here (" + last + " is missing)");
  }
  const std::string folder = behind_link(last);
  if (fs::is_directory(folder, ignored)) return folder;
  const std::string wrong = fs::exists(folder, ignored)
                                ? ": a file in place of a checkpoint's folder"
                                : ": names " + folder + ", which doesn't exist";
  throw UserError(last + wrong + (file ? other_weights(last, folder, *file) : way_on(run, folder)));
}

// Reads from the folder that `find` gives. `advice` is added to an error: (folder, damaged). An
// active run may save another step meanwhile and remove this one, so that the folder is another.
template <class Find, class Read, class Advice>
auto read_found(const Find& find, const Read& read, const Advice& advice) {
  while (true) {
    const std::string folder = find();
    try {
      return read(folder);
    } catch (const UserError& e) {
      const bool damaged = dynamic_cast<const Damaged*>(&e) != nullptr;
      if (find() == folder) throw UserError(e.what() + advice(folder, damaged));
    } catch (const MachineError& e) {
      if (e.code == EACCES || e.code == EPERM) throw;
      throw RunError(e.what() + advice(folder, false));
    }
  }
}

}  // namespace

std::string StepFolder::name() const {
  char text[64];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return copy == 1 ? text : text + ("-" + std::to_string(copy));
}

std::optional<StepFolder> step_folder(const std::string& name) {
  StepFolder folder;
  if (!name.starts_with("step-")) return std::nullopt;
  const char* const end = name.data() + name.size();
  const char* at = std::from_chars(name.data() + 5, end, folder.step).ptr;
  if (at < end && *at == '-') std::from_chars(at + 1, end, folder.copy);
  return folder.name() == name ? std::optional(folder) : std::nullopt;
}

std::vector<StepFolder> steps_of(const std::string& run) {
  std::vector<StepFolder> steps;
  for (const std::string& name : entries(run))
    if (const auto folder = step_folder(name)) steps.push_back(*folder);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::vector<std::string> entries(const std::string& run) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(run, error), end; !error && i != end; i.increment(error))
    names.push_back(i->path().filename().string());
  return names;
}

std::string link_target(const std::string& run, const char* link) {
  std::error_code ignored;
  return fs::read_symlink(run + "/" + link, ignored).string();
}

CheckpointState read_state(const std::string& folder) {
  const std::string path = folder + "/" + state_name;
  return parse_checkpoint_state(read_text_file(path), path);
}

bool has_checkpoint(const std::string& run) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(run + "/last", ignored)) || !steps_of(run).empty();
}

Checkpoint load_checkpoint(const std::string& run) {
  const auto find = [&] { return last_folder(run, all_to_resume); };
  return read_found(find, load_step, [&](const std::string& folder, bool damaged) {
    return damaged ? way_on(run, folder) : intact_checkpoint(run, folder);
  });
}

std::string last_checkpoint(const std::string& run) {
  const std::string folder = last_folder(run, weights_name), last = run + "/last";
  std::error_code ignored;
  return fs::exists(last, ignored) ? last : folder;
}

std::string weights_in(const std::string& checkpoint) {
  const std::string average = checkpoint + "/" + ema_name;
  std::error_code ignored;
  if (fs::exists(average, ignored)) return average;
  try {
    if (read_state(checkpoint).files.contains(ema_name)) return average;  // it is lost
  } catch (const UserError&) {
  }
  return checkpoint + "/" + weights_name;
}

bool is_checkpoint_file(const std::string& path) {
  const fs::path file(path);
  std::error_code ignored;
  return (file.filename() == weights_name || file.filename() == ema_name) &&
         fs::exists(file.parent_path() / state_name, ignored);
}

TensorFile load_checkpoint_file(const std::string& path) {
  const fs::path above = fs::path(path).parent_path(), folder = above.empty() ? "." : above;
  const std::string name = fs::path(path).filename();
  return read_found(
      [&] { return behind_link(folder); },
      [&](const std::string& found) { return read_listed(found, name); },
      [&](const std::string& found, bool) { return other_weights(folder, found, name); });
}

}  // namespace bv
