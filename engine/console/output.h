// Text for a reader who may be slow, stuck (Ctrl-S, a pager) or gone: training never waits for it.
#pragma once
#include <memory>
#include <string_view>

namespace bv {

class Output {
 public:
  explicit Output(int fd);  // stays the caller's
  // Gives the reader two seconds to take what is left.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  // Hands the text to a thread that writes it. It is dropped for a reader who is a megabyte behind,
  // or gone, and for a full disk.
  void print(std::string_view text);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the writing thread's too, which may be stuck forever
};

}  // namespace bv
