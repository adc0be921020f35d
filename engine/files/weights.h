// Loads a weights file into a model's parameters as timm does, even if the image size or the number
// of classes differs. Tensors that don't fit are listed in an error, never guessed.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/files/names/weight_names.h"
#include "engine/files/safetensors.h"
#include "engine/options/choices.h"

namespace bv {

// Metadata of a weights file; files from other programs may lack any of it.
struct WeightsInfo {
  std::optional<std::string> model;
  std::optional<int> image_size, patch_size;
  std::vector<std::string> classes;
  std::optional<std::array<double, 3>> mean, std;
  // How an image is cropped and resized for evaluation.
  std::optional<CropMode> crop_mode;
  std::optional<Interpolation> interpolation;
  std::optional<double> crop_pct;
};
// Throws UserError on malformed metadata.
WeightsInfo weights_info(const TensorFile&, const std::string& path);
// The metadata as this program writes it.
std::map<std::string, std::string> weights_metadata(const WeightsInfo&);

// Features of the layer before a ViT's head; 0: no such layer.
int representation_size(const TensorFile&);

struct FitResult {
  Tensors tensors;                 // one per parameter, except those in `fresh`
  std::vector<std::string> fresh;  // heads to initialise: the number of classes differs
  std::string note;  // "weights: FILE, 150 of 152 tensors, new head (1000 classes there, 5 here)"
};
// `heads`: names of the classifier ("head.weight", "head.bias"). "pos_embed" [1, 1 + G*G, C] (2 +
// G*G with a "dist_token") is resized like timm's resample_abs_pos_embed if the grid differs.
// The prefix that most of the model's names have is removed; what has no prefix and is not the
// model's is left out, and the note names it. Throws UserError listing the tensors that are
// missing, extra, of a different shape, not finite or stored as integers.
FitResult fit_weights(TensorFile file, const std::string& path,
                      const std::vector<ParameterShape>& parameters,
                      const std::vector<std::string>& heads);

}  // namespace bv
