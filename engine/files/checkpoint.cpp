// A kill at any moment can leave: hidden entries (".saving..."), which the next save removes; a
// complete step folder without a link, from which a run without other checkpoints resumes; or
// `best` one save ahead of `last`, at a step that the resumed run will reach again.
#include "engine/files/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/files/file_io.h"
#include "engine/files/checkpoint_read.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr const char* unfinished = ".saving";

bool linked(const std::string& run, const std::string& name) {
  return link_target(run, "last") == name || link_target(run, "best") == name;
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
  write_text_file(folder + "/" + state_name, write_checkpoint_state(c, files));
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

void prune(const std::string& run, int keep) {
  const std::vector<StepFolder> steps = steps_of(run);
  for (size_t i = size_t(std::max(keep, 0)); i < steps.size(); ++i)
    if (!linked(run, steps[i].name())) remove_step(run, steps[i].name());
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

}  // namespace

CheckpointTensors tensors_of(const Checkpoint& c) {
  return {views_of(c.weights.tensors), views_of(c.ema.tensors), views_of(c.optimizer.tensors)};
}

void save_checkpoint(const std::string& run, const Checkpoint& c, const CheckpointTensors& tensors,
                     bool best, int keep) {
  std::string placed;
  try {
    make_folders(run);
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

}  // namespace bv
