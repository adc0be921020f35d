// A kill at any moment can leave: hidden entries (".saving..."), which the next save removes; a
// complete step folder without a link, from which a run without other checkpoints resumes; or
// `best` one save ahead of `last`, at a step that the resumed run will reach again.
#include "engine/files/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <compare>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/machine_error.h"
#include "engine/files/checkpoint_state.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr const char* weights_name = "weights.safetensors";
constexpr const char* ema_name = "ema.safetensors";
constexpr const char* optimizer_name = "state.safetensors";
constexpr const char* state_name = "state.json";
constexpr const char* unfinished = ".saving";

// "step-00000500", or "step-00000500-2" if a link still names an earlier save of that step.
struct StepFolder {
  int64_t step = 0;
  int64_t copy = 1;

  std::string name() const {
    char text[64];
    std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
    return copy == 1 ? text : text + ("-" + std::to_string(copy));
  }
  auto operator<=>(const StepFolder&) const = default;
};

std::optional<StepFolder> step_folder(const std::string& name) {
  StepFolder folder;
  if (!name.starts_with("step-")) return std::nullopt;
  const char* const end = name.data() + name.size();
  const char* at = std::from_chars(name.data() + 5, end, folder.step).ptr;
  if (at < end && *at == '-') std::from_chars(at + 1, end, folder.copy);
  return folder.name() == name ? std::optional(folder) : std::nullopt;
}

std::string link_target(const std::string& run, const char* link) {  // empty: no such link
  std::error_code ignored;
  return fs::read_symlink(run + "/" + link, ignored).string();
}

bool linked(const std::string& run, const std::string& name) {
  return link_target(run, "last") == name || link_target(run, "best") == name;
}

// The run folder's entries, for cleaning up. An entry that can't be listed or removed only costs
// space; the next save tries again.
std::vector<std::string> entries(const std::string& run) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(run, error), end; !error && i != end; i.increment(error))
    names.push_back(i->path().filename().string());
  return names;
}

void remove_leftovers(const std::string& run) {
  std::error_code ignored;
  for (const std::string& name : entries(run))
    if (is_unfinished_checkpoint(name)) fs::remove_all(run + "/" + name, ignored);
}

// Renames first: a half-removed folder must not have a checkpoint's name.
void remove_step(const std::string& run, const std::string& name) {
  const std::string hidden = run + "/" + unfinished + "-removed-" + name;
  std::error_code ignored;
  fs::rename(run + "/" + name, hidden, ignored);
  fs::remove_all(hidden, ignored);
}

void write_state(const std::string& folder, const Checkpoint& c,
                 const std::map<std::string, FileDigest>& files) {
  const std::string text = write_checkpoint_state(c, files);
  OutputFile out(folder + "/" + state_name);
  out.write(std::as_bytes(std::span(text)));
  out.finish();
  sync_folder(folder);
}

void write_step(const std::string& folder, const Checkpoint& c, const CheckpointTensors& tensors) {
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) throw WriteError("make", folder, error.value());
  std::map<std::string, FileDigest> files;
  const auto write = [&](const char* name, const TensorViews& views,
                         const std::map<std::string, std::string>& metadata) {
    if (!views.empty()) files[name] = write_safetensors(folder + "/" + name, metadata, views);
  };
  write(weights_name, tensors.weights, c.weights.metadata);
  write(ema_name, tensors.ema, c.weights.metadata);
  write(optimizer_name, tensors.optimizer, {});
  write_state(folder, c, files);
}

// Renames the written folder to its step's name, or to "...-2" if a link refers to that name.
std::string place_step(const std::string& run, const std::string& written, int64_t step) {
  StepFolder folder{.step = step};
  std::error_code ignored;
  while (fs::exists(run + "/" + folder.name(), ignored) && linked(run, folder.name()))
    ++folder.copy;
  remove_step(run, folder.name());  // left by a save that was killed before linking it
  if (std::rename(written.c_str(), (run + "/" + folder.name()).c_str()) != 0)
    throw WriteError("rename", written, errno);
  sync_folder(run);
  return folder.name();
}

void point(const std::string& run, const char* link, const std::string& target) {
  const std::string fresh = run + "/" + unfinished + "-link", old = run + "/" + link;
  if (symlink(target.c_str(), fresh.c_str()) != 0) throw WriteError("make the link", fresh, errno);
  if (std::rename(fresh.c_str(), old.c_str()) != 0) {
    // A copied run folder may have folders in place of the links: exchange, then remove.
    if (errno != EISDIR) throw WriteError("replace", old, errno);
    if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) != 0)
      throw WriteError("replace the folder", old, errno);
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
  }
  sync_folder(run);
}

std::vector<StepFolder> steps_of(const std::string& run) {  // newest first
  std::vector<StepFolder> steps;
  for (const std::string& name : entries(run))
    if (const auto folder = step_folder(name)) steps.push_back(*folder);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void prune(const std::string& run, int keep) {
  const std::vector<StepFolder> steps = steps_of(run);
  for (size_t i = size_t(std::max(keep, 0)); i < steps.size(); ++i)
    if (!linked(run, steps[i].name())) remove_step(run, steps[i].name());
}

CheckpointState read_state(const std::string& folder) {
  const std::string path = folder + "/" + state_name;
  return parse_checkpoint_state(read_text_file(path), path);
}

std::string what_remains(const std::string& run) {
  const std::string last = run + "/last";
  try {
    const int64_t step = read_state(last).progress.step;
    return "; the previous checkpoint " + last + " (step " + std::to_string(step) + ") is intact";
  } catch (const std::exception&) {
    return "; there is no earlier checkpoint";
  }
}

// The file isn't the one that was saved.
struct Damaged : UserError {
  using UserError::UserError;
};

TensorFile read_tensors(const std::string& path, const FileDigest& wanted) {
  const InputFile file(path);
  if (file.size() != wanted.bytes)
    throw Damaged(path + ": truncated: " + std::to_string(file.size()) + " of " +
                  std::to_string(wanted.bytes) + " bytes");
  if (file.digest() != wanted)
    throw Damaged(path + ": damaged: its checksum doesn't match the saved file's");
  return read_safetensors(path);
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

// Advice if no other checkpoint is intact: whether the damaged one's weights can be used.
std::string what_is_left(const std::string& damaged) {
  const std::string weights = damaged + "/" + weights_name,
                    none = "; there is no other intact checkpoint: start ";
  try {
    read_tensors(weights, read_state(damaged).files.at(weights_name));
    return none + "a new run from --weights " + weights + ", with another --out";
  } catch (const std::exception&) {
    return none + "anew, with another --out";
  }
}

// How to continue from an intact earlier checkpoint, if there is one; never done silently.
std::string intact_checkpoint(const std::string& run, const std::string& damaged) {
  for (const StepFolder& step : steps_of(run)) {
    const std::string name = step.name(), folder = run + "/" + name;
    std::error_code ignored;
    if (fs::equivalent(folder, damaged, ignored)) continue;
    try {
      load_step(folder);
    } catch (const std::exception&) {
      continue;
    }
    const std::string last = run + "/last";
    const bool copied = !fs::is_symlink(last, ignored) && fs::exists(last, ignored);
    return "; " + folder + " is intact: `" + (copied ? "rm -r " + last + "; " : "") + "ln -sfn " +
           name + " " + last + "`, then --resume, continues from it";
  }
  return "";
}

std::string way_on(const std::string& run, const std::string& damaged) {
  const std::string intact = intact_checkpoint(run, damaged);
  return intact.empty() ? what_is_left(damaged) : intact;
}

std::string last_folder(const std::string& run) {
  std::error_code ignored;
  const std::string last = run + "/last";
  if (!fs::is_directory(run, ignored)) throw UserError(run + ": no such folder");
  if (fs::exists(run + "/" + state_name, ignored))
    throw UserError(run + ": a single checkpoint; name the run folder above it");
  if (!fs::exists(fs::symlink_status(last, ignored))) {
    const std::vector<StepFolder> steps = steps_of(run);
    if (!steps.empty()) return run + "/" + steps[0].name();
    throw UserError(run + ": no checkpoint here (" + last + " is missing)");
  }
  const std::string target = link_target(run, "last");
  const std::string folder = target.empty() ? last : (fs::path(run) / target).string();
  if (!fs::is_directory(folder, ignored))
    throw UserError(last + ": names " + folder + ", which doesn't exist" + way_on(run, folder));
  return folder;
}

}  // namespace

CheckpointTensors tensors_of(const Checkpoint& c) {
  return {views_of(c.weights.tensors), views_of(c.ema.tensors), views_of(c.optimizer.tensors)};
}

void save_checkpoint(const std::string& run, const Checkpoint& c, const CheckpointTensors& tensors,
                     bool best, int keep) {
  std::string placed;
  try {
    std::error_code error;
    fs::create_directories(run, error);
    if (error) throw WriteError("make", run, error.value());
    remove_leftovers(run);
    const std::string written = run + "/" + unfinished + "-step";
    write_step(written, c, tensors);
    placed = place_step(run, written, c.step);
    if (best) point(run, "best", placed);
    point(run, "last", placed);
  } catch (const WriteError& e) {
    const std::string failure =
        e.disk_full() ? "disk full while saving step " + std::to_string(c.step) + " to " + run
                      : std::string(e.what());
    std::error_code ignored;
    if (!placed.empty() && !linked(run, placed)) fs::remove_all(run + "/" + placed, ignored);
    remove_leftovers(run);
    throw RunError(failure + what_remains(run));
  }
  prune(run, keep);
}

bool is_last_checkpoint(const std::string& run, int64_t step) {
  const auto folder = step_folder(link_target(run, "last"));
  return folder && folder->step == step;
}

// Sets `best` first: if the process is killed before the new state is written, the resumed run
// evaluates again, with the same result.
void settle_checkpoint(const std::string& run, const Checkpoint& c, bool best, int keep) {
  if (!is_last_checkpoint(run, c.step)) return;
  const std::string name = link_target(run, "last");
  try {
    if (best) point(run, "best", name);
    write_state(run + "/" + name, c, read_state(run + "/" + name).files);
  } catch (const WriteError& e) {
    throw RunError(e.what() + what_remains(run));
  }
  prune(run, keep);
}

bool is_unfinished_checkpoint(const std::string& name) { return name.starts_with(unfinished); }

bool has_checkpoint(const std::string& run) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(run + "/last", ignored)) || !steps_of(run).empty();
}

Checkpoint load_checkpoint(const std::string& run) {
  while (true) {
    const std::string folder = last_folder(run);
    try {
      return load_step(folder);
    } catch (const UserError& e) {
      const bool damaged = dynamic_cast<const Damaged*>(&e) != nullptr;
      if (last_folder(run) == folder)
        throw UserError(e.what() +
                        (damaged ? way_on(run, folder) : intact_checkpoint(run, folder)));
      // An active run in this folder has saved another step and removed this one.
    } catch (const MachineError& e) {
      throw RunError(e.what() + intact_checkpoint(run, folder));
    }
  }
}

}  // namespace bv
