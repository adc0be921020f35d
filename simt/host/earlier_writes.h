// The writes of a kernel, hidden from the beginning of the dependent kernel behind it: that one
// may run before the former has ended, up to its griddepcontrol.wait. They stay visible if the
// device's memory is large, since all of it is copied and compared.
#pragma once
#include <cstdint>
#include <vector>

namespace simt::host {

class EarlierWrites {
 public:
  static bool are_kept();
  EarlierWrites();   // before the former runs: copies the device's memory
  void has_ended();  // keeps what it has changed
  // False: memory is as before the former kernel, but for what a block has written since.
  void show(bool visible);

 private:
  struct Piece {
    unsigned char* at;
    std::vector<unsigned char> other;  // hidden: as written; visible: as it was before
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
