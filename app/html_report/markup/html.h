// HTML as text. What comes from outside (names of classes, paths, messages) goes through
// escape_html; everything else on a page is written by this program.
#pragma once
#include <string>
#include <string_view>

namespace bv {

// For an element's text and for an attribute in double quotes. Control characters and bytes that
// aren't UTF-8 become '?'.
std::string escape_html(std::string_view text);

// <tag attributes>content</tag>; attributes and content are HTML already.
std::string element(std::string_view tag, std::string_view attributes, std::string_view content);

}  // namespace bv
