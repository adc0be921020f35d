#include "engine/pipeline/pipelined_model.h"

#include <algorithm>
#include <numeric>

namespace bv {

std::vector<Slice> PipelinePlan::own() const {
  std::vector<Slice> slices;
  for (int chunk = 0; cut() && chunk < shape.chunks; ++chunk)
    slices.push_back(parts[static_cast<size_t>(shape.part_of(grid.stage, chunk))]);
  return slices;
}

PipelinedModel::PipelinedModel(Backend& backend, const Graph& graph, const PipelinePlan& plan,
                               Passes passes, StageLinks* links)
    : backend_(&backend),
      graph_(&graph),
      plan_(plan),
      links_(links),
      tasks_(schedule(plan.shape, plan.grid.stage)),
      rounds_(rounds(plan.shape, plan.grid.stage)),
      slots_(slots(plan.shape, plan.grid.stage)) {
  const std::vector<Slice> slices = plan.own();
  for (size_t i = 0; i < slices.size(); ++i)
    chunks_.emplace_back(backend, graph, slices[i].begin, slices[i].end, slots_[i], passes);
}

size_t PipelinedModel::saved_bytes() const {
  return std::accumulate(chunks_.begin(), chunks_.end(), size_t{0},
                         [](size_t sum, const ModelChunk& s) { return sum + s.saved_bytes(); });
}

size_t PipelinedModel::scratch_bytes() const {
  return std::ranges::max_element(chunks_, {}, &ModelChunk::scratch_bytes)->scratch_bytes();
}

void PipelinedModel::use(char* saved, char* scratch) {
  for (ModelChunk& chunk : chunks_) {
    chunk.use(saved, scratch);
    saved += chunk.saved_bytes();
  }
}

void PipelinedModel::profile(Profile* to) {
  for (ModelChunk& chunk : chunks_) chunk.profile(to);
  if (links_) links_->profile(to);
}

void PipelinedModel::trace(Trace* to) {
  trace_ = to;
  if (links_) links_->trace(to);
}

// Stages without a loss write the gradients' tail, too: it carries the request to stop.
void PipelinedModel::share_batch(const Feed& feed, const Context& first) {
  const Grid& grid = plan_.grid;
  if (links_ && (grid.first() || grid.last())) {
    const std::span<char> targets = feed.targets();
    const Transfer transfer{.data = targets.data(),
                            .bytes = targets.size(),
                            .peer = grid.first() ? grid.stages - 1 : 0,
                            .send = grid.first()};
    const size_t number = links_->exchange({&transfer, 1}, links_->channel_of(true));
    if (grid.last()) links_->wait(number);
  }
  if (first.training && !computes_loss())
    backend_->kernels().run(GradientTail{.tail = first.grads + graph_->arena_count(),
                                         .params = first.params,
                                         .B = 1,
                                         .accumulate = first.accumulate},
                            nullptr);
}

// Starts a round's transfers between the slots of this stage and its peers.
void PipelinedModel::exchange(const Round& round, InFlight& in_flight, bool evaluating) {
  for (int channel = 0; links_ && channel < links_->channels(); ++channel) {
    std::vector<Transfer> transfers;
    std::vector<std::vector<size_t>*> slots;
    for (const Message& m : round) {
      if (links_->channel_of(m.task.forward) != channel) continue;
      const auto chunk = static_cast<size_t>(m.task.chunk);
      const Layout& layout = chunks_[chunk].layout();
      const std::vector<int>& storages = m.task.forward
                                             ? (m.send ? layout.outputs : layout.inputs)
                                             : (m.send ? layout.input_grads : layout.output_grads);
      const int slot = evaluating ? 0 : slot_of(m.task.micro, slots_[chunk]);
      for (const int s : storages)
        transfers.push_back({.data = chunks_[chunk].place(slot, s),
                             .bytes = graph_->tensors()[static_cast<size_t>(s)].bytes(),
                             .peer = m.peer,
                             .send = m.send});
      slots.push_back(&in_flight[chunk][static_cast<size_t>(slot)]);
    }
    if (transfers.empty()) continue;
    const size_t number = links_->exchange(transfers, channel);
    for (std::vector<size_t>* slot : slots) slot->push_back(number);
  }
}

// Makes stream 0 wait for all transfers of the slot.
void PipelinedModel::wait_transfers(std::vector<size_t>& in_flight) {
  for (const size_t number : in_flight) links_->wait(number);
  in_flight.clear();
}

PipelinedModel::InFlight PipelinedModel::none_in_flight() const {
  InFlight in_flight;
  for (const int count : slots_) in_flight.emplace_back(static_cast<size_t>(count));
  return in_flight;
}

void PipelinedModel::train(std::span<const Context> micro_batches,
                           const BackwardCallbacks& callbacks) {
  const auto is_forward = [](const Task& t) { return t.forward; };
  const auto last_forward = std::find_if(tasks_.rbegin(), tasks_.rend(), is_forward).base();
  InFlight in_flight = none_in_flight();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    exchange(rounds_[i], in_flight);
    const auto& [forward, chunk, micro] = tasks_[i];
    const ModelChunk& own = this->chunk(chunk);
    const int slot = slot_of(micro, slots_[static_cast<size_t>(chunk)]);
    wait_transfers(in_flight[static_cast<size_t>(chunk)][static_cast<size_t>(slot)]);
    const Context& context = micro_batches[static_cast<size_t>(micro)];
    const Trace::What what{
        .work = forward ? Work::forward : Work::backward, .chunk = chunk, .micro = micro};
    if (forward) {
      traced(trace_, nullptr, what, [&] { own.forward(context, slot); });
      const bool last = tasks_.begin() + static_cast<ptrdiff_t>(i) + 1 == last_forward;
      if (last && callbacks.begins) callbacks.begins();
    } else {
      const bool last = micro + 1 == plan_.shape.micro_batches;
      traced(trace_, nullptr, what,
             [&] { own.backward(context, slot, last ? callbacks.ready : nullptr); });
    }
  }
  exchange(rounds_.back(), in_flight);
  if (links_) links_->wait_for_all();
}

void PipelinedModel::evaluate(const Context& context, int micro) {
  const auto& [shape, grid, parts] = plan_;
  InFlight in_flight = none_in_flight();
  const auto pass = [&](bool send, int chunk) {
    const int other = shape.part_of(grid.stage, chunk) + (send ? 1 : -1);
    if (other < 0 || other >= shape.parts()) return;
    exchange({{.send = send, .task = {true, chunk, micro}, .peer = other % shape.stages}},
             in_flight, true);
  };
  for (int i = 0; i < shape.chunks; ++i) {
    pass(false, i);
    wait_transfers(in_flight[static_cast<size_t>(i)][0]);
    chunk(i).forward(context, 0);
    pass(true, i);
  }
  if (links_) links_->wait_for_all();
}

}  // namespace bv
