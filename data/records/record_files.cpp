#include "data/records/record_files.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "data/dataset.h"
#include "data/records/tfrecord.h"

namespace bv {
namespace {

constexpr size_t max_waiting = 16;  // batches; beyond this, the oldest is dropped

// Files stay open, and a data set may have more of them than a process may open by default.
void allow_open_files(size_t count) {
  constexpr size_t others = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + others) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + others);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

RecordFiles::RecordFiles(const std::string& folder, const RecordIndex& index,
                         const std::string& index_path)
    : open_(index.files.size()) {
  for (const std::string& file : index.files) {
    const std::string& path = paths_.emplace_back(folder + "/" + file);
    struct stat status {};
    if (stat(path.c_str(), &status) != 0)
      throw DataError(index_path + ": lists " + path +
                      ", which can't be read: " + std::strerror(errno));
    sizes_.push_back(static_cast<uint64_t>(status.st_size));
  }
  allow_open_files(paths_.size());
}

RecordFiles::~RecordFiles() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

const RegularFile& RecordFiles::open(size_t file) const {
  const std::lock_guard lock(mutex_);
  if (!open_[file]) open_[file] = std::make_unique<RegularFile>(paths_[file]);
  return *open_[file];
}

std::string_view RecordFiles::read(const IndexRow& row, std::string& record) const try {
  constexpr const char* or_other = ", or it is not the file that was indexed";
  if (row.offset + row.size > sizes_[row.file])
    throw BadImage("the file was cut off at " + std::to_string(sizes_[row.file]) + " bytes" +
                   or_other);
  record.resize(row.size);
  open(row.file).read(row.offset, std::as_writable_bytes(std::span(record)));
  const std::optional<uint64_t> length = payload_length(record);
  if (!length)
    throw BadImage(std::string("the checksum of the record's length is wrong") + or_other);
  if (*length != row.size - record_overhead)
    throw BadImage("the record has " + std::to_string(*length + record_overhead) +
                   " bytes, the index says " + std::to_string(row.size) +
                   ": it is not the file that was indexed");
  const std::optional<std::string_view> payload = first_record(record);
  if (!payload) throw BadImage("the record's checksum is wrong");
  return *payload;
} catch (const FileError& e) {
  throw BadImage(e.what());
}

void RecordFiles::will_need(std::vector<IndexRow> rows) const {
  const std::lock_guard lock(mutex_);
  if (!reader_.joinable()) reader_ = std::thread([this] { read_ahead(); });
  wanted_.push_back(std::move(rows));
  if (wanted_.size() > max_waiting) wanted_.pop_front();  // probably read by now
  changed_.notify_all();
}

void RecordFiles::read_ahead() const {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !wanted_.empty(); });
    if (stopping_) return;
    const std::vector<IndexRow> rows = std::move(wanted_.front());
    wanted_.pop_front();
    lock.unlock();
    for (const IndexRow& row : rows) try {
        open(row.file).will_need(row.offset, row.size);
      } catch (const FileError&) {
        // The reader of this record reports it.
      }
    lock.lock();
  }
}

}  // namespace bv
