#include "engine/plan.h"

#include <algorithm>
#include <numeric>
#include <ostream>

namespace bv {
namespace {

constexpr size_t alignment = 256;
size_t align(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

struct Block {
  size_t bytes;
  int first, last;  // life
  size_t* offset;   // result
};

// Largest first, each at the lowest offset that is free all its life. Returns the bytes in all.
size_t pack(std::vector<Block> blocks) {
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  size_t end = 0;
  std::vector<const Block*> placed;  // by offset
  for (const Block& block : blocks) {
    size_t offset = 0;
    for (const Block* other : placed) {
      if (other->last < block.first || block.last < other->first) continue;
      if (offset + block.bytes <= *other->offset) break;
      offset = std::max(offset, *other->offset + other->bytes);
    }
    *block.offset = offset;
    end = std::max(end, offset + block.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &block,
                         [](const Block* a, const Block* b) { return *a->offset < *b->offset; }),
        &block);
  }
  return end;
}

struct Uses {
  std::vector<Planner::Pass> forward, backward;  // by node
};

Uses collect(const Graph& graph, Kernels& kernels) {
  Uses uses;
  for (const auto& node : graph.nodes()) {
    Planner planner(graph, kernels);
    node->plan(planner);
    uses.forward.push_back(std::move(planner.forward));
    uses.backward.push_back(std::move(planner.backward));
  }
  return uses;
}

}  // namespace

Layout plan_stage(const Graph& graph, Kernels& kernels, int begin, int end) {
  const Uses uses = collect(graph, kernels);
  const int count = end - begin;
  const size_t storages = graph.tensors().size();
  Layout layout;
  layout.places.resize(storages);

  // Lives within the stage, and which sides of it a storage is touched on.
  struct Touched {
    bool before = false, inside = false, after = false;
  };
  std::vector<Touched> forward(storages), backward(storages);
  const auto touch = [&](const Planner::Pass& pass, int node, int time,
                         std::vector<Touched>& touched) {
    for (const Tensor t : pass.tensors) {
      const auto s = static_cast<size_t>(graph.info(t).storage);
      (node < begin  ? touched[s].before
       : node >= end ? touched[s].after
                     : touched[s].inside) = true;
      if (node < begin || node >= end) continue;
      Layout::Place& place = layout.places[s];
      if (place.kind == Layout::Place::absent) {
        place = {Layout::Place::scratch, 0, align(graph.tensors()[s].bytes()), time, time};
      } else {
        place.first = std::min(place.first, time);
        place.last = std::max(place.last, time);
      }
    }
  };
  const int nodes = static_cast<int>(graph.nodes().size());
  for (int node = 0; node < nodes; ++node) {
    touch(uses.forward[static_cast<size_t>(node)], node, node - begin, forward);
    touch(uses.backward[static_cast<size_t>(node)], node, 2 * count - 1 - (node - begin), backward);
  }

  std::vector<Block> scratch;
  for (size_t s = 0; s < storages; ++s) {
    Layout::Place& place = layout.places[s];
    if (place.kind == Layout::Place::absent) continue;
    const Touched &f = forward[s], &b = backward[s];
    const int id = static_cast<int>(s);
    if (f.inside && f.before) layout.inputs.push_back(id);
    if (f.inside && f.after) layout.outputs.push_back(id);
    if (!f.inside && b.inside && b.before) layout.input_grads.push_back(id);
    if (!f.inside && b.inside && b.after) layout.output_grads.push_back(id);
    const bool crosses = f.before || f.after || b.before || b.after;
    if ((f.inside && b.inside) || crosses) {
      place.kind = Layout::Place::saved;
      place.offset = layout.saved_bytes;
      layout.saved_bytes += place.bytes;
    } else {
      scratch.push_back({place.bytes, place.first, place.last, &place.offset});
    }
  }

  layout.forward_workspace.resize(static_cast<size_t>(count));
  layout.backward_workspace.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto node = static_cast<size_t>(begin + i), at = static_cast<size_t>(i);
    if (const size_t bytes = align(uses.forward[node].workspace))
      scratch.push_back({bytes, i, i, &layout.forward_workspace[at]});
    const int time = 2 * count - 1 - i;
    if (const size_t bytes = align(uses.backward[node].workspace))
      scratch.push_back({bytes, time, time, &layout.backward_workspace[at]});
  }
  layout.scratch_bytes = pack(std::move(scratch));
  return layout;
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
  if (plan.compute_copy) row("16-bit copy of weights", plan.compute_copy);
  row("saved activations", plan.activations);
  row("scratch", plan.scratch);
  row("batches", plan.batches);
  row("peak", plan.peak());

  std::vector<size_t> largest;
  for (size_t s = 0; s < layout.places.size(); ++s)
    if (layout.places[s].kind != Layout::Place::absent) largest.push_back(s);
  std::stable_sort(largest.begin(), largest.end(), [&](size_t a, size_t b) {
    return layout.places[a].bytes > layout.places[b].bytes;
  });
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
