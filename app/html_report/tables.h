// A page's figures as plain tables, for browsers without scripts.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace bv {

// Text as HTML; what can't be printed is replaced.
std::string escape_html(std::string_view text);

// runs: as page.html takes them.
std::string tables(const std::string& title, const Json& runs);

}  // namespace bv
