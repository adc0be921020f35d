// A family of models: the sizes in models/NAME.json, and the graph built from them. A new family is
// one file that defines its ModelFamily and its name in models/families.cpp.
#pragma once
#include <any>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/graph.h"

namespace bv {

class JsonReader;

// The choices of a run, not of the model's file. A family reads those that it supports.
struct GraphOptions {
  int classes = 0;
  int representation_size = 0;  // features of a layer with tanh before the head; 0: there is none
  // As in timm: dropout of the head's input; of the tokens with their positions; after
  // attention's projection and both layers of the MLP; of the attention probabilities; of whole
  // branches (stochastic depth), rising linearly from 0 to this over the blocks.
  float drop_rate = 0, pos_drop_rate = 0, proj_drop_rate = 0, attn_drop_rate = 0;
  float drop_path_rate = 0;
  float label_smoothing = 0;
  bool zero_init_last = false;  // each block's last batch norm starts at 0 (Goyal et al. 2017)
  int parts = 1;                // processes over which the batch norms compute their statistics
  int augment_layers = 0;       // ImageOps of each training image
};

// An option that a family doesn't support, and the missing feature.
struct Refused {
  std::string_view option, lacks;
};

struct ModelFamily {
  std::string_view name;    // "family" in models/NAME.json
  bool patches = false;     // its files have "patch_size"
  bool batch_norm = false;  // it has running statistics
  std::span<const Refused> refused;

  std::any (*read)(JsonReader&);  // reads the sizes, in the family's own type
  // Throws UserError naming the model if it can't be built like this.
  void (*check)(const std::any& sizes, const GraphOptions&, const std::string& model,
                int image_size);
  // The linear layers whose outputs are the classes; the number of classes is the first one's.
  std::vector<std::string> (*heads)(const std::any& sizes);
  Graph (*build)(const std::any& sizes, const GraphOptions&, const InputShape&, DType);
};

std::span<const ModelFamily* const> families();
const ModelFamily* find_family(std::string_view name);  // null if there is none

}  // namespace bv
