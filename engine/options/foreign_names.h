// Names of options in timm, torchvision's reference scripts and other programs.
#pragma once
#include <string>
#include <string_view>

namespace bv {

// Advice for a user who typed `flag`, an option of one of these programs ("--batch-size"): ": use
// --batch". Empty if the option is unknown.
std::string advice_for_foreign(std::string_view flag);

// The same for a value of --auto-augment, like timm's "rand-m9-mstd0.5": " (use ra, ...)".
std::string advice_for_foreign_policy(std::string_view policy);

}  // namespace bv
