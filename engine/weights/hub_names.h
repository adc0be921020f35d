// Weights as others name them: hf-hub:timm/NAME, an address, NAME alone, a folder of huggingface.
#pragma once
#include <string>

namespace bv {

// For weights that aren't there: the name that they have here, or what to do, as the end of a
// message ("; did you mean timm/NAME? ..."). May be empty.
std::string advice_for_weights(const std::string& given);

// The file of weights in a folder as huggingface's libraries save it; empty: there is none.
std::string weights_file_in(const std::string& folder);

}  // namespace bv
