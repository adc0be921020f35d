// A kernel's writes, hidden from the dependent kernel behind it until the dependent kernel's
// griddepcontrol.wait: on a GPU, the code up to there may run before the first kernel has ended.
// The writes stay visible if more than 64 MiB of device memory are allocated, as all of it is
// copied and compared.
#pragma once
#include <cstdint>
#include <vector>

namespace simt::host {

class EarlierWrites {
 public:
  static bool are_kept();
  EarlierWrites();   // before the first kernel runs: copies the device's memory
  void has_ended();  // after it has run: keeps its changes
  // False: memory is as before the first kernel, except for what blocks have written since.
  void show(bool visible);

 private:
  struct Piece {
    unsigned char* at;
    std::vector<unsigned char> other;  // while hidden: the new bytes; while visible: the old ones
  };
  struct Copy {
    unsigned char* at;
    std::vector<unsigned char> bytes;
  };
  std::vector<Copy> copies_;
  std::vector<Piece> pieces_;
  bool visible_ = true;
};

}  // namespace simt::host
