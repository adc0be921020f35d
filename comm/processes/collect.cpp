#include "comm/processes/collect.h"

#include <cstring>

namespace bv {
namespace {

void send(Backend& backend, Communicator& communicator, const void* data, size_t bytes) {
  if (bytes == 0) return;
  const DeviceMemory memory(backend, bytes);
  backend.to_device(memory.data(), data, bytes, nullptr);
  communicator.exchange(std::vector{Transfer{memory.data(), bytes, 0, true}}, nullptr);
  backend.synchronize(nullptr);
}

// Receives from all other ranks at once: from rank r all[r].size() bytes.
void receive(Backend& backend, Communicator& communicator, std::span<std::vector<std::byte>> all) {
  size_t bytes = 0;
  for (const auto& one : all.subspan(1)) bytes += one.size();
  if (bytes == 0) return;
  const DeviceMemory memory(backend, bytes);
  std::vector<Transfer> transfers;
  char* at = memory.data();
  for (size_t rank = 1; rank < all.size(); at += all[rank++].size())
    if (!all[rank].empty()) transfers.push_back({at, all[rank].size(), int(rank), false});
  communicator.exchange(transfers, nullptr);
  for (const Transfer& t : transfers)
    backend.to_host(all[size_t(t.peer)].data(), t.data, t.bytes, nullptr);
  backend.synchronize(nullptr);
}

}  // namespace

std::vector<std::vector<std::byte>> collect(std::span<const std::byte> own, Backend& backend,
                                            Communicator* communicator) {
  if (communicator && communicator->rank() > 0) {
    const size_t bytes = own.size();
    send(backend, *communicator, &bytes, sizeof bytes);
    send(backend, *communicator, own.data(), bytes);
    return {};
  }
  std::vector<std::vector<std::byte>> all(communicator ? size_t(communicator->size()) : 1);
  all[0].assign(own.begin(), own.end());
  if (!communicator) return all;
  for (auto& one : std::span(all).subspan(1)) one.resize(sizeof(size_t));
  receive(backend, *communicator, all);
  for (auto& one : std::span(all).subspan(1)) {
    size_t bytes = 0;
    std::memcpy(&bytes, one.data(), sizeof bytes);
    one.resize(bytes);
  }
  receive(backend, *communicator, all);
  return all;
}

}  // namespace bv
