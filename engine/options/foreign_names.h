// What options are called elsewhere: in timm's train.py and torchvision's reference scripts.
#pragma once
#include <string>
#include <string_view>

namespace bv {

// What to type instead of the option `flag` ("--batch-size") of those programs: ": here it is
// --batch". Empty if the flag isn't known from there.
std::string advice_for_foreign(std::string_view flag);

}  // namespace bv
