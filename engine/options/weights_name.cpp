#include "engine/options/weights_name.h"

#include <filesystem>

namespace bv {

KeyedPath split_key(const std::string& given) {
  std::error_code error;
  if (!std::filesystem::exists(given, error))
    for (size_t at = given.rfind(':'); at != given.npos && at > 0; at = given.rfind(':', at - 1))
      if (const std::string path = given.substr(0, at); std::filesystem::exists(path, error))
        return {.path = path, .key = given.substr(at + 1)};
  return {.path = given, .key = ""};
}

bool names_public_weights(const std::string& given) {
  std::error_code error;
  return (given.starts_with("timm/") || given.starts_with("torchvision/")) &&
         !std::filesystem::is_regular_file(split_key(given).path, error);
}

}  // namespace bv
