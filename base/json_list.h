// Lists in JSON.
#pragma once
#include <string>
#include <string_view>

namespace bv {

// [a,b]; `text_of`: an item in JSON.
template <class Items, class TextOf>
std::string json_list(const Items& items, const TextOf& text_of, std::string_view between = ",") {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += between;
    text += text_of(item);
  }
  return text + "]";
}

}  // namespace bv
