// Vision Transformer (Dosovitskiy et al. 2020), as timm's vit_*_patch16_224: class token, learned
// position embedding, pre-norm blocks, qkv bias, exact GELU, LayerNorm eps 1e-6. `distilled`: with
// a distillation token and a head for each of the two (Touvron et al. 2021), as deit_*_distilled.
#pragma once
#include "models/graph/nodes.h"

namespace bv {

struct VitConfig {
  int embed_dim, depth, heads;
  float mlp_ratio = 4;
  float layer_norm_eps = 1e-6f;
  int classes;
  bool distilled = false;
  int representation_size = 0;  // features of a layer with tanh before the head; 0: there is none
  // As in timm: dropout of the class token before the head; of the tokens with their positions;
  // after attention's projection and both layers of the MLP; of the attention probabilities; of
  // whole branches (stochastic depth), rising linearly from 0 to this over the blocks.
  float drop_rate = 0, pos_drop_rate = 0, proj_drop_rate = 0, attn_drop_rate = 0;
  float drop_path_rate = 0;
  float label_smoothing = 0;
  int augment_layers = 0;  // ImageOps of each training image
};

struct Vit {
  Graph graph;
  Tensor logits, loss;
};
Vit build_vit(const VitConfig&, const InputShape&, DType);

}  // namespace bv
