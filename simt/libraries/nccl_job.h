// State shared by the processes of a job: memory, the ranks' waits for each other, and wake-ups. A
// job consists of a communicator made from an ncclUniqueId and all communicators split from it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace simt::nccl {

constexpr int max_ranks = 64;  // of a job; they are numbered as in its first communicator

// A wait until the word at `offset` in the job's memory, which the peer sets, is at least `value`.
struct Wait {
  char what[40];  // "ncclRecv from"
  int32_t peer, communicator;
  uint64_t operation;  // its number among this rank's operations in that communicator
  uint64_t offset, value;
};

// A mapping of the job's memory at an offset, initially zero.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, size_t offset, size_t bytes);  // throws std::runtime_error
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();
  template <class T>
  T* as() const {
    return static_cast<T*>(address_);
  }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

class Job {
 public:
  // Creates the file of the job's memory. Returns the path by which the other processes open it,
  // valid as long as this process lives; empty on failure.
  static std::string create();
  Job(const std::string& path, int rank, int size);  // throws std::runtime_error
  ~Job();
  Job(const Job&) = delete;

  int rank() const { return rank_; }
  int next_communicator();
  // Allocate a communicator's memory and return its offset. first_area(): for the job's first
  // communicator, with the same offset in all ranks.
  size_t first_area(size_t bytes);
  size_t reserve(size_t bytes);
  Mapping map(size_t offset, size_t bytes) const { return {fd_, offset, bytes}; }

  // Wakes the rank after a change that it may wait for.
  void ring(int rank);
  // Called when this process can't proceed until one of these waits ends: sleeps until ring(), at
  // most 10 ms. If no wait can ever end, since ranks wait for each other or have ended, prints a
  // line and ends the process.
  void sleep(const std::vector<Wait>&);
  // Prints the line, "simt: ...", unless another rank has printed one, and ends the process.
  [[noreturn]] void end(const std::string& line);

  uint64_t operations = 0;                       // of this rank in all communicators
  static inline uint64_t bytes_sent[max_ranks];  // by this process

 private:
  struct Memory;
  struct Board;
  uint64_t word(uint64_t offset) const;
  bool is_over(const Wait& w) const { return word(w.offset) >= w.value; }
  std::vector<Wait> waits_of(int rank, uint64_t* version) const;
  std::string deadlock(bool* one_has_ended) const;
  void look_for_deadlock();

  int fd_, rank_, size_;
  Mapping mapping_;
  Memory* memory_;
  uint64_t seen_progress_ = 0;
  int64_t dead_since_ms_ = -1;  // when a deadlock was first suspected; -1: none is
};

}  // namespace simt::nccl
