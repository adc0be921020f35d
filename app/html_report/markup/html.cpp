#include "app/html_report/markup/html.h"

#include "base/text.h"

namespace bv {

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : printable(text, text.npos)) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (c == '\'')
      result += "&#39;";
    else
      result += c;
  }
  return result;
}

std::string element(std::string_view tag, std::string_view attributes, std::string_view content) {
  std::string text = "<" + std::string(tag);
  if (!attributes.empty()) text += " " + std::string(attributes);
  return text + ">" + std::string(content) + "</" + std::string(tag) + ">";
}

}  // namespace bv
