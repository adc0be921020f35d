#include "engine/model/whole_model.h"

namespace bv {

void WholeModel::train(std::span<const Context> micro_batches, const BackwardCallbacks& events) {
  const int count = static_cast<int>(micro_batches.size());
  for (int micro = 0; micro < count; ++micro) {
    const Context& context = micro_batches[static_cast<size_t>(micro)];
    const bool last = micro + 1 == count;
    traced(trace_, nullptr, {.work = Work::forward, .chunk = 0, .micro = micro},
           [&] { chunk_.forward(context, 0); });
    if (last && events.begins) events.begins();
    traced(trace_, nullptr, {.work = Work::backward, .chunk = 0, .micro = micro},
           [&] { chunk_.backward(context, 0, last ? events.ready : nullptr); });
  }
}

}  // namespace bv
