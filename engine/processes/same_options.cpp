#include "engine/processes/same_options.h"

#include <sstream>
#include <string>

#include "engine/base/error.h"
#include "engine/options/config.h"

namespace bv {
namespace {

std::string of_rank_0(Communicator& hosts, std::string text) {
  uint64_t bytes = text.size();
  hosts.broadcast(&bytes, sizeof bytes, 0, nullptr);
  text.resize(bytes);
  hosts.broadcast(text.data(), bytes, 0, nullptr);
  return text;
}

// `"lr": 0.1` of `  "lr": 0.1,`
std::string trimmed(std::string line) {
  line.erase(0, line.find_first_not_of(' '));
  if (!line.empty() && line.back() == ',') line.pop_back();
  return line;
}

}  // namespace

void require_same_options(Communicator& hosts, const Options& options) {
  const std::string own = config_to_json(options);
  const std::string first = of_rank_0(hosts, own);
  std::istringstream mine(own), theirs(first);
  std::string a, b;
  while (own != first) {
    std::getline(mine, a);
    std::getline(theirs, b);
    if (a == b && mine && theirs) continue;
    throw UserError("rank " + std::to_string(hosts.rank()) + " was started with " + trimmed(a) +
                    ", rank 0 with " + trimmed(b) + "; start all with the same options");
  }
  hosts.barrier();  // whose options differ leaves before it, and the others see that
}

}  // namespace bv
