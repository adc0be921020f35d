#include "engine/model/plan.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <numeric>
#include <ostream>

#include "engine/model/memory.h"

namespace bv {
namespace {

struct Block {
  size_t bytes;
  std::vector<Life> live_ranges;
  size_t* offset;  // result
};

// Places the largest blocks first, each at the lowest offset that is free during all its live
// ranges. Returns the total size.
size_t pack(std::vector<Block> blocks) {
  std::ranges::stable_sort(blocks, std::greater{}, &Block::bytes);
  size_t end = 0;
  std::vector<const Block*> placed;  // by offset
  for (const Block& block : blocks) {
    size_t offset = 0;
    for (const Block* other : placed) {
      if (!overlap(block.live_ranges, other->live_ranges)) continue;
      if (offset + block.bytes <= *other->offset) break;
      offset = std::max(offset, *other->offset + other->bytes);
    }
    *block.offset = offset;
    end = std::max(end, offset + block.bytes);
    const auto above =
        std::ranges::upper_bound(placed, offset, {}, [](const Block* b) { return *b->offset; });
    placed.insert(above, &block);
  }
  return end;
}

struct NodePlan {
  NodeUse forward, backward;
};

std::vector<NodePlan> plan_nodes(const Graph& graph, Kernels& kernels, Slice slice, Passes passes) {
  std::vector<NodePlan> plans;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    NodePlan& plan = plans.emplace_back();
    Context context{.planning = &plan.forward,
                    .graph = &graph,
                    .kernels = &kernels,
                    .training = passes != Passes::forward};
    graph.forward(i, slice, passes == Passes::recompute)(context);
    if (passes == Passes::forward) continue;
    context.planning = &plan.backward;
    // Both variants: the first micro-step of an update writes gradients, later ones add to them.
    for (const bool accumulate : {false, true}) {
      context.accumulate = accumulate;
      graph.backward(i, slice)(context);
    }
  }
  return plans;
}

// The first and last node that touch each storage, in any pass or in the forward pass alone.
struct Spans {
  std::vector<Life> all, forward;
};
std::vector<Life> node_spans(const Graph& graph, const std::vector<NodePlan>& plans,
                             std::initializer_list<NodeUse NodePlan::*> passes) {
  std::vector<Life> spans(graph.tensors().size(), {INT_MAX, -1});
  for (int node = 0; node < static_cast<int>(plans.size()); ++node)
    for (const auto pass : passes)
      for (const Tensor t : (plans[static_cast<size_t>(node)].*pass).tensors) {
        Life& span = spans[static_cast<size_t>(graph.info(t).storage)];
        span = {std::min(span.first, node), node};
      }
  return spans;
}

// Whether the passes touch a storage before, inside or after the stage, and when inside it.
struct Touched {
  struct Pass {
    bool before = false, inside = false, after = false;
    Life life{};
    void at(int time) {
      life =
          inside ? Life{std::min(life.first, time), std::max(life.last, time)} : Life{time, time};
      inside = true;
    }
  };
  Pass forward, again;  // again: in backward or a repeated forward
  bool crosses() const { return forward.before || forward.after || again.before || again.after; }
  bool both() const { return forward.inside && again.inside; }
};

// The blocks between cuts whose forward is repeated. Each leaves out the nodes at its end that
// compute nothing for the block's own backward.
std::vector<Layout::Recompute> find_recomputes(const Graph& graph,
                                               const std::vector<NodePlan>& plans,
                                               const Spans& spans, int begin, int end) {
  std::vector<int> cuts;
  for (const int cut : graph.cuts())
    if (cut >= begin && cut < end) cuts.push_back(cut);
  if (end < static_cast<int>(graph.nodes().size())) cuts.push_back(end);
  std::vector<Layout::Recompute> found;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int after = cuts[i + 1];
    // A fused backward needs the tensors of this block's last node one node earlier.
    const int before = after + (after < end && graph.fused(after));
    const auto makes_own = [&](int node) {  // a tensor used only within the block
      for (const Tensor t : plans[static_cast<size_t>(node)].forward.tensors) {
        const Life& span = spans.all[static_cast<size_t>(graph.info(t).storage)];
        const int made_by = graph.nodes()[static_cast<size_t>(node)].in_place ? cuts[i] : node;
        if (span.first >= made_by && span.last < before) return true;
      }
      return false;
    };
    int last = after;
    while (last > cuts[i] && !makes_own(last - 1)) --last;
    if (last > cuts[i]) found.push_back({cuts[i], last, after, before});
  }
  return found;
}

// The time at which each node runs, indexed by node - begin; -1: never.
struct Times {
  std::vector<int> forward, again, backward;
};

Times run_through(const std::vector<Layout::Recompute>& recomputes, int begin, int end) {
  const auto count = static_cast<size_t>(end - begin);
  Times times{.forward = std::vector<int>(count),
              .again = std::vector<int>(count, -1),
              .backward = std::vector<int>(count)};
  std::iota(times.forward.begin(), times.forward.end(), 0);
  int now = end - begin;
  auto next = recomputes.rbegin();
  for (int node = end - 1; node >= begin; --node) {
    if (next != recomputes.rend() && next->before == node + 1) {
      for (int k = next->begin; k < next->end; ++k)
        times.again[static_cast<size_t>(k - begin)] = now++;
      ++next;
    }
    times.backward[static_cast<size_t>(node - begin)] = now++;
  }
  return times;
}

std::vector<Touched> find_touched(const Graph& graph, const std::vector<NodePlan>& plans,
                                  const Times& times, int begin, int end) {
  std::vector<Touched> all(graph.tensors().size());
  const auto touch = [&](const NodeUse& pass, int node, Touched::Pass Touched::*which,
                         const std::vector<int>& when) {
    for (const Tensor t : pass.tensors) {
      Touched& touched = all[static_cast<size_t>(graph.info(t).storage)];
      if (node < begin) {
        (touched.*which).before = true;
      } else if (node >= end) {
        (touched.*which).after = true;
      } else if (const int time = when[static_cast<size_t>(node - begin)]; time >= 0) {
        (touched.*which).at(time);
      }
    }
  };
  for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
    const NodePlan& plan = plans[static_cast<size_t>(node)];
    touch(plan.forward, node, &Touched::forward, times.forward);
    if (node >= begin && node < end) touch(plan.forward, node, &Touched::again, times.again);
    touch(plan.backward, node, &Touched::again, times.backward);
  }
  return all;
}

// False for a tensor that the next block's forward reads: repeating that forward needs it.
bool only_in_recomputed_block(const Layout& layout, const Spans& spans, size_t storage) {
  const Life &all = spans.all[storage], &forward = spans.forward[storage];
  return std::ranges::any_of(layout.recomputes, [&](const Layout::Recompute& r) {
    return r.begin <= all.first && all.last < r.before && forward.last < r.cut;
  });
}

}  // namespace

Layout plan_stage(const Graph& graph, Kernels& kernels, int begin, int end, Passes passes) {
  const std::vector<NodePlan> plans = plan_nodes(graph, kernels, {begin, end}, passes);
  const Spans spans{.all = node_spans(graph, plans, {&NodePlan::forward, &NodePlan::backward}),
                    .forward = node_spans(graph, plans, {&NodePlan::forward})};
  Layout layout;
  layout.repeats = passes == Passes::recompute;
  if (layout.repeats) layout.recomputes = find_recomputes(graph, plans, spans, begin, end);
  const Times times = run_through(layout.recomputes, begin, end);
  const std::vector<Touched> touched = find_touched(graph, plans, times, begin, end);

  std::vector<Block> scratch;
  layout.places.resize(touched.size());
  for (size_t s = 0; s < touched.size(); ++s) {
    const Touched& t = touched[s];
    if (!t.forward.inside && !t.again.inside) continue;
    const int id = static_cast<int>(s);
    if (t.forward.inside && t.forward.before) layout.inputs.push_back(id);
    if (t.forward.inside && t.forward.after) layout.outputs.push_back(id);
    if (!t.forward.inside && t.again.before) layout.input_grads.push_back(id);
    if (!t.forward.inside && t.again.after) layout.output_grads.push_back(id);
    Layout::Place& place = layout.places[s];
    place.bytes = align(graph.tensors()[s].bytes());
    const bool lives_twice = t.both() && !t.crosses() && only_in_recomputed_block(layout, spans, s);
    if (t.crosses() || (t.both() && !lives_twice)) {
      place.kind = Layout::Place::saved;
      place.offset = layout.saved_bytes;
      layout.saved_bytes += place.bytes;
      continue;
    }
    place.kind = Layout::Place::scratch;
    if (t.forward.inside) place.live_ranges.push_back(t.forward.life);
    if (t.again.inside) place.live_ranges.push_back(t.again.life);
    scratch.push_back({place.bytes, place.live_ranges, &place.offset});
  }

  const auto count = static_cast<size_t>(end - begin);
  layout.forward_workspace.resize(count);
  layout.backward_workspace.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t node = static_cast<size_t>(begin) + i;
    const int now = times.forward[i], again = times.again[i], back = times.backward[i];
    if (const size_t bytes = align(plans[node].forward.workspace)) {
      scratch.push_back({bytes, {{now, now}}, &layout.forward_workspace[i]});
      if (again >= 0) scratch.back().live_ranges.push_back({again, again});
    }
    if (const size_t bytes = align(plans[node].backward.workspace))
      scratch.push_back({bytes, {{back, back}}, &layout.backward_workspace[i]});
  }
  layout.scratch_bytes = pack(std::move(scratch));
  return layout;
}

bool overlap(const std::vector<Life>& some, const std::vector<Life>& others) {
  for (const Life& a : some)
    for (const Life& b : others)
      if (a.first <= b.last && b.first <= a.last) return true;
  return false;
}

std::string format_bytes(size_t bytes) {
  char text[40];
  if (bytes >= size_t{1} << 30)
    std::snprintf(text, sizeof text, "%.2f GiB", double(bytes) / (1 << 30));
  else
    std::snprintf(text, sizeof text, "%.1f MiB", double(bytes) / (1 << 20));
  return text;
}

void print_plan(std::ostream& out, const Graph& graph, const Layout& layout,
                const MemoryPlan& plan) {
  char line[200];
  const auto row = [&](const char* what, size_t bytes) {
    std::snprintf(line, sizeof line, "%-28s %14zu bytes  %10s\n", what, bytes,
                  format_bytes(bytes).c_str());
    out << line;
  };
  std::snprintf(line, sizeof line, "%zu parameters, %zu nodes\n", graph.parameter_count(),
                graph.nodes().size());
  out << line;
  row("weights", plan.weights);
  row("gradients", plan.gradients);
  row("optimizer state", plan.optimizer);
  if (plan.ema) row("moving average of weights", plan.ema);
  if (plan.compute_weights) row("16-bit copy of weights", plan.compute_weights);
  row("saved activations", plan.activations);
  row("scratch", plan.scratch);
  row("batches", plan.batches);
  row("peak", plan.peak());
  row("checkpoints, on the host", plan.checkpoints);

  std::vector<size_t> largest;
  for (size_t s = 0; s < layout.places.size(); ++s)
    if (layout.places[s].kind != Layout::Place::absent) largest.push_back(s);
  std::ranges::stable_sort(largest, std::greater{},
                           [&](size_t s) { return layout.places[s].bytes; });
  out << "largest tensors\n";
  for (size_t i = 0; i < std::min<size_t>(8, largest.size()); ++i) {
    const auto& info = graph.tensors()[largest[i]];
    const auto& place = layout.places[largest[i]];
    std::string shape;
    for (const int64_t n : info.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
    std::snprintf(line, sizeof line, "  %-34s %-22s %10s  %s\n", info.name.c_str(), shape.c_str(),
                  format_bytes(place.bytes).c_str(),
                  place.kind == Layout::Place::saved ? "saved" : "scratch");
    out << line;
  }
}

}  // namespace bv
