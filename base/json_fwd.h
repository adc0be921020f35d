// Json, for headers that only name it: the library's own header takes a second to compile.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace bv {

using Json = nlohmann::ordered_json;

}  // namespace bv
