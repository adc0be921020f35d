// Claims a run's folder: names it, checks it and, on rank 0, locks it until the run ends.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/processes/world.h"
#include "engine/files/run_lock.h"
#include "engine/options/command_line.h"

namespace bv {

class RunFolderLock {
 public:
  // Locks the folder of --resume before it is read, if it has a run. Throws UserError if another
  // process is using it.
  RunFolderLock(const CommandLine&, const World&);
  // Locks a new run's folder. Throws UserError if another run is active in it or has left
  // checkpoints; leftovers of a run killed before its first checkpoint are allowed. The folder is
  // on rank 0's node; other nodes ignore --out with a message.
  void claim_new(const Options&, const World&);
  ~RunFolderLock() { give_back(); }
  RunFolderLock(const RunFolderLock&) = delete;
  RunFolderLock& operator=(const RunFolderLock&) = delete;
  const std::string& folder() const { return folder_; }
  std::string warning() const { return lock_ ? lock_->warning() : ""; }
  void give_back();  // also removes the folders it made, if empty

 private:
  void begin(int rank);
  void begin_dated(int rank);  // in a folder named by date and time
  bool make_folder();          // false: it exists already

  std::string folder_, said_ = "--out ";     // the option that named it
  std::vector<std::filesystem::path> made_;  // outermost first
  std::unique_ptr<RunLock> lock_;
};

}  // namespace bv
