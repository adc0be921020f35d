#include "engine/pipeline/model_part.h"

#include <algorithm>
#include <numeric>

namespace bv {

std::vector<Slice> PipelinePlan::own() const {
  std::vector<Slice> slices;
  for (int chunk = 0; cut() && chunk < shape.chunks; ++chunk)
    slices.push_back(parts[static_cast<size_t>(shape.part_of(grid.stage, chunk))]);
  return slices;
}

ModelPart::ModelPart(Backend& backend, const Graph& graph, const PipelinePlan& plan, Passes passes)
    : backend_(&backend),
      graph_(&graph),
      plan_(plan),
      tasks_(schedule(plan.shape, plan.grid.stage)),
      rounds_(rounds(plan.shape, plan.grid.stage)),
      slots_(slots(plan.shape, plan.grid.stage)) {
  std::vector<Slice> slices = plan.own();
  if (slices.empty()) slices = {{0, static_cast<int>(graph.nodes().size())}};
  for (size_t i = 0; i < slices.size(); ++i)
    chunks_.emplace_back(backend, graph, slices[i].begin, slices[i].end, slots_[i], passes);
}

size_t ModelPart::saved_bytes() const {
  return std::accumulate(chunks_.begin(), chunks_.end(), size_t{0},
                         [](size_t sum, const ModelChunk& s) { return sum + s.saved_bytes(); });
}

size_t ModelPart::scratch_bytes() const {
  return std::ranges::max_element(chunks_, {}, &ModelChunk::scratch_bytes)->scratch_bytes();
}

void ModelPart::allocate(size_t saved, size_t scratch) {
  saved_ = DeviceMemory(*backend_, std::max(saved, saved_bytes()));
  scratch_ = DeviceMemory(*backend_, std::max(scratch, scratch_bytes()));
  use(saved_.data(), scratch_.data());
}

void ModelPart::use(char* saved, char* scratch) {
  for (ModelChunk& chunk : chunks_) {
    chunk.use(saved, scratch);
    saved += chunk.saved_bytes();
  }
}

void ModelPart::profile(Profile* to) {
  for (ModelChunk& chunk : chunks_) chunk.profile(to);
}

// What crosses a border goes from slot to slot.
void ModelPart::exchange(const Round& round, StageLinks* links, InFlight& in_flight,
                         bool evaluating) const {
  for (int channel = 0; links && channel < links->channels(); ++channel) {
    std::vector<Transfer> transfers;
    std::vector<std::vector<size_t>*> slots;
    for (const Message& m : round) {
      if (links->channel_of(m.task.forward) != channel) continue;
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
    const size_t number = links->exchange(transfers, channel);
    for (std::vector<size_t>* slot : slots) slot->push_back(number);
  }
}

// Stream 0 goes on when nothing of the slot is on its way.
void ModelPart::wait_transfers(std::vector<size_t>& in_flight, StageLinks* links) {
  for (const size_t number : in_flight) links->wait(number);
  in_flight.clear();
}

ModelPart::InFlight ModelPart::none_in_flight() const {
  InFlight in_flight;
  for (const int count : slots_) in_flight.emplace_back(static_cast<size_t>(count));
  return in_flight;
}

void ModelPart::train(const Step& step, StageLinks* links) const {
  const auto is_forward = [](const Task& t) { return t.forward; };
  const auto last_forward = std::find_if(tasks_.rbegin(), tasks_.rend(), is_forward).base();
  InFlight in_flight = none_in_flight();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    exchange(rounds_[i], links, in_flight);
    const auto& [forward, chunk, micro] = tasks_[i];
    const ModelChunk& stage = this->chunk(chunk);
    const int slot = slot_of(micro, slots_[static_cast<size_t>(chunk)]);
    wait_transfers(in_flight[static_cast<size_t>(chunk)][static_cast<size_t>(slot)], links);
    const Context context = step.context(micro);
    const Trace::What what{
        .work = forward ? Work::forward : Work::backward, .chunk = chunk, .micro = micro};
    if (forward) {
      traced(trace_, nullptr, what, [&] { stage.forward(context, slot); });
      if (tasks_.begin() + static_cast<ptrdiff_t>(i) + 1 == last_forward) step.last_forward();
    } else {
      const bool last = micro + 1 == plan_.shape.micro_batches;
      traced(trace_, nullptr, what,
             [&] { stage.backward(context, slot, last ? step.final : nullptr); });
    }
  }
  exchange(rounds_.back(), links, in_flight);
  if (links) links->wait_for_all();
}

void ModelPart::evaluate(const Context& context, int micro, StageLinks* links) const {
  const auto& [shape, grid, parts] = plan_;
  InFlight in_flight = none_in_flight();
  const auto pass = [&](bool send, int chunk) {
    const int other = shape.part_of(grid.stage, chunk) + (send ? 1 : -1);
    if (other < 0 || other >= shape.parts()) return;
    exchange({{.send = send, .task = {true, chunk, micro}, .peer = other % shape.stages}}, links,
             in_flight, true);
  };
  for (int i = 0; i < shape.chunks; ++i) {
    pass(false, i);
    wait_transfers(in_flight[static_cast<size_t>(i)][0], links);
    chunk(i).forward(context, 0);
    pass(true, i);
  }
  if (links) links->wait_for_all();
}

}  // namespace bv
