#include "engine/model/whole_model.h"

namespace bv {

void WholeModel::train(std::span<const Context> micro_batches, const BackwardEvents& events) {
  const int count = static_cast<int>(micro_batches.size());
  for (int micro = 0; micro < count; ++micro) {
    const Context& context = micro_batches[static_cast<size_t>(micro)];
    const bool last = micro + 1 == count;
    traced(trace_, nullptr, {Work::forward, 0, 0, micro}, [&] { chunk_.forward(context, 0); });
    if (last && events.begins) events.begins();
    traced(trace_, nullptr, {Work::backward, 0, 0, micro},
           [&] { chunk_.backward(context, 0, last ? events.ready : nullptr); });
  }
}

}  // namespace bv
