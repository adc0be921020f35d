// The first messages between two processes of a run: a Handshake from the connecting process, rank
// 0's Challenge, then the connecting process's Proof. The first two begin with bytes that no other
// protocol sends. With BAREVISION_SECRET in the environment, each side proves that it knows the
// secret by an HMAC over both sides' random numbers. Later bytes are neither encrypted nor signed.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "comm/processes/world.h"

namespace bv {

using Nonce = std::array<std::byte, 16>;
using Digest = std::array<std::byte, 32>;

// Head of Handshake and Challenge. Integers are little-endian, as on all supported machines.
struct Preamble {
  static constexpr std::array<char, 8> our_magic{'b', 'a', 'r', 'e', 'v', 'i', 's', '\n'};
  static constexpr uint32_t our_version = 5;
  std::array<char, 8> magic = our_magic;
  uint32_t version = our_version;
  uint32_t has_secret = 0;
  Nonce nonce{};
  bool is_ours() const { return magic == our_magic; }
};

// Must be the same on all nodes; fields as in World.
struct Shape {
  int32_t nodes = 0, least_nodes = 0, local_size = 0, max_restarts = 0;
  bool operator==(const Shape&) const = default;
};

struct Handshake {
  Preamble preamble;
  int32_t rank = 0, size = 0;
  uint32_t job = 0;
  int32_t node = 0;
  Shape shape;
  std::array<char, 64> machine{};  // its name, padded with zeros
};
struct Challenge {
  Preamble preamble;
  Digest proof{};  // zeros without a secret
};
struct Proof {
  Digest proof{};
};

Shape shape_of(const World&);
uint32_t job_of(const World&);  // a checksum of the job's name
Handshake handshake_of(const World&);
Challenge challenge_of(const World&, const Handshake&);
// The proof that each side must send: an HMAC-SHA-256, keyed by World::secret, over its role, the
// Handshake and rank 0's nonce. Zeros without a secret.
Digest proof_of_rank0(const World&, const Handshake&, const Nonce& of_rank0);
Digest proof_of_peer(const World&, const Handshake&, const Nonce& of_rank0);
bool equal(const Digest&, const Digest&);  // in constant time

}  // namespace bv
