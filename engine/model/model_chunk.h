// A slice of a graph's nodes with its memory: the whole model or a part of it. Saved tensors have a
// copy per slot (micro-batch in flight); all slots share scratch memory, unless they run together,
// node by node.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "engine/model/plan.h"
#include "engine/model/profile.h"
#include "kernels/backend.h"

namespace bv {

class ModelChunk {
 public:
  // The constructor only plans; allocate() allocates the memory.
  ModelChunk(Backend&, const Graph&, int begin, int end, int slots, Passes = Passes::both,
             bool together = false);
  void allocate();
  // Instead of allocate(): uses memory of saved_bytes() and scratch_bytes(), which other chunks
  // may use while this one doesn't run.
  void use(char* saved, char* scratch);
  const Graph& graph() const { return *graph_; }
  const Layout& layout() const { return layout_; }
  size_t saved_bytes() const { return slot_bytes() * static_cast<size_t>(slots_); }
  size_t scratch_bytes() const { return together_ ? 0 : layout_.scratch_bytes; }

  // `run` holds parameters and batch; tensor addresses and workspace are filled in here.
  void forward(const Context& run, int slot) const;
  // `ready(n)` is called after each node: gradients [0, n) of the arena are final.
  void backward(const Context& run, int slot, const std::function<void(size_t)>& ready = {}) const;
  // All slots together, with one Context per slot.
  void forward(std::span<const Context> runs) const;
  void backward(std::span<const Context> runs, const std::function<void(size_t)>& ready) const;
  // A storage's address, for sending or reading its contents. Null if it isn't in this chunk.
  char* place(int slot, int storage) const {
    return places_[static_cast<size_t>(slot)][static_cast<size_t>(storage)];
  }
  char* place(int slot, Tensor t) const { return place(slot, graph_->info(t).storage); }
  void profile(Profile* to) { profile_ = to; }  // a section per kind of node

 private:
  size_t slot_bytes() const {
    return layout_.saved_bytes + (together_ ? layout_.scratch_bytes : 0);
  }
  Context bound(Context, int slot) const;
  std::vector<Context> bound(std::span<const Context>) const;
  // `runs` are bound to their slots; each node runs for all of them before the next node.
  void run_forward(std::span<Context>, int begin, int end) const;
  void run_backward(std::span<Context>, const std::function<void(size_t)>& ready) const;

  Backend* backend_;
  const Graph* graph_;
  int begin_, end_, slots_;
  bool together_;
  Layout layout_;
  DeviceMemory saved_, scratch_;
  std::vector<char*> scratch_of_;           // by slot; owned or not
  std::vector<std::vector<char*>> places_;  // by slot, by storage
  Profile* profile_ = nullptr;
};

}  // namespace bv
