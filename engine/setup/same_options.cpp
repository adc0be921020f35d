#include "engine/setup/same_options.h"

#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "engine/options/config.h"
#include "engine/options/version.h"

namespace bv {
namespace {

// `"lr": 0.1` of `  "lr": 0.1,`
std::string trimmed(std::string line) {
  line.erase(0, line.find_first_not_of(' '));
  if (!line.empty() && line.back() == ',') line.pop_back();
  return line;
}

std::string text_of_rank(Communicator& hosts, std::string text, int rank) {
  constexpr uint64_t max_bytes = 64 << 20;  // more than any list of classes
  uint64_t bytes = text.size();
  hosts.broadcast(&bytes, sizeof bytes, rank, nullptr);
  if (bytes > max_bytes) throw RunError("rank " + std::to_string(rank) + " sent invalid options");
  text.resize(bytes);
  hosts.broadcast(text.data(), bytes, rank, nullptr);
  return text;
}

}  // namespace

// Every rank finds the first rank that differs, so all report the same.
void require_same_options(Communicator& hosts, const Options& options, const StartFacts& facts,
                          const World& world) {
  const std::string version = version_text();
  const std::string own = "\"version\": " + version.substr(0, version.find('\n')) + "\n" +
                          config_to_json(options) +
                          "\"fingerprint of the data\": " + std::to_string(facts.data) +
                          "\n\"resumed after step\": " + std::to_string(facts.resumed_step) + "\n";
  const std::string first = text_of_rank(hosts, own, 0);
  if (hosts.all_reduce_scalar(own == first ? 0 : 1) == 0) return;
  for (int rank = 1; rank < hosts.size(); ++rank) {
    const std::string other = text_of_rank(hosts, own, rank);
    std::istringstream theirs(other), rank0s(first);
    std::string a, b;
    while (std::getline(theirs, a) && std::getline(rank0s, b))
      if (a != b)
        throw UserError(world.name_of(rank) + " was started with " + printable(trimmed(a)) +
                        ", rank 0 with " + printable(trimmed(b)) +
                        "; start all with the same options");
  }
}

}  // namespace bv
