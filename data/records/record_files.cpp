#include "data/records/record_files.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/files/file.h"
#include "base/machine_error.h"
#include "data/dataset.h"
#include "data/decode/decode.h"
#include "data/records/tfrecord.h"

namespace bv {
namespace {

constexpr size_t max_waiting = 16;  // batches; beyond this, the oldest is dropped

// How many of `count` files may stay open. A data set may have more of them than a process may open
// by default; it has two such parts, and the process needs descriptors for other files.
size_t files_to_keep_open(size_t count) {
  constexpr size_t parts = 2, others = 256;
  const rlim_t wanted = parts * count + others;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  if (const rlimit more{std::min(limit.rlim_max, wanted), limit.rlim_max};
      limit.rlim_cur < more.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0)
    limit = more;
  const rlim_t free = limit.rlim_cur - std::min<rlim_t>(others, limit.rlim_cur / 2);
  return std::clamp<size_t>(free / parts, 1, std::max<size_t>(count, 1));
}

}  // namespace

RecordFiles::RecordFiles(const std::string& folder, const RecordIndex& index,
                         const std::string& index_path)
    : max_open_(files_to_keep_open(index.files.size())), open_(index.files.size()) {
  for (const std::string& file : index.files) {
    const std::string& path = paths_.emplace_back(folder + "/" + file);
    struct stat status {};
    const int code = stat(path.c_str(), &status) == 0 ? 0 : errno;
    if (is_machine_error(code)) throw MachineError(path, code);
    if (code != 0) {
      const std::string link = link_without_target(path);
      throw DataError(index_path + ": lists " + path +
                      (link.empty() ? ", which can't be read: " : ", ") +
                      (link.empty() ? std::strerror(code) : link));
    }
    sizes_.push_back(static_cast<uint64_t>(status.st_size));
  }
}

RecordFiles::~RecordFiles() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

std::shared_ptr<const RegularFile> RecordFiles::open(size_t file) const {
  {
    const std::lock_guard lock(mutex_);
    if (open_[file]) return open_[file];
  }
  auto opened = std::make_shared<const RegularFile>(paths_[file]);  // other threads need not wait
  const std::lock_guard lock(mutex_);
  if (open_[file]) return open_[file];
  if (order_.size() == max_open_) {
    open_[order_.front()] = nullptr;
    order_.pop_front();
  }
  order_.push_back(file);
  return open_[file] = std::move(opened);
}

std::string_view RecordFiles::read(const IndexRow& row, std::string& record) const try {
  constexpr const char* or_other = ", or it is not the file that was indexed";
  if (row.offset + row.size > sizes_[row.file]) {
    FileView view(*open(row.file));
    if (is_git_lfs_pointer(view.at(0, stranger_bytes)))
      throw MendableImage(std::string(git_lfs_pointer));
    throw BadImage("the file was cut off at " + std::to_string(sizes_[row.file]) + " bytes" +
                   or_other);
  }
  record.resize(row.size);
  open(row.file)->read(row.offset, std::as_writable_bytes(std::span(record)));
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
        open(row.file)->will_need(row.offset, row.size);
      } catch (const std::runtime_error&) {
        // The reader of this record reports it.
      }
    lock.lock();
  }
}

}  // namespace bv
