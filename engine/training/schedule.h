// Learning rate as a function of the update: linear warmup, then constant or cosine to zero
// (Loshchilov & Hutter 2017), by update or held through each epoch.
#pragma once
#include <cstdint>

namespace bv {

struct Schedule {
  bool cosine;
  bool by_epoch;  // constant through an epoch: the value at its first update
  double lr;
  double total_updates;   // the horizon
  double warmup_updates;  // update s of them has lr * (s + 1) / warmup
  double updates_per_epoch;

  // `update` counts from 0, `epoch` is the one it belongs to.
  double at(int64_t update, int64_t epoch) const;
};

}  // namespace bv
