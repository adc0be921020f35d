// What tests choose of the stand-in: the order of a block's threads.
#pragma once

namespace simt {

enum class Order { forward, reverse, random };
inline Order order = Order::forward;  // of the launches to come
inline unsigned seed = 1;             // of random order

}  // namespace simt
