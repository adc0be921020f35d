// A family of models: the sizes in models/NAME.json, and the graph built from them. A new family is
// one source file that defines its ModelFamily, and an entry in models/families.cpp.
#pragma once
#include <any>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/graph.h"

namespace bv {

class JsonReader;

// Choices of a run, not of the model's JSON file. A family reads those that it supports.
struct GraphOptions {
  int classes = 0;
  int representation_size = 0;  // features of a layer with tanh before the head; 0: there is none
  // Dropout rates as in timm, in this order: the head's input; the tokens after the position
  // embedding; attention's projection and both layers of the MLP; the attention probabilities;
  // whole branches (stochastic depth), rising linearly from 0 to this rate over the blocks.
  float drop_rate = 0, pos_drop_rate = 0, proj_drop_rate = 0, attn_drop_rate = 0;
  float drop_path_rate = 0;
  float label_smoothing = 0;
  bool zero_init_last = false;  // each block's last batch norm starts at 0 (Goyal et al. 2017)
  int parts = 1;                // processes or shards over which batch norm computes statistics
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

  std::any (*read)(JsonReader&);  // reads the sizes into the family's own config type
  // Throws UserError naming the model if it can't be built with these options.
  void (*check)(const std::any& sizes, const GraphOptions&, const std::string& model,
                int image_size);
  // Names of the linear layers that output class logits; the first one's size is the class count.
  std::vector<std::string> (*heads)(const std::any& sizes);
  Graph (*build)(const std::any& sizes, const GraphOptions&, const InputShape&, DType);
};

std::span<const ModelFamily* const> families();
const ModelFamily* find_family(std::string_view name);  // null if there is none

}  // namespace bv
