// Text for a reader that may be slow, stuck (Ctrl-S, a pager) or gone; training never waits for it.
#pragma once
#include <memory>
#include <string_view>

namespace bv {

class Output {
 public:
  explicit Output(int fd);  // the caller keeps ownership
  // Waits up to two seconds until the rest is written.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  // Queues the text for a thread that writes it. The text is dropped if the reader is a megabyte
  // behind or gone, or the disk is full.
  void print(std::string_view text);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the writing thread, which may hang forever
};

}  // namespace bv
