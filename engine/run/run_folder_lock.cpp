#include "engine/run/run_folder_lock.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/text.h"
#include "engine/files/checkpoint.h"
#include "engine/files/event_file_names.h"
#include "engine/options/config.h"
#include "engine/setup/image_lists.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

std::string dated_folder(const std::string& model) {
  const std::time_t now = std::time(nullptr);
  char text[40];
  std::strftime(text, sizeof text, "-%Y%m%d-%H%M%S", std::localtime(&now));
  return "runs/" + model + text;
}

// said: "--out " or "--resume ", which named the folder.
std::vector<std::string> names_in(const std::string& said, const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    names.push_back(i->path().filename().string());
  if (error) throw UserError(said + folder + ": can't be listed: " + error.message());
  return names;
}

bool contain(const std::vector<std::string>& names, const char* name) {
  return std::ranges::find(names, name) != names.end();
}

// Empty except for leftovers of a run that was killed before its first checkpoint: that run has
// left its lock file, too.
bool is_free(const std::vector<std::string>& names) {
  const bool known = std::ranges::all_of(names, [](std::string name) {
    if (name.ends_with(".partial")) name.erase(name.rfind('.'));
    constexpr std::string_view files[] = {"config.json",   "metrics.jsonl", run_lock_name,
                                          train_list_name, val_list_name,   skipped_list_name};
    return std::ranges::count(files, name) > 0 || name.starts_with("report.") ||
           is_unfinished_checkpoint(name) || is_event_file(name);
  });
  return names.empty() || (known && contain(names, run_lock_name));
}

[[noreturn]] void refuse_used(const std::string& said, const std::string& folder) {
  const std::vector<std::string> names = names_in(said, folder);
  const bool a_run = contain(names, "config.json") && contain(names, "metrics.jsonl");
  if (a_run && !has_checkpoint(folder))
    throw UserError(said + folder +
                    " exists and has a run without a checkpoint: nothing to resume; another --out "
                    "starts a new one, --resume " +
                    folder + " starts this one from the beginning");
  if (said == "--resume ")  // with a MODEL; given a config.json, that run would continue instead
    throw UserError(said + folder + ": not empty, and not a run folder: it has no config.json" +
                    run_above(folder));
  throw UserError(
      said + folder + " exists and is not empty" +
      (contain(names, "config.json")
           ? "; --resume " + folder + " continues that run, another --out starts a new one"
           : ", and has no run; name a new folder, like --out " +
                 (fs::path(folder) / "run").string()));
}

}  // namespace

RunFolderLock::RunFolderLock(const CommandLine& line, const World& world) {
  const std::optional<std::string> resumed = folder_to_resume(line);
  if (!resumed) return;
  folder_ = *resumed, said_ = "--resume ";
  std::error_code ignored;
  if (world.rank == 0 && !line.values.contains("plan") &&
      fs::exists(folder_ + "/config.json", ignored))
    lock_ = std::make_unique<RunLock>(folder_);
}

void RunFolderLock::claim_new(const Options& options, const World& world) {
  const int rank = world.rank;
  folder_ = options.out.empty() ? dated_folder(options.model) : options.out;
  if (options.plan) return;
  if (world.several_machines() && world.node > 0) {
    // --max-restarts needs --out on all nodes.
    const bool useless = !options.out.empty() && options.max_restarts == 0;
    if (useless && said_ == "--out " && world.local_rank == 0)
      print_error_line("node " + std::to_string(world.node) + " (" + world.machine + "): --out " +
                       printable(options.out) + " is ignored, the run's folder is on node 0");
    return;
  }
  try {
    if (options.out.empty())
      begin_dated(rank);
    else
      begin(rank);
  } catch (...) {
    give_back();
    throw;
  }
}

void RunFolderLock::give_back() {
  std::error_code ignored;
  lock_.reset();
  for (; !made_.empty(); made_.pop_back()) fs::remove(made_.back(), ignored);  // if empty
}

// If the folder has a lock file, it may be in use: rank 0 checks this, the other ranks don't look
// into the folder.
void RunFolderLock::begin(int rank) {
  std::error_code ignored;
  const fs::file_status status = fs::status(folder_, ignored);
  const bool exists = fs::exists(status);
  if (exists && !fs::is_directory(status))
    throw UserError(said_ + folder_ + " is a file where the run's folder should be; name another");
  const std::string lock = folder_ + "/" + run_lock_name;
  if (exists && !fs::exists(fs::symlink_status(lock, ignored)) &&
      !is_free(names_in(said_, folder_)))
    refuse_used(said_, folder_);
  if (rank != 0) return;
  if (!exists) make_folder();
  lock_ = std::make_unique<RunLock>(folder_);
  const std::vector<std::string> names = names_in(said_, folder_);
  if (!is_free(names)) refuse_used(said_, folder_);
  for (const std::string& name : names)
    if (is_unfinished_checkpoint(name)) fs::remove_all(folder_ + "/" + name, ignored);
}

// If several runs start in the same second, one gets the plain name, the others get -2, -3, ...
void RunFolderLock::begin_dated(int rank) {
  if (rank != 0) return;  // rank 0 names the run's folder
  const std::string dated = folder_;
  for (int copy = 2; !make_folder(); ++copy) folder_ = dated + "-" + std::to_string(copy);
  lock_ = std::make_unique<RunLock>(folder_);
}

bool RunFolderLock::make_folder() {
  std::vector<fs::path> missing;  // innermost first
  std::error_code error;
  for (fs::path at = folder_; !at.empty() && !fs::exists(at, error); at = at.parent_path())
    missing.push_back(at);
  bool made = false;
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    if ((made = fs::create_directory(*at, error))) made_.push_back(*at);
    if (error) throw UserError(said_ + folder_ + ": can't make this folder: " + error.message());
  }
  return made;
}

}  // namespace bv
