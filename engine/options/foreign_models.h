// Names of models in timm and torchvision.
#pragma once
#include <string>

namespace bv {

// Advice for a model name like timm's "vit_large_patch32_384.orig_in21k": ": use vit_large
// --patch-size 32 --image-size 384; ...", or the nearest models. Empty if the name is unknown.
std::string advice_for_foreign_model(const std::string& name);

}  // namespace bv
