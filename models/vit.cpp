#include "models/vit.h"

#include <cmath>
#include <string>

namespace bv {

Vit build_vit(const VitConfig& c, const InputShape& input, DType dtype) {
  Graph g(dtype);
  const int C = c.embed_dim, hidden = static_cast<int>(std::lround(C * c.mlp_ratio));
  const WeightInit init{Init::normal, .02f};
  // The patch embedding is a convolution without overlap, so a matrix product over patches,
  // initialised like a convolution in PyTorch.
  const auto patch_pixels = static_cast<float>(3 * input.patch * input.patch);
  const WeightInit conv_init{Init::uniform, 1 / std::sqrt(patch_pixels), Init::uniform};

  const Tensor patches = input_patches(g, input, c.augment_layers);
  const Tensor embedded = linear(g, "patch_embed.proj", patches,
                                 {.N = C,
                                  .init = conv_init,
                                  .input_grad = false,
                                  .weight_shape = {C, 3, input.patch, input.patch}});
  Tensor x = dropout(g, "pos_drop", embed_tokens(g, embedded), c.pos_drop_rate, false);
  Tensor branch;  // what the next layer norm adds to x

  for (int i = 0; i < c.depth; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const float drop_path =
        c.depth > 1 ? c.drop_path_rate * static_cast<float>(i) / static_cast<float>(c.depth - 1)
                    : 0;
    g.cut_here();

    auto [x1, normed1] = layernorm(g, block + "norm1", x, branch, c.layer_norm_eps);
    const Tensor qkv = linear(g, block + "attn.qkv", normed1, {.N = 3 * C, .init = init});
    Tensor mixed = attention(g, block + "attn", qkv, c.heads, c.attn_drop_rate);
    Tensor stream = x1;
    if (i + 1 == c.depth) {  // after the last attention, only the class token is read
      mixed = take_class_token(g, block + "attn class token", mixed);
      stream = take_class_token(g, block + "class token", stream);
    }
    branch = linear(g, block + "attn.proj", mixed, {.N = C, .init = init});
    branch = dropout(g, block + "attn.proj_drop", branch, c.proj_drop_rate, false);
    branch = dropout(g, block + "drop_path1", branch, drop_path, true);

    auto [x2, normed2] = layernorm(g, block + "norm2", stream, branch, c.layer_norm_eps);
    Tensor act = linear_gelu(g, block + "mlp.fc1", normed2, hidden, init);
    act = dropout(g, block + "mlp.drop1", act, c.proj_drop_rate, false);
    branch = linear(g, block + "mlp.fc2", act, {.N = C, .init = init});
    branch = dropout(g, block + "mlp.drop2", branch, c.proj_drop_rate, false);
    branch = dropout(g, block + "drop_path2", branch, drop_path, true);
    x = x2;
  }

  const Tensor normed = layernorm(g, "norm", x, branch, c.layer_norm_eps).out;
  const Tensor token = dropout(g, "head_drop", normed, c.drop_rate, false);
  const Tensor logits = linear(g, "head", token, {.N = c.classes, .init = init});
  const Tensor loss = cross_entropy(g, logits, c.label_smoothing);
  g.finish();
  return {std::move(g), logits, loss};
}

}  // namespace bv
