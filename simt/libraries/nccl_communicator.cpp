#include "simt/libraries/nccl_communicator.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "simt/device/control.h"
#include "simt/include/nccl.h"

using namespace simt::nccl;

namespace {

// Parses SIMT_NCCL_FAULT: "die:1:7".
Fault planted_fault() {
  Fault fault;
  char what[8] = "";
  unsigned long long n = 0;
  const char* text = std::getenv("SIMT_NCCL_FAULT");
  if (!text || std::sscanf(text, "%7[a-z]:%d:%llu", what, &fault.rank, &n) != 3) return fault;
  fault.operation = n;
  fault.dies = std::string(what) == "die";
  fault.hangs = std::string(what) == "hang";
  fault.is_slow = std::string(what) == "slow";
  return fault;
}

int first_of_sums(int size) {
  const char *there = std::getenv("SIMT_NVSWITCH"), *used = std::getenv("NCCL_NVLS_ENABLE");
  const bool switch_sums = there && !(used && std::string(used) == "0");
  return switch_sums ? std::atoi(there) % size : 0;
}

std::string signature(const char* name, size_t count) {
  return std::string(name) + " of " + std::to_string(count);
}

}  // namespace

inline namespace simt_cuda {

SimtNcclComm::SimtNcclComm(std::shared_ptr<Job> its_job, int its_id, size_t offset,
                           std::vector<int> its_members, int its_rank)
    : job(std::move(its_job)),
      id(its_id),
      members(std::move(its_members)),
      rank(its_rank),
      size(static_cast<int>(members.size())),
      fault(planted_fault()),
      offset_(offset),
      mapping_(job->map(offset, bytes(size))),
      all_(mapping_.as<Member>()),
      sends_(members.size()),
      receives_(members.size()),
      first_(first_of_sums(size)) {}

size_t SimtNcclComm::bytes(int size) {
  const auto n = static_cast<size_t>(size);
  return n * sizeof(Member) + n * n * sizeof(Pipe) + n * chunk_bytes;
}
Pipe& SimtNcclComm::pipe(int from, int to) const {
  return reinterpret_cast<Pipe*>(all_ + size)[from * size + to];
}
unsigned char* SimtNcclComm::part(int of) const {
  auto* const parts = reinterpret_cast<unsigned char*>(&pipe(size, 0));
  return parts + chunk_bytes * static_cast<size_t>(of);
}

// ---- Waiting ------------------------------------------------------------------------------------
std::vector<Until> SimtNcclComm::arrive() {
  all_[rank].arrivals.store(++arrivals_, std::memory_order_release);
  std::vector<Until> others;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    job->ring(members[r]);
    others.push_back({&all_[r].arrivals, arrivals_, r});
  }
  return others;
}

void SimtNcclComm::barrier(const char* name) {
  for (const Until& until : arrive())
    while (!until.is_over()) {
      const int idle_ms = simt::let_queues_proceed();
      if (idle_ms == 0) continue;
      // A rank whose queues proceed is not known to wait for this alone.
      job->sleep(idle_ms < INT_MAX
                     ? std::vector<Wait>{}
                     : std::vector{wait_of(std::string(name) + " for", operations + 1, until)});
    }
}

Wait SimtNcclComm::wait_of(const std::string& what, uint64_t operation, const Until& until) const {
  Wait wait{{},
            members[static_cast<size_t>(until.peer)],
            id,
            operation,
            offset_ + static_cast<size_t>(reinterpret_cast<const char*>(until.word) -
                                          mapping_.as<const char>()),
            until.value};
  std::snprintf(wait.what, sizeof wait.what, "%s", what.c_str());
  return wait;
}

void SimtNcclComm::begin_operation() {
  if (++job->operations == fault.operation) fail_as_planted();
}
void SimtNcclComm::fail_as_planted() const {
  if (job->rank() != fault.rank) return;
  if (fault.dies) kill(getpid(), SIGKILL);
  while (fault.hangs) pause();
  if (fault.is_slow) sleep(3);
}

void SimtNcclComm::count_to_next(size_t bytes) {
  if (size > 1) Job::bytes_sent[members[(rank + 1) % size]] += bytes;
}

std::unique_ptr<SimtNcclComm> SimtNcclComm::split(int color, int key) {
  constexpr const char* name = "ncclCommSplit";
  all_[rank].color = color;
  all_[rank].key = key;
  barrier(name);
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r)
    if (all_[r].color == color) ranks.push_back(r);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [this](int a, int b) { return all_[a].key < all_[b].key; });
  Member& leader = all_[ranks.front()];
  if (ranks.front() == rank && color != NCCL_SPLIT_NOCOLOR) {
    leader.offset = job->reserve(bytes(static_cast<int>(ranks.size())));
    leader.communicator = job->next_communicator();
  }
  barrier(name);
  std::unique_ptr<SimtNcclComm> made;
  if (color != NCCL_SPLIT_NOCOLOR) {
    std::vector<int> new_members;
    for (const int r : ranks) new_members.push_back(members[static_cast<size_t>(r)]);
    const auto own = std::find(ranks.begin(), ranks.end(), rank);
    made = std::make_unique<SimtNcclComm>(job, leader.communicator, leader.offset,
                                          std::move(new_members),
                                          static_cast<int>(own - ranks.begin()));
  }
  barrier(name);  // all ranks have read
  return made;
}

// ---- Collectives --------------------------------------------------------------------------------
void SimtNcclComm::say(const std::string& call) {
  Member& own = all_[rank];
  std::snprintf(own.calls[++collectives_ % 2], sizeof own.calls[0], "%s", call.c_str());
}
// Called once all ranks have arrived.
void SimtNcclComm::require_the_same() const {
  const char* mine = all_[rank].calls[collectives_ % 2];
  for (int r = 0; r < size; ++r) {
    const char* theirs = all_[r].calls[collectives_ % 2];
    if (std::strcmp(mine, theirs) != 0)
      job->end("rank " + std::to_string(job->rank()) + " calls " + mine + " where rank " +
               std::to_string(members[static_cast<size_t>(r)]) + " calls " + theirs +
               " (operation " + std::to_string(operations) + " of communicator " +
               std::to_string(id) + ")");
  }
}
// out = the sum over all parts of their n elements from `begin` on.
template <class T>
void SimtNcclComm::sum_parts(T* out, size_t n, size_t begin) const {
  const auto of = [&](int r) { return reinterpret_cast<const T*>(part(r)) + begin; };
  std::memcpy(out, of(first_), n * sizeof(T));
  for (int r = 1; r < size; ++r) {
    const T* other = of((first_ + r) % size);
    for (size_t i = 0; i < n; ++i) out[i] += other[i];
  }
}

template <class T>
Part SimtNcclComm::all_reduce(const T* send, T* receive, size_t count) {
  say(signature(sizeof(T) == 4 ? "ncclAllReduce<float>" : "ncclAllReduce<double>", count));
  // In a ring, a rank sends all chunks but one to compute the sums, and all but one to distribute
  // them.
  for (int turn = 1; turn <= 2 && size > 1; ++turn) {
    const auto ranks = static_cast<size_t>(size), kept = static_cast<size_t>((rank + turn) % size);
    count_to_next((count - ((kept + 1) * count / ranks - kept * count / ranks)) * sizeof(T));
  }
  constexpr size_t per_chunk = chunk_bytes / sizeof(T);
  for (size_t done = 0; done < count; done += per_chunk) {
    const size_t n = std::min(per_chunk, count - done);
    std::memcpy(part(rank), send + done, n * sizeof(T));
    for (const Until& until : arrive()) co_await until;
    require_the_same();
    sum_parts(receive + done, n, 0);
    for (const Until& until : arrive()) co_await until;
  }
}
template Part SimtNcclComm::all_reduce(const float*, float*, size_t);
template Part SimtNcclComm::all_reduce(const double*, double*, size_t);

Part SimtNcclComm::reduce_scatter(const float* send, float* receive, size_t count) {
  say(signature("ncclReduceScatter", count));
  const auto ranks = static_cast<size_t>(size), own = static_cast<size_t>(rank);
  count_to_next((ranks - 1) * count * sizeof(float));
  const size_t per_chunk = chunk_bytes / sizeof(float) / ranks;
  for (size_t done = 0; done < count; done += per_chunk) {
    const size_t n = std::min(per_chunk, count - done);
    for (size_t r = 0; r < ranks; ++r)
      std::memcpy(part(rank) + r * n * sizeof(float), send + r * count + done, n * sizeof(float));
    for (const Until& until : arrive()) co_await until;
    require_the_same();
    sum_parts(receive + done, n, own * n);
    for (const Until& until : arrive()) co_await until;
  }
}

Part SimtNcclComm::all_gather(const float* send, float* receive, size_t count) {
  say(signature("ncclAllGather", count));
  count_to_next(static_cast<size_t>(size - 1) * count * sizeof(float));
  constexpr size_t per_chunk = chunk_bytes / sizeof(float);
  for (size_t done = 0; done < count; done += per_chunk) {
    const size_t n = std::min(per_chunk, count - done);
    std::memcpy(part(rank), send + done, n * sizeof(float));
    for (const Until& until : arrive()) co_await until;
    require_the_same();
    for (int r = 0; r < size; ++r)
      std::memcpy(receive + static_cast<size_t>(r) * count + done, part(r), n * sizeof(float));
    for (const Until& until : arrive()) co_await until;
  }
}

Part SimtNcclComm::broadcast(const unsigned char* send, unsigned char* receive, size_t bytes,
                             int root) {
  say(signature("ncclBroadcast", bytes) + " from rank " + std::to_string(root));
  if ((rank + 1) % size != root) count_to_next(bytes);
  for (size_t done = 0; done < bytes; done += chunk_bytes) {
    const size_t n = std::min(chunk_bytes, bytes - done);
    if (rank == root) std::memcpy(part(root), send + done, n);
    for (const Until& until : arrive()) co_await until;
    require_the_same();
    std::memcpy(receive + done, part(root), n);
    for (const Until& until : arrive()) co_await until;
  }
}

// ---- Messages -----------------------------------------------------------------------------------
Part SimtNcclComm::send(const unsigned char* data, size_t bytes, int peer) {
  Pipe& p = pipe(rank, peer);
  const int to = members[static_cast<size_t>(peer)];
  if (peer != rank) Job::bytes_sent[to] += bytes;
  const uint64_t message = ++sends_[static_cast<size_t>(peer)];
  co_await Until{&p.posted, message, peer};
  if (p.expected != bytes)
    job->end("rank " + std::to_string(job->rank()) + " sends " + std::to_string(bytes) +
             " bytes where rank " + std::to_string(to) + " receives " + std::to_string(p.expected) +
             " (message " + std::to_string(message) + " between them in communicator " +
             std::to_string(id) + ")");
  for (size_t done = 0; done < bytes;) {
    const uint64_t written = p.written, full = written + 1;
    co_await Until{&p.read, full > pipe_bytes ? full - pipe_bytes : 0, peer};
    const size_t at = written % pipe_bytes;
    const size_t n = std::min({bytes - done, pipe_bytes - at, pipe_bytes - (written - p.read)});
    std::memcpy(p.ring + at, data + done, n);
    p.written = written + n;
    done += n;
    job->ring(to);
  }
  p.sent = message;
  job->ring(to);
}

Part SimtNcclComm::receive(unsigned char* data, size_t bytes, int peer) {
  Pipe& p = pipe(peer, rank);
  const int from = members[static_cast<size_t>(peer)];
  const uint64_t message = ++receives_[static_cast<size_t>(peer)];
  p.expected = bytes;
  p.posted = message;
  job->ring(from);
  for (size_t done = 0; done < bytes;) {
    const uint64_t read = p.read;
    co_await Until{&p.written, read + 1, peer};
    const size_t at = read % pipe_bytes;
    const size_t n = std::min({bytes - done, pipe_bytes - at, size_t{p.written - read}});
    std::memcpy(data + done, p.ring + at, n);
    p.read = read + n;
    done += n;
    job->ring(from);
  }
  co_await Until{&p.sent, message, peer};
}

}  // namespace simt_cuda
