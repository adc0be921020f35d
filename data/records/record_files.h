// The files that an index names, read at arbitrary offsets. They stay open, unless there are more
// of them than half of the descriptors that the process may have: then the first ones are closed.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/files/file.h"
#include "base/wait.h"
#include "data/records/record_index.h"

namespace bv {

// Thread-safe.
class RecordFiles {
 public:
  // Throws DataError if a file is missing. If a file differs from the index, read() throws.
  // Every call may throw MachineError.
  RecordFiles(const std::string& folder, const RecordIndex&, const std::string& index_path);
  ~RecordFiles();
  RecordFiles(const RecordFiles&) = delete;
  RecordFiles& operator=(const RecordFiles&) = delete;

  const std::string& path(size_t file) const { return paths_[file]; }
  size_t size() const { return paths_.size(); }
  // Reads a record into `record`, in one read; returns its payload. Throws BadImage if damaged.
  std::string_view read(const IndexRow&, std::string& record) const;
  // Prefetches these records into the page cache, from a background thread.
  void will_need(std::vector<IndexRow> rows) const;

 private:
  // Shared, since another thread may close a file that is being read.
  std::shared_ptr<const RegularFile> open(size_t file) const;
  void read_ahead() const;

  std::vector<std::string> paths_;
  std::vector<uint64_t> sizes_;
  mutable std::mutex mutex_;
  size_t max_open_;
  mutable std::vector<std::shared_ptr<const RegularFile>> open_;  // null: closed
  mutable std::deque<size_t> order_;                              // of opening
  mutable Condition changed_;
  mutable std::deque<std::vector<IndexRow>> wanted_;
  mutable bool stopping_ = false;
  mutable std::thread reader_;  // started by the first will_need()
};

}  // namespace bv
