#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

Tensor max_pool(Graph& g, const std::string& name, Tensor inp, int window, int stride) {
  const PoolShape shape{.N = dim(g, inp, 0),
                        .H = dim(g, inp, 1),
                        .W = dim(g, inp, 2),
                        .C = dim(g, inp, 3),
                        .R = window,
                        .stride = stride,
                        .padding = window / 2};
  const std::vector<int64_t> dims{shape.N, shape.P(), shape.Q(), shape.C};
  const Tensor out = g.tensor(name, dims), index = g.bytes(name + " index", dims);
  g.grad(inp);

  const auto forward = [=](const Context& r) {
    r.run(MaxPoolForward{.out = r.at(out),
                         .index = static_cast<uint8_t*>(r.at(index)),
                         .inp = r.at(inp),
                         .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(MaxPoolBackward{.dinp = r.grad(inp),
                          .dout = r.grad(out),
                          .index = static_cast<const uint8_t*>(r.at(index)),
                          .shape = shape});
  };
  g.add({name, "pool", forward, backward});
  return out;
}

Tensor average_pool(Graph& g, const std::string& name, Tensor inp) {
  const PositionsShape shape{
      .N = dim(g, inp, 0), .positions = dim(g, inp, 1) * dim(g, inp, 2), .C = dim(g, inp, 3)};
  const Tensor out = g.tensor(name, {shape.N, shape.C});
  g.grad(inp);

  const auto forward = [=](const Context& r) {
    r.run(AveragePoolForward{.out = r.at(out), .inp = r.at(inp), .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(AveragePoolBackward{.dinp = r.grad(inp), .dout = r.grad(out), .shape = shape});
  };
  g.add({name, "pool", forward, backward});
  return out;
}

}  // namespace bv
