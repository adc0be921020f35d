#include "engine/setup/starting_weights.h"

#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "engine/files/checkpoint.h"
#include "engine/options/weights_name.h"
#include "engine/weights/hub_names.h"
#include "engine/weights/model_tensors.h"
#include "engine/weights/weights_cache.h"

namespace bv {
namespace {

// --weights takes a file: given a run's or a checkpoint's folder, the error names the files in it.
void refuse_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error) || !weights_file_in(path).empty()) return;
  std::vector<std::string> files;
  for (const char* file : {"best/ema.safetensors", "best/weights.safetensors",
                           "last/weights.safetensors", "weights.safetensors"})
    if (fs::exists(fs::path(path) / file, error)) files.push_back(fs::path(path) / file);
  throw UserError("--weights " + path + ": a folder; give a file" +
                  (files.empty() ? ", .safetensors" : ": " + join(files, " or ")));
}

std::string layer_before_head(int features) {
  return (features ? "a layer of " + std::to_string(features) + " features" : "no layer") +
         " before the head";
}

constexpr const char* or_random = "; --weights none starts from random ones";

}  // namespace

std::pair<TensorFile, WeightsInfo> read_starting_weights(const Options& o,
                                                         const ModelConfig& model) {
  if (o.weights.empty() || (!o.resume.empty() && has_checkpoint(o.out))) return {};
  if (!names_public_weights(o.weights)) refuse_folder(split_key(o.weights).path);
  const bool from_recipe = o.source("weights") == Source::named_recipe;
  std::error_code error;
  if (from_recipe && !names_public_weights(o.weights) &&
      !std::filesystem::exists(split_key(o.weights).path, error))
    throw UserError("the recipe's weights, " + o.weights + ", aren't here; ./launcher recipes " +
                    o.recipe + " says where they are from" + or_random);
  const auto tensors = [&] {
    return parameter_shapes(model, {.image_size = o.image_size.value_or(0),
                                    .patch_size = o.patch_size.value_or(0),
                                    .representation_size = o.representation_size});
  };
  TensorFile file = read_weights_file(o.weights, tensors, from_recipe ? or_random : "");
  WeightsInfo info = weights_info(file, o.weights);
  if (info.model && *info.model != model.name)
    throw UserError(o.weights + ": weights of " + *info.model + ", not of " + model.name);
  const std::optional<int> patch = info.patch_size;
  if (patch && o.patch_size && *patch != *o.patch_size)
    throw UserError(o.weights + ": weights for patches of " + std::to_string(*patch) +
                    " pixels, this run has " + std::to_string(*o.patch_size) +
                    "; give --patch-size " + std::to_string(*patch));
  const int there = representation_size(file), here = o.representation_size;
  if (there != here)
    throw UserError(o.weights + ": weights with " + layer_before_head(there) + ", this run has " +
                    layer_before_head(here) + "; " +
                    (there ? "give --representation-size " + std::to_string(there)
                           : "leave out --representation-size"));
  return {std::move(file), std::move(info)};
}

}  // namespace bv
