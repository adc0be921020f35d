// Measures one epoch of the loader: images per second.
//   build/records PATH SIZE WORKERS
// Run by bench/records for a folder and for the records packed from it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "base/json.h"
#include "base/stop_signals.h"
#include "data/dataset.h"
#include "data/loader.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int run(const std::string& path, int size, int workers) {
  const auto begin = Clock::now();
  const DataSets data = open_dataset({.path = path, .val_fraction = 0});
  const double opened = since(begin);
  constexpr int batch = 16;
  Loader loader(*data.train,
                {.kind = data.kind, .image_size = size, .local_batch = batch, .workers = workers},
                true);
  const auto start = Clock::now();
  loader.start(0, 0);
  const int64_t batches = loader.batches_per_epoch();
  for (int64_t k = 0; k < batches; ++k) loader.next();
  const int64_t images = batches * batch;
  const double rate = double(images) / since(start);
  std::puts(to_line({{"open", opened}, {"images", images}, {"load", rate}}).c_str());
  return 0;
}

}  // namespace
}  // namespace bv

int main(int argc, char** argv) try {
  bv::hold_stop_signals();
  bv::end_on_stop_signals();
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s PATH SIZE WORKERS\n", argv[0]);
    return 2;
  }
  return bv::run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
} catch (const std::exception& e) {
  std::fprintf(stderr, "records: %s\n", e.what());
  return 2;
}
