#include "comm/single_communicator.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "comm/transfers.h"
#include "kernels/cpu/stream.h"

namespace bv {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator() : Communicator(0, 1) {}
  void all_reduce(float*, size_t, Stream) override {}
  void all_reduce(double*, size_t, Stream) override {}
  void all_gather(float*, size_t, Stream) override {}
  void broadcast(void*, size_t, int, Stream) override {}
  void reduce_scatter(float*, size_t, Stream) override {}
  void exchange(std::span<const Transfer> transfers, Stream stream) override {
    require_peers(transfers, 1);
    std::vector<Transfer> sends, receives;
    for (const Transfer& t : transfers) (t.send ? sends : receives).push_back(t);
    const auto same = [](const Transfer& a, const Transfer& b) { return a.bytes == b.bytes; };
    if (!std::equal(sends.begin(), sends.end(), receives.begin(), receives.end(), same))
      throw std::invalid_argument("exchange: the only rank's sends don't match its receives");
    run_on(stream, [sends, receives] {
      for (size_t i = 0; i < sends.size(); ++i)
        if (sends[i].bytes > 0) std::memmove(receives[i].data, sends[i].data, sends[i].bytes);
    });
  }
  std::unique_ptr<Communicator> group(std::span<const int> ranks) override {
    if (ranks.size() != 1 || ranks[0] != 0)
      throw std::invalid_argument("group: this rank is alone");
    return std::make_unique<SingleCommunicator>();
  }
  void barrier() override {}
  void busy(Busy) override {}
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() {
  return std::make_unique<SingleCommunicator>();
}

}  // namespace bv
