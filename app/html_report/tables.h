// A page's figures as plain tables, for browsers without scripts.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace bv {

// Escapes text for HTML; unprintable characters are replaced.
std::string escape_html(std::string_view text);

// runs: in the form that page.html reads.
std::string tables(const std::string& title, const Json& runs);

}  // namespace bv
