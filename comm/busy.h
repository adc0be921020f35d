// What may keep a rank from answering its peers for longer than usual.
#pragma once
#include <cstdint>

namespace bv {

enum class Busy : uint32_t { no, starting, saving };

}  // namespace bv
