#include "comm/connect/handshake.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/files/checksum.h"
#if BAREVISION_SODIUM
#include <sodium.h>
#endif

namespace bv {
namespace {

Preamble preamble_of(const World& world) {
  Preamble preamble{.has_secret = !world.secret.empty()};
  if (getrandom(preamble.nonce.data(), preamble.nonce.size(), 0) != ssize_t(preamble.nonce.size()))
    throw RunError(std::string("no random numbers: ") + std::strerror(errno));
  return preamble;
}

Digest proof(const World& world, char role, const Handshake& handshake, const Nonce& of_rank0) {
  Digest digest{};
  if (world.secret.empty()) return digest;
#if BAREVISION_SODIUM
  static_assert(crypto_auth_hmacsha256_BYTES == sizeof(Digest));
  crypto_auth_hmacsha256_state state;
  const auto add = [&](const void* data, size_t bytes) {
    crypto_auth_hmacsha256_update(&state, static_cast<const unsigned char*>(data), bytes);
  };
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(world.secret.data()),
                              world.secret.size());
  add(&role, sizeof role);
  add(&handshake, sizeof handshake);
  add(&of_rank0, sizeof of_rank0);
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(digest.data()));
#else
  (void)role, (void)handshake, (void)of_rank0;
  throw UserError(
      "BAREVISION_SECRET is set, but this program was built without libsodium, which is needed to "
      "prove it; install libsodium-dev and run make again");
#endif
  return digest;
}

}  // namespace

Shape shape_of(const World& world) {
  return {world.nodes, world.least_nodes, world.local_size, world.max_restarts};
}

// Leaves out rank 0's address, since the nodes may know that machine by different names.
uint32_t job_of(const World& world) {
  const std::string name = (world.launched ? std::to_string(world.port) : world.master) +
                           (world.launchers ? " launchers" : "");
  return crc32c(std::as_bytes(std::span(name)));
}

Handshake handshake_of(const World& world) {
  Handshake handshake{.preamble = preamble_of(world),
                      .rank = world.rank,
                      .size = world.size,
                      .job = job_of(world),
                      .node = world.node,
                      .shape = shape_of(world)};
  world.machine.copy(handshake.machine.data(), handshake.machine.size() - 1);
  return handshake;
}

Challenge challenge_of(const World& world, const Handshake& handshake) {
  const Preamble preamble = preamble_of(world);
  return {.preamble = preamble, .proof = proof_of_rank0(world, handshake, preamble.nonce)};
}

Digest proof_of_rank0(const World& world, const Handshake& handshake, const Nonce& of_rank0) {
  return proof(world, '0', handshake, of_rank0);
}
Digest proof_of_peer(const World& world, const Handshake& handshake, const Nonce& of_rank0) {
  return proof(world, 'p', handshake, of_rank0);
}

bool equal(const Digest& a, const Digest& b) {
  std::byte differs{};
  for (size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
  return differs == std::byte{};
}

}  // namespace bv
