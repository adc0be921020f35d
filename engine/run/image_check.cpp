#include "engine/run/image_check.h"

#include <unistd.h>

#include <set>
#include <string>

#include "data/decode/decode.h"
#include "engine/console/output.h"
#include "engine/setup/image_lists.h"

namespace bv {
namespace {

BadImages look(Setup& setup, Communicator* communicator, int threads) {
  const DataSets& data = setup.data;
  const int64_t files = data.train->files() + (data.val ? data.val->files() : 0);
  if (communicator) communicator->busy(Busy::starting);
  Output output(STDOUT_FILENO);
  int64_t seconds = 0;
  BadImages bad = find_bad_images(data, [&](int64_t looked_at) {
    constexpr int64_t between_lines = 10;
    if (seconds++ % between_lines == 0)
      output.print("reading image headers: " + std::to_string(looked_at) + " of " +
                   std::to_string(files) + "\n");
  });
  const bool skip = setup.options.on_bad_image == OnBadImage::skip;
  if (skip)
    add_damaged_images(data, skipped_images(setup.options.out, setup.options.data), threads, bad);
  const int64_t count = bad.count();
  if (count == 0) return bad;
  const std::string more = std::to_string(count - 1);
  const std::string others = count > 1 ? ", and " + more + " more can't be read" : "";
  if (!skip && bad.first.ends_with(git_lfs_pointer)) throw DataError(bad.first + others);
  if (!skip)
    throw DataError(bad.first + others + " (--on-bad-image skip skips such files" +
                    (setup.checkpoint ? "; if they are deleted, the run can't be resumed)" : ")"));
  const int64_t images = data.train->size() + (data.val ? data.val->size() : 0);
  setup.notes.push_back(line_of_skipped(count, images, bad.first));
  return bad;
}

}  // namespace

std::string line_of_skipped(int64_t bad, int64_t images, const std::string& first) {
  return "warning: " + std::to_string(bad) + " of " + std::to_string(images) +
         " images can't be read and will be skipped, the first " + first;
}

void check_images(Setup& setup, Communicator* communicator, Backend& backend, int threads) {
  BadImages& bad = setup.bad_images;
  if (!communicator || communicator->rank() == 0) bad = look(setup, communicator, threads);
  bad.train = union_of_ranks(std::move(bad.train), communicator, backend);
  bad.val = union_of_ranks(std::move(bad.val), communicator, backend);
}

std::vector<int64_t> union_of_ranks(std::vector<int64_t> numbers, Communicator* communicator,
                                    Backend& backend) {
  if (!communicator) return numbers;
  const auto sum = [&](size_t x) {
    return static_cast<size_t>(communicator->all_reduce_scalar(static_cast<double>(x)));
  };
  if (sum(numbers.size()) == 0) return numbers;
  std::set<int64_t> all;
  for (int rank = 0; rank < communicator->size(); ++rank) {
    const bool own = communicator->rank() == rank;
    std::vector<int64_t> theirs(sum(own ? numbers.size() : 0));
    if (theirs.empty()) continue;
    if (own) theirs = numbers;
    const size_t bytes = theirs.size() * sizeof theirs[0];
    const DeviceMemory memory(backend, bytes);
    backend.to_device(memory.data(), theirs.data(), bytes, nullptr);
    communicator->broadcast(memory.data(), bytes, rank, nullptr);
    backend.to_host(theirs.data(), memory.data(), bytes, nullptr);
    backend.synchronize(nullptr);
    all.insert(theirs.begin(), theirs.end());
  }
  return {all.begin(), all.end()};
}

}  // namespace bv
