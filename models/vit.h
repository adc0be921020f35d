// Vision Transformer (Dosovitskiy et al. 2020), as timm's vit_*_patch16_224: class token, learned
// position embedding, pre-norm blocks, qkv bias, exact GELU, LayerNorm eps 1e-6. `distilled`: with
// a distillation token; each of the two has a head (Touvron et al. 2021), as deit_*_distilled.
#pragma once
#include "models/family.h"

namespace bv {

struct VitConfig {
  int embed_dim, depth, heads;
  float mlp_ratio = 4;
  float layer_norm_eps = 1e-6f;
  bool distilled = false;
};

Graph build_vit(const VitConfig&, const GraphOptions&, const InputShape&, DType);

}  // namespace bv
