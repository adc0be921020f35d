#include "engine/options/weights_name.h"

#include <filesystem>

namespace bv {

bool names_public_weights(const std::string& given) {
  std::error_code error;
  return (given.starts_with("timm/") || given.starts_with("torchvision/")) &&
         !std::filesystem::is_regular_file(given, error);
}

}  // namespace bv
