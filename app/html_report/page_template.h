// page.html, embedded in the program.
#pragma once
#include <string_view>

namespace bv {

std::string_view page_template();

}  // namespace bv
