// The files that an index names: opened once, read at any place, and told of the next reads.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "data/records/record_index.h"

namespace bv {

// Thread-safe.
class RecordFiles {
 public:
  // Throws DataError if one is missing. In files that differ from the index, images are bad.
  RecordFiles(const std::string& folder, const RecordIndex&, const std::string& index_path);
  ~RecordFiles();
  RecordFiles(const RecordFiles&) = delete;
  RecordFiles& operator=(const RecordFiles&) = delete;

  const std::string& path(size_t file) const { return paths_[file]; }
  size_t size() const { return paths_.size(); }
  // The record's payload, within `record`. One read. Throws BadImage for a damaged one.
  std::string_view read(const IndexRow&, std::string& record) const;
  // Has the system read these in the background.
  void will_need(std::vector<IndexRow> rows) const;

 private:
  const RegularFile& open(size_t file) const;
  void read_ahead() const;

  std::vector<std::string> paths_;
  std::vector<uint64_t> sizes_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<RegularFile>> open_;  // each once it is first read
  mutable std::condition_variable changed_;
  mutable std::deque<std::vector<IndexRow>> wanted_;
  mutable bool stopping_ = false;
  mutable std::thread reader_;  // runs once something is wanted
};

}  // namespace bv
