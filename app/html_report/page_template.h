// page.html, which the program carries.
#pragma once
#include <string_view>

namespace bv {

std::string_view page_template();

}  // namespace bv
