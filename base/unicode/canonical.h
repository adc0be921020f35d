// Canonical equivalence of texts in Unicode: an ü is one character (NFC) or a u with a mark (NFD,
// in which macOS writes file names), and both look the same.
#pragma once
#include <string>
#include <string_view>

namespace bv {

// The text's canonical decomposition (NFD). Two texts are equal in NFC if and only if they are
// equal in NFD, which needs no composing. Bytes that aren't UTF-8 stay as they are.
std::string canonical(std::string_view utf8);

// In lower case, in every alphabet; in ASCII alone if the system lacks the locale C.UTF-8.
std::string in_lower_case(std::string_view utf8);

// The same text for a shell such as bash, with escapes: $'Blu\u0308te'.
std::string in_escapes(std::string_view utf8);

}  // namespace bv
