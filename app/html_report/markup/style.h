// The look of a page, and the few lines of script that read values off its charts.
#pragma once
#include <string_view>

namespace bv {

extern const std::string_view page_style, page_script;

}  // namespace bv
