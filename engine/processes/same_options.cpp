#include "engine/processes/same_options.h"

#include <sstream>
#include <string>

#include "engine/base/error.h"
#include "engine/options/config.h"

namespace bv {
namespace {

std::string of_rank_0(Communicator& host_comm, std::string text) {
  uint64_t bytes = text.size();
  host_comm.broadcast(&bytes, sizeof bytes, 0, nullptr);
  text.resize(bytes);
  host_comm.broadcast(text.data(), bytes, 0, nullptr);
  return text;
}

// `"lr": 0.1` of `  "lr": 0.1,`
std::string trimmed(std::string line) {
  line.erase(0, line.find_first_not_of(' '));
  if (!line.empty() && line.back() == ',') line.pop_back();
  return line;
}

}  // namespace

void require_same_options(Communicator& host_comm, const Options& options) {
  const std::string own = config_to_json(options);
  const std::string first = of_rank_0(host_comm, own);
  std::istringstream mine(own), theirs(first);
  std::string a, b;
  while (own != first) {
    std::getline(mine, a);
    std::getline(theirs, b);
    if (a == b && mine && theirs) continue;
    throw UserError("rank " + std::to_string(host_comm.rank()) + " was started with " + trimmed(a) +
                    ", rank 0 with " + trimmed(b) + "; start all with the same options");
  }
  host_comm.barrier();  // a rank that differs has left before this, and the others notice
}

}  // namespace bv
