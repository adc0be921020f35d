// A ring of batches: workers fill rows in the order in which the caller consumes whole batches. A
// row's content doesn't depend on which worker fills it or when.
#include "data/loader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/machine_error.h"
#include "base/wait.h"
#include "data/decode/decode.h"
#include "data/prepare.h"
#include "kernels/philox.h"

namespace bv {
namespace {

constexpr int64_t synthetic_batches = 1000;
constexpr uint32_t max_replacements = 1000;
constexpr int64_t batches_ahead = 4;  // announced to the data set, after the one being filled

using Order = std::vector<uint32_t>;

// Images, crops, operations, mixes and labels are consecutive in one allocation.
struct Slot {
  std::shared_ptr<void> memory;
  uint8_t* images = nullptr;
  Crop* crops = nullptr;
  ImageOp* ops = nullptr;
  Mix* mixes = nullptr;
  int32_t* labels = nullptr;
  std::vector<uint32_t> indices;
  Batch batch{};
  int64_t sequence = -1, epoch = 0, first = 0;  // first: image index or position of row 0
  std::shared_ptr<const Order> order;           // null: the position is the index
  int rows_left = 0;
  int bad_row = -1;  // the first row whose image failed, and why
  std::exception_ptr error;
};

std::shared_ptr<void> allocate_plain(size_t bytes) {
  return {::operator new(bytes), [](void* p) { ::operator delete(p); }};
}

void allocate(Slot& slot, const LoaderOptions& o, size_t image_bytes, size_t layers, bool mixes) {
  const auto rows = static_cast<size_t>(o.local_batch);
  const size_t crops_at = (image_bytes + 63) / 64 * 64, ops_at = crops_at + rows * sizeof(Crop);
  const size_t mixes_at = ops_at + rows * layers * sizeof(ImageOp);
  const size_t labels_at = mixes_at + (mixes ? rows * sizeof(Mix) : 0);
  const size_t bytes = labels_at + rows * sizeof(int32_t);
  slot.memory = o.allocate ? o.allocate(bytes) : allocate_plain(bytes);
  slot.images = static_cast<uint8_t*>(slot.memory.get());
  slot.crops = new (slot.images + crops_at) Crop[rows];
  if (layers > 0) slot.ops = new (slot.images + ops_at) ImageOp[rows * layers];
  if (mixes) slot.mixes = new (slot.images + mixes_at) Mix[rows];
  slot.labels = new (slot.images + labels_at) int32_t[rows];
  slot.indices.resize(rows);
}

Order shuffled(uint64_t seed, int64_t epoch, int64_t images) {
  Order order(images);
  std::iota(order.begin(), order.end(), 0u);
  for (int64_t i = images - 1; i > 0; --i) {
    const Philox4 random =
        philox(seed, static_cast<uint32_t>(i), static_cast<uint32_t>(epoch), 0, random_order);
    std::swap(order[i], order[uint64_t{random.at[0]} * (i + 1) >> 32]);
  }
  return order;
}

}  // namespace

int64_t training_batches(DataKind kind, int64_t images, int64_t batch) {
  return kind == DataKind::synthetic ? synthetic_batches : images / batch;
}

std::vector<uint32_t> epoch_order(uint64_t seed, int64_t epoch, int64_t images, int64_t left_over) {
  Order order = shuffled(seed, left_over ? 0 : epoch, images);
  for (int64_t next = 1; left_over && next <= epoch; ++next) {
    std::vector<bool> waits(images);
    for (int64_t i = images - left_over; i < images; ++i) waits[order[i]] = true;
    order = shuffled(seed, next, images);
    std::ranges::stable_partition(order, [&](uint32_t image) { return waits[image]; });
  }
  return order;
}

struct Loader::State {
  State(const Dataset& d, const LoaderOptions& o, bool is_train)
      : data(d),
        options(o),
        train(is_train),
        preprocessor(d, o, is_train),
        bad_images(o.known_bad.begin(), o.known_bad.end()) {
    share = (d.size() + o.ranks - 1) / o.ranks;
    batches = train ? training_batches(o.kind, d.size(), int64_t{o.local_batch} * o.ranks)
                    : (share + o.local_batch - 1) / o.local_batch;
    size = stored_size(o.kind, o.crop, o.image_size, train);
    row_bytes = 3 * size_t(size) * size;
    layers = train ? static_cast<size_t>(o.augment.layers()) : 0;
    // A photo takes long enough to be a unit of work; small images are handed out 16 at a time.
    chunk = o.kind == DataKind::photos ? 1 : 16;
    slots.resize(std::max(1, o.prefetch) + 1);
    if (!o.images) return;
    for (Slot& slot : slots)
      allocate(slot, o, row_bytes * static_cast<size_t>(o.local_batch), layers,
               train && o.mixing.any());
    for (int i = 0; i < std::max(1, o.workers); ++i) workers.emplace_back([this] { work(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
  }  // the threads join when destroyed, before the members they use

  void start(int64_t epoch, int64_t batch) {
    std::unique_lock lock(mutex);
    running = false;
    changed.wait(lock, [this] { return busy == 0; });
    base = epoch * batches + batch;
    given = -1;
    filling = filled_rows = announced = 0;
    for (Slot& slot : slots) slot.sequence = -1;
    running = batches > 0;
    changed.notify_all();
  }

  const Batch* next(const std::function<bool()>& stop) {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex);
    ++given;  // frees the previous batch's slot
    changed.notify_all();
    Slot& slot = slots[given % slots.size()];
    if (!running || (!train && given >= batches))
      throw std::logic_error("Loader::next without start, or after the last batch");
    if (!options.images) {
      begin_batch(slot, given);
      slot.batch.indices = nullptr;
      return &slot.batch;
    }
    const auto ready = [&] { return slot.sequence == given && slot.rows_left == 0; };
    while (stop && !changed.wait_for(lock, std::chrono::milliseconds(100), ready))
      if (stop()) return nullptr;
    changed.wait(lock, ready);
    if (slot.error) std::rethrow_exception(slot.error);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    slot.batch.wait_seconds = waited.count();
    return &slot.batch;
  }

  bool has_work() const {
    if (!running || (!train && filling >= batches)) return false;
    return filling < std::max<int64_t>(given, 0) + static_cast<int64_t>(slots.size());
  }

  std::shared_ptr<const Order> order_of(int64_t epoch) {
    if (!train || !options.images || options.kind == DataKind::synthetic) return nullptr;
    if (!order || order_epoch != epoch) {
      const int64_t used = batches * options.local_batch * options.ranks;
      order = std::make_shared<const Order>(epoch_order(
          options.seed, epoch, data.size(), options.left_over_first ? data.size() - used : 0));
      order_epoch = epoch;
    }
    return order;
  }

  void begin_batch(Slot& slot, int64_t sequence) {
    const int64_t number = base + sequence, batch = number % batches;
    slot.sequence = sequence;
    slot.epoch = number / batches;
    slot.order = order_of(slot.epoch);
    slot.rows_left = options.local_batch;
    slot.bad_row = -1;
    slot.error = nullptr;
    const auto [first, count] = rows_of(batch);
    slot.first = first;
    slot.batch = {.images = slot.images,
                  .crops = slot.crops,
                  .ops = slot.ops,
                  .mixes = slot.mixes,
                  .labels = slot.labels,
                  .height = size,
                  .width = size,
                  .count = static_cast<int>(count),
                  .position = static_cast<uint32_t>(slot.first),
                  .wait_seconds = 0,
                  .indices = slot.indices.data()};
    announce(slot, sequence);
  }

  // The position (in evaluation the index) of a batch's row 0, and the number of rows.
  std::pair<int64_t, int64_t> rows_of(int64_t batch) const {
    if (train)
      return {(batch * options.ranks + options.rank) * options.local_batch, options.local_batch};
    const int64_t begin = std::min(data.size(), options.rank * share);
    const int64_t end = std::min(data.size(), begin + share);
    const int64_t first = std::min(end, begin + batch * options.local_batch);
    return {first, std::min<int64_t>(options.local_batch, end - first)};
  }

  // Stops at the end of the epoch: the order of the next epoch isn't drawn before it begins.
  void announce(const Slot& slot, int64_t sequence) {
    const int64_t last = sequence + batches_ahead;
    for (announced = std::max(announced, sequence); announced <= last; ++announced) {
      const int64_t number = base + announced;
      if (number / batches != slot.epoch) return;
      const auto [first, count] = rows_of(number % batches);
      std::vector<uint32_t> indices;
      for (int64_t p = first; p < first + count; ++p)
        indices.push_back(slot.order ? (*slot.order)[p] : static_cast<uint32_t>(p));
      data.will_need(indices);
    }
  }

  void work() {
    Resizer resizer;
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || has_work(); });
      if (stopping) return;
      Slot& slot = slots[filling % slots.size()];
      if (filled_rows == 0) begin_batch(slot, filling);
      const int begin = filled_rows, end = std::min(options.local_batch, begin + chunk);
      filled_rows = end == options.local_batch ? 0 : end;
      if (filled_rows == 0) ++filling;
      ++busy;
      lock.unlock();
      for (int row = begin; row < end; ++row) fill(slot, row, resizer);
      lock.lock();
      --busy;
      slot.rows_left -= end - begin;
      if (slot.rows_left == 0 || busy == 0) changed.notify_all();
    }
  }

  void fill(Slot& slot, int row, Resizer& resizer) {
    const PreparedRow out{.pixels = slot.images + row * row_bytes,
                          .crop = slot.crops[row],
                          .ops = {slot.ops + row * layers, layers}};
    slot.labels[row] = -1;
    if (slot.mixes) slot.mixes[row] = mix_of(slot, row);
    try {
      if (row < slot.batch.count) {
        const int64_t position = slot.first + row;
        const int64_t index = slot.order ? (*slot.order)[position] : position;
        const int64_t used = prepare(index, slot.epoch, resizer, out);
        if (used >= 0) {
          slot.labels[row] = data.label(used);
          slot.indices[row] = static_cast<uint32_t>(used);
          return;
        }
      }
      std::memset(out.pixels, 0, row_bytes);
      out.crop = {};
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (slot.bad_row >= 0 && slot.bad_row < row) return;
      slot.bad_row = row;
      slot.error = std::current_exception();
    }
  }

  Mix mix_of(const Slot& slot, int row) const {
    const MixKey key{.seed = options.seed,
                     .epoch = static_cast<uint32_t>(slot.epoch),
                     .position = static_cast<uint32_t>(slot.first + row),
                     .batch = options.local_batch * options.ranks};
    return draw_mix(options.mixing, key, options.image_size);
  }

  // The index of the image used: `index`, or in training a bad image's replacement; -1: skipped.
  int64_t prepare(int64_t index, int64_t epoch, Resizer& resizer, const PreparedRow& out) {
    int64_t candidate = index;
    for (uint32_t attempt = 0; attempt < max_replacements; ++attempt) {
      if (!known_bad(candidate)) try {
          preprocessor.run(candidate, static_cast<uint32_t>(epoch), resizer, out);
          return candidate;
        } catch (const BadImage& bad) {
          on_bad_image(candidate, bad);
        } catch (const std::bad_alloc&) {
          throw MachineError(data.name(candidate), ENOMEM);
        }
      if (!train) return -1;
      const Philox4 random = philox(options.seed, attempt, static_cast<uint32_t>(index),
                                    static_cast<uint32_t>(epoch), random_replace);
      candidate = static_cast<int64_t>(uint64_t{random.at[0]} * data.size() >> 32);
    }
    throw DataError("too many bad images: no replacement found for " + data.name(index));
  }

  bool known_bad(int64_t index) const {
    const std::lock_guard lock(bad_mutex);
    return bad_images.contains(index);
  }

  void on_bad_image(int64_t index, const BadImage& bad) {
    if (!options.skip_bad_images)
      throw DataError(data.name(index) + ": " + bad.what() +
                      advice_for(bad,
                                 " (--on-bad-image skip skips such files; once they are deleted, "
                                 "the run can't be resumed)"));
    const std::lock_guard lock(bad_mutex);
    if (!bad_images.insert(index).second) return;
    if (options.warn) options.warn("skipped bad image " + data.name(index) + ": " + bad.what());
  }

  const Dataset& data;
  const LoaderOptions options;
  const bool train;
  int64_t share, batches;
  int size;  // of the images
  size_t row_bytes, layers;
  int chunk;
  Preprocessor preprocessor;

  std::mutex mutex;
  Condition changed;
  // Batches are numbered from 0 after each start(). The caller holds batch `given`; the first
  // filled_rows rows of batch `filling` are assigned to workers.
  int64_t base = 0, given = -1, filling = 0, announced = 0;
  int filled_rows = 0, busy = 0;
  bool running = false, stopping = false;
  std::vector<Slot> slots;
  std::shared_ptr<const Order> order;
  int64_t order_epoch = -1;

  mutable std::mutex bad_mutex;
  std::set<int64_t> bad_images;

  std::vector<std::jthread> workers;  // last: destroyed first
};

Loader::Loader(const Dataset& data, const LoaderOptions& options, bool train)
    : state_(std::make_unique<State>(data, options, train)) {}
Loader::~Loader() = default;
int64_t Loader::batches_per_epoch() const { return state_->batches; }
void Loader::start(int64_t epoch, int64_t batch) { state_->start(epoch, batch); }
const Batch& Loader::next() { return *state_->next({}); }
const Batch* Loader::next_unless(const std::function<bool()>& stop) { return state_->next(stop); }
std::vector<int64_t> Loader::bad_images() const {
  const std::lock_guard lock(state_->bad_mutex);
  return {state_->bad_images.begin(), state_->bad_images.end()};
}

}  // namespace bv
