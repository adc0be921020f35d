// Which ranks run on which machine.
#include <algorithm>
#include <map>
#include <utility>

#include "comm/processes/world.h"

namespace bv {

std::string World::name_of(int of_rank) const {
  const std::string text = "rank " + std::to_string(of_rank);
  if (size_t(of_rank) >= seats.size()) return text;
  const NodePlacement& seat = seats[size_t(of_rank)];
  return text + " (node " + std::to_string(seat.node) + ", " + seat.machine + ")";
}

void number_nodes(std::vector<NodePlacement>& seats) {
  std::map<std::pair<int, std::string>, int> numbers;
  for (NodePlacement& seat : seats) {
    const auto key = std::pair(seat.node, seat.node < 0 ? seat.machine : "");
    seat.node = numbers.emplace(key, static_cast<int>(numbers.size())).first->second;
  }
}

std::vector<int> ranks_of_node(const std::vector<NodePlacement>& seats, int rank) {
  std::vector<int> ranks;
  for (size_t r = 0; r < seats.size(); ++r)
    if (seats[r].node == seats[size_t(rank)].node) ranks.push_back(static_cast<int>(r));
  return ranks;
}

std::vector<int> ranks_across(const std::vector<NodePlacement>& seats, int rank) {
  const std::vector<int> own = ranks_of_node(seats, rank);
  const auto place = std::ranges::find(own, rank) - own.begin();
  std::vector<int> across;
  for (size_t r = 0; r < seats.size(); ++r) {
    const std::vector<int> node = ranks_of_node(seats, static_cast<int>(r));
    if (node.size() != own.size()) return {};
    if (node[size_t(place)] == static_cast<int>(r)) across.push_back(static_cast<int>(r));
  }
  return across;
}

std::string list_of_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const size_t first = i;
    while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[first]) +
            (i > first ? "-" + std::to_string(ranks[i]) : "");
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string list_of_nodes(const std::vector<NodePlacement>& seats) {
  std::string text;
  for (size_t r = 0; r < seats.size(); ++r) {
    const std::vector<int> node = ranks_of_node(seats, static_cast<int>(r));
    if (node[0] != static_cast<int>(r)) continue;
    text += (text.empty() ? "" : ", ") + seats[r].machine + " " + list_of_ranks(node);
  }
  return text;
}

}  // namespace bv
