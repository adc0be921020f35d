// Messages of a block's errors, which name threads and source lines.
#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "simt/device/block.h"

namespace simt {

std::string name(const Thread& t) {
  return "thread (" + std::to_string(t.index.x) + "," + std::to_string(t.index.y) + "," +
         std::to_string(t.index.z) + ")";
}

std::string at(Site site) {
  return std::string(" at ") + site.file_name() + ":" + std::to_string(site.line()) + ":" +
         std::to_string(site.column());
}

namespace {

std::string hex(uint32_t mask) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08" PRIx32, mask);
  return text;
}

// " for the lanes 0x0000ffff", unless they are all lanes.
std::string lanes(const Gate& gate) { return gate.whole ? "" : " for the lanes " + hex(gate.mask); }

// The threads that a gate waits for.
std::string awaited(const Gate& gate) {
  if (gate.mask) return gate.whole ? "all lanes of the warp" : "all these lanes";
  return gate.awaited == gate.size ? "all threads of the block"
                                   : std::to_string(gate.awaited) + " threads";
}

}  // namespace

void Block::describe(char (&text)[max_description], bool with_thread) const {
  const uint3 b = index_, t = running_->index;
  const int n = std::snprintf(text, sizeof text, "%.200s: block (%u,%u,%u)", launch_->name.c_str(),
                              b.x, b.y, b.z);
  if (with_thread) std::snprintf(text + n, sizeof text - n, ": thread (%u,%u,%u)", t.x, t.y, t.z);
}

bool Block::on_guard_page(const void* address) const {
  const char* low = running_->fiber.stack.low;
  return address < low && address >= low - guard_bytes;
}

// Every thread waits, and none can open a gate. Follows the first waiting thread to a thread it
// waits for, and so on, until one has returned or the chain is a cycle.
void Block::describe_hang() {
  if (beside_on_)
    if (error_ = beside_->hang(); !error_.empty()) return;
  const auto waits = [](const Thread& t) { return !t.returned; };
  const Thread* waiting = &*std::find_if(threads_.begin(), threads_.end(), waits);
  const Thread* missing = waiting;
  for (size_t step = 0; step < threads_.size() && waits(*missing); ++step) {
    waiting = missing;
    missing = &*std::find_if(threads_.begin(), threads_.end(), [&](const Thread& t) {
      return waiting->gate->awaits(t) && (t.returned || t.gate != waiting->gate);
    });
  }
  error_ = name(*waiting) + " waits" + at(waiting->site) + lanes(*waiting->gate) + ", but " +
           name(*missing) +
           (missing->returned ? " has ended: " + awaited(*waiting->gate) + " must reach it"
                              : " waits" + at(missing->site) + lanes(*missing->gate));
}

void Block::describe_two_sites(const Gate& gate, Site site) {
  error_ = name(*running_) + " waits" + at(site) + lanes(gate) + ", but " + name(*gate.earliest) +
           at(gate.earliest->site);
}

// The index of an array's element by its number: "[3][0]".
std::string Extents::index(size_t element) const {
  std::string text;
  for (unsigned i = rank; i-- > 0;) {
    text = "[" + std::to_string(i ? element % of[i] : element) + "]" + text;
    element /= std::max<size_t>(of[i], 1);
  }
  return text;
}

std::string Block::name_shared(uintptr_t address) const {
  const auto* const p = reinterpret_cast<const void*>(address);
  const auto offset = [=](const SharedMemory& memory) {
    return address - reinterpret_cast<uintptr_t>(memory.data());
  };
  for (const SharedVariable& v : variables_)
    if (v.used && v.memory.holds(p, 1))
      return v.name + v.extents.index(offset(v.memory) / v.extents.element_bytes);
  for (const SharedVariable& v : variables_)  // where it ends
    if (v.used && offset(v.memory) < v.memory.bytes() + 4096)
      return v.name + v.extents.index(offset(v.memory) / v.extents.element_bytes);
  if (shared_name_)
    return shared_name_ + shared_extents_.index(offset(shared_) / shared_extents_.element_bytes);
  return "byte " + std::to_string(offset(shared_)) + " of its shared memory";
}

std::string Block::overrun() const {
  if (std::string error = shared_.overrun(); !error.empty()) return error;
  for (const SharedVariable& v : variables_)
    if (v.used)
      if (const std::string error = v.memory.overrun(); !error.empty())
        return error + ": " + v.name + at(v.site);
  return {};
}

void Block::describe_wrong_mask(uint32_t mask, Site site) {
  describe_misuse("is not in its own mask, " + hex(mask) + ",", site);
}

void Block::describe_misuse(const std::string& what, Site site) {
  error_ = name(*running_) + " " + what + at(site);
}

}  // namespace simt
