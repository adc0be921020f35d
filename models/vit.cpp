#include "models/vit.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "models/graph/nodes.h"

namespace bv {
Graph build_vit(const VitConfig& c, const GraphOptions& o, const InputShape& input, DType dtype) {
  if (c.distilled && o.representation_size > 0)
    throw std::logic_error("two heads and a layer before the head");
  Graph g(dtype);
  const int C = c.embed_dim, hidden = static_cast<int>(std::lround(C * c.mlp_ratio));
  const WeightInit init{Init::normal, .02f};
  // The patch embedding is a convolution without overlap. It is computed as a matrix product over
  // patches and initialised as PyTorch initialises a convolution.
  const auto patch_pixels = static_cast<float>(3 * input.patch * input.patch);
  const WeightInit conv_init{Init::uniform, 1 / std::sqrt(patch_pixels), Init::uniform};

  const Tensor patches = input_patches(g, input, o.augment_layers);
  const Tensor embedded = linear(g, "patch_embed.proj", patches,
                                 {.N = C,
                                  .init = conv_init,
                                  .input_grad = false,
                                  .weight_shape = {C, 3, input.patch, input.patch}});
  Tensor x = dropout(g, "pos_drop", embed_tokens(g, embedded, c.distilled), o.pos_drop_rate);
  Branch branch;  // the next layer norm adds it to x

  for (int i = 0; i < c.depth; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const float drop_path =
        c.depth > 1 ? o.drop_path_rate * static_cast<float>(i) / static_cast<float>(c.depth - 1)
                    : 0;
    g.cut_here();

    // From the last attention on, only the tokens that the classifier heads read are computed.
    const int queries = i + 1 < c.depth ? 0 : c.distilled ? 2 : 1;
    auto [x1, normed1] = layernorm(g, block + "norm1", x, branch, c.layer_norm_eps, queries);
    const Tensor qkv = linear(g, block + "attn.qkv", normed1, {.N = 3 * C, .init = init});
    const Tensor mixed = attention(g, block + "attn", qkv, c.heads, o.attn_drop_rate, queries);
    const LinearOut proj = linear(g, block + "attn.proj", mixed, {.N = C, .init = init});
    branch = {proj, o.proj_drop_rate, drop_path};

    auto [x2, normed2] = layernorm(g, block + "norm2", x1, branch, c.layer_norm_eps);
    const LinearInput act =
        linear_gelu(g, block + "mlp.fc1", normed2, hidden, init, o.proj_drop_rate);
    const LinearOut fc2 = linear(g, block + "mlp.fc2", act, {.N = C, .init = init});
    branch = {fc2, o.proj_drop_rate, drop_path};
    x = x2;
  }

  LinearInput token = layernorm(g, "norm", x, branch, c.layer_norm_eps).out;
  if (o.drop_rate > 0) token = dropout(g, "head_drop", token.out, o.drop_rate);
  g.head_here();
  const LinearOptions head{.N = o.classes, .init = init};
  if (c.distilled) {
    const auto [class_token, dist_token] = split_tokens(g, "head tokens", token.out);
    const Tensor logits = linear(g, "head", class_token, head);
    distilled_cross_entropy(g, logits, linear(g, "head_dist", dist_token, head), o.label_smoothing);
  } else {
    if (o.representation_size > 0) {
      const Tensor fc =
          linear(g, "pre_logits.fc", token, {.N = o.representation_size, .init = init});
      token = tanh(g, "pre_logits.act", fc);
    }
    cross_entropy(g, linear(g, "head", token, head), o.label_smoothing);
  }
  g.finish();
  return g;
}

namespace {

std::any read(JsonReader& json) {
  const VitConfig c{.embed_dim = json.whole("embed_dim", 65536),
                    .depth = json.whole("depth", 1024),
                    .heads = json.whole("heads", 1024),
                    .mlp_ratio = static_cast<float>(json.number("mlp_ratio", 0.01, 100)),
                    .layer_norm_eps = static_cast<float>(json.number("layer_norm_eps", 1e-12, 1)),
                    .distilled = json.flag("distilled")};
  if (c.embed_dim % c.heads != 0) json.fail("embed_dim", "is not divisible by 'heads'");
  return c;
}

const VitConfig& config(const std::any& sizes) { return std::any_cast<const VitConfig&>(sizes); }

void check(const std::any& sizes, const GraphOptions& o, const std::string& model, int) {
  if (config(sizes).distilled && o.representation_size > 0)
    throw UserError(
        "--representation-size: " + model +
        " has two heads, each of which reads its own token; this option needs a model with one");
}

std::vector<std::string> heads(const std::any& sizes) {
  if (config(sizes).distilled) return {"head", "head_dist"};
  return {"head"};
}

constexpr Refused refused[] = {{"sync_bn", "batch norm"}, {"zero_init_last", "batch norm"}};

Graph build(const std::any& sizes, const GraphOptions& o, const InputShape& input, DType dtype) {
  return build_vit(config(sizes), o, input, dtype);
}

}  // namespace

extern constinit const ModelFamily vit_family{.name = "vit",
                                              .patches = true,
                                              .refused = refused,
                                              .read = read,
                                              .check = check,
                                              .heads = heads,
                                              .build = build};

}  // namespace bv
