#include "engine/nodes.h"

#include <numeric>

#include "engine/plan.h"

namespace bv {
namespace {

int64_t rows_of(const TensorInfo& t) {
  return std::accumulate(t.shape.begin(), t.shape.end() - 1, int64_t{1}, std::multiplies<>());
}
std::vector<int64_t> with_last(std::vector<int64_t> shape, int64_t last) {
  shape.back() = last;
  return shape;
}
uint32_t layer_number(const Graph& graph) { return static_cast<uint32_t>(graph.nodes().size()); }

class InputPatchesNode : public Node {
 public:
  InputPatchesNode(Tensor out, const InputShape& shape, DType dtype)
      : Node("input", "input"), out_(out), shape_(shape), dtype_(dtype) {}

  void plan(Planner& p) const override { p.forward.uses({out_}); }
  void forward(const Run& r) const override {
    const InputShape& s = shape_;
    r.kernels->run(InputPatches{.out = r.at(out_),
                                .images = r.images,
                                .crops = r.crops,
                                .B = s.batch,
                                .height = s.height,
                                .width = s.width,
                                .size = s.size,
                                .patch = s.patch,
                                .mean = {s.mean[0], s.mean[1], s.mean[2]},
                                .std = {s.std[0], s.std[1], s.std[2]},
                                .dtype = dtype_},
                   r.stream);
  }
  void backward(const Run&) const override {}

 private:
  Tensor out_;
  InputShape shape_;
  DType dtype_;
};

class LinearNode : public Node {
 public:
  struct Shape {
    int M, N, K;
  };
  LinearNode(std::string name, Tensor out, Tensor inp, Parameter weight, Parameter bias,
             Shape shape, DType dtype, bool input_grad)
      : Node(std::move(name), "linear"),
        out_(out),
        inp_(inp),
        weight_(weight),
        bias_(bias),
        shape_(shape),
        dtype_(dtype),
        input_grad_(input_grad) {}

  void plan(Planner& p) const override {
    const Run blank = p.blank();
    p.forward.uses({out_, inp_}).needs(p.kernels().workspace_bytes(forward_op(blank)));
    p.backward.uses({p.grad(out_), inp_});
    // Both forms: the first micro-step of an update writes gradients, later ones add.
    for (const bool accumulate : {false, true}) {
      Run run = blank;
      run.accumulate = accumulate;
      p.backward.needs(p.kernels().workspace_bytes(weight_op(run)));
    }
    if (input_grad_)
      p.backward.uses({p.grad(inp_)}).needs(p.kernels().workspace_bytes(input_op(blank)));
  }
  void forward(const Run& r) const override { r.kernels->run(forward_op(r), r.stream); }
  void backward(const Run& r) const override {
    r.kernels->run(weight_op(r), r.stream);
    if (input_grad_) r.kernels->run(input_op(r), r.stream);
  }

 private:
  LinearForward forward_op(const Run& r) const {
    return {.out = r.at(out_),
            .workspace = r.workspace,
            .inp = r.at(inp_),
            .weight = r.weight(weight_),
            .bias = r.weight(bias_),
            .M = shape_.M,
            .N = shape_.N,
            .K = shape_.K,
            .dtype = dtype_};
  }
  LinearBackwardWeight weight_op(const Run& r) const {
    return {.dweight = r.dweight(weight_),
            .dbias = r.dweight(bias_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .inp = r.at(inp_),
            .M = shape_.M,
            .N = shape_.N,
            .K = shape_.K,
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }
  LinearBackwardInput input_op(const Run& r) const {
    return {.dinp = r.grad(inp_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .weight = r.weight(weight_),
            .M = shape_.M,
            .N = shape_.N,
            .K = shape_.K,
            .dtype = dtype_};
  }

  Tensor out_, inp_;
  Parameter weight_, bias_;
  Shape shape_;
  DType dtype_;
  bool input_grad_;
};

class BiasGeluNode : public Node {
 public:
  BiasGeluNode(std::string name, Tensor out, Tensor inp, Parameter bias, int rows, int C,
               DType dtype)
      : Node(std::move(name), "gelu"),
        out_(out),
        inp_(inp),
        bias_(bias),
        rows_(rows),
        C_(C),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_), inp_})
        .needs(p.kernels().workspace_bytes(backward_op(p.blank())));
  }
  void forward(const Run& r) const override {
    r.kernels->run(BiasGeluForward{.out = r.at(out_),
                                   .inp = r.at(inp_),
                                   .bias = r.weight(bias_),
                                   .rows = rows_,
                                   .C = C_,
                                   .dtype = dtype_},
                   r.stream);
  }
  void backward(const Run& r) const override { r.kernels->run(backward_op(r), r.stream); }

 private:
  BiasGeluBackward backward_op(const Run& r) const {
    return {.dinp = r.grad(inp_),
            .dbias = r.dweight(bias_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .inp = r.at(inp_),
            .bias = r.weight(bias_),
            .rows = rows_,
            .C = C_,
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }

  Tensor out_, inp_;
  Parameter bias_;
  int rows_, C_;
  DType dtype_;
};

class LayerNormNode : public Node {
 public:
  struct Tensors {
    Tensor out, sum, mean, rstd, inp, residual;
  };
  LayerNormNode(std::string name, const Tensors& t, Parameter weight, Parameter bias, int rows,
                int C, float eps, DType dtype)
      : Node(std::move(name), "layernorm"),
        t_(t),
        weight_(weight),
        bias_(bias),
        rows_(rows),
        C_(C),
        eps_(eps),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({t_.out, t_.sum, t_.mean, t_.rstd, t_.inp, t_.residual});
    // The gradient of sum is there only where a later node reads sum.
    p.backward.uses({p.grad(t_.out), p.grad(t_.sum), p.grad(t_.inp), t_.sum, t_.mean, t_.rstd});
    p.backward.needs(p.kernels().workspace_bytes(backward_op(p.blank())));
  }
  void forward(const Run& r) const override {
    r.kernels->run(LayerNormForward{.out = r.at(t_.out),
                                    .sum = t_.residual ? r.at(t_.sum) : nullptr,
                                    .mean = r.floats(t_.mean),
                                    .rstd = r.floats(t_.rstd),
                                    .inp = r.at(t_.inp),
                                    .residual = t_.residual ? r.at(t_.residual) : nullptr,
                                    .weight = r.master(weight_),
                                    .bias = r.master(bias_),
                                    .rows = rows_,
                                    .C = C_,
                                    .eps = eps_,
                                    .dtype = dtype_},
                   r.stream);
  }
  void backward(const Run& r) const override { r.kernels->run(backward_op(r), r.stream); }

 private:
  LayerNormBackward backward_op(const Run& r) const {
    return {.dinp = r.grad(t_.inp),
            .dweight = r.dweight(weight_),
            .dbias = r.dweight(bias_),
            .workspace = r.workspace,
            .dout = r.grad(t_.out),
            .dsum = r.grad(t_.sum),
            .sum = r.at(t_.sum),
            .mean = r.floats(t_.mean),
            .rstd = r.floats(t_.rstd),
            .weight = r.master(weight_),
            .rows = rows_,
            .C = C_,
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }

  Tensors t_;
  Parameter weight_, bias_;
  int rows_, C_;
  float eps_;
  DType dtype_;
};

class AttentionNode : public Node {
 public:
  struct Shape {
    int B, N, H, D;
  };
  AttentionNode(std::string name, Tensor out, Tensor lse, Tensor qkv, Shape shape, uint32_t layer,
                float drop, DType dtype)
      : Node(std::move(name), "attention"),
        out_(out),
        lse_(lse),
        qkv_(qkv),
        shape_(shape),
        layer_(layer),
        drop_(drop),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    const Run blank = p.blank();
    p.forward.uses({out_, lse_, qkv_}).needs(p.kernels().workspace_bytes(forward_op(blank)));
    p.backward.uses({p.grad(out_), p.grad(qkv_), out_, lse_, qkv_})
        .needs(p.kernels().workspace_bytes(backward_op(blank)));
  }
  void forward(const Run& r) const override { r.kernels->run(forward_op(r), r.stream); }
  void backward(const Run& r) const override { r.kernels->run(backward_op(r), r.stream); }

 private:
  AttentionForward forward_op(const Run& r) const {
    return {.out = r.at(out_),
            .lse = r.floats(lse_),
            .workspace = r.workspace,
            .qkv = r.at(qkv_),
            .params = r.params,
            .B = shape_.B,
            .N = shape_.N,
            .H = shape_.H,
            .D = shape_.D,
            .layer = layer_,
            .drop = r.training ? drop_ : 0,
            .dtype = dtype_};
  }
  AttentionBackward backward_op(const Run& r) const {
    return {.dqkv = r.grad(qkv_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .qkv = r.at(qkv_),
            .out = r.at(out_),
            .lse = r.floats(lse_),
            .params = r.params,
            .B = shape_.B,
            .N = shape_.N,
            .H = shape_.H,
            .D = shape_.D,
            .layer = layer_,
            .drop = drop_,
            .dtype = dtype_};
  }

  Tensor out_, lse_, qkv_;
  Shape shape_;
  uint32_t layer_;
  float drop_;
  DType dtype_;
};

class EmbedNode : public Node {
 public:
  struct Shape {
    int B, P, C;
  };
  EmbedNode(Tensor out, Tensor patches, Parameter class_token, Parameter position, Shape shape,
            DType dtype)
      : Node("embed", "embed"),
        out_(out),
        patches_(patches),
        class_token_(class_token),
        position_(position),
        shape_(shape),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, patches_});
    p.backward.uses({p.grad(out_), p.grad(patches_)});
  }
  void forward(const Run& r) const override {
    r.kernels->run(EmbedForward{.out = r.at(out_),
                                .patches = r.at(patches_),
                                .class_token = r.master(class_token_),
                                .position = r.master(position_),
                                .B = shape_.B,
                                .P = shape_.P,
                                .C = shape_.C,
                                .dtype = dtype_},
                   r.stream);
  }
  void backward(const Run& r) const override {
    r.kernels->run(EmbedBackward{.dpatches = r.grad(patches_),
                                 .dclass_token = r.dweight(class_token_),
                                 .dposition = r.dweight(position_),
                                 .dout = r.grad(out_),
                                 .B = shape_.B,
                                 .P = shape_.P,
                                 .C = shape_.C,
                                 .dtype = dtype_,
                                 .accumulate = r.accumulate},
                   r.stream);
  }

 private:
  Tensor out_, patches_;
  Parameter class_token_, position_;
  Shape shape_;
  DType dtype_;
};

class ClassTokenNode : public Node {
 public:
  struct Shape {
    int B, N, C;
  };
  ClassTokenNode(Tensor out, Tensor inp, Shape shape, DType dtype)
      : Node("class token", "class token"), out_(out), inp_(inp), shape_(shape), dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_)});
  }
  void forward(const Run& r) const override {
    r.kernels->run(ClassTokenForward{.out = r.at(out_),
                                     .inp = r.at(inp_),
                                     .B = shape_.B,
                                     .N = shape_.N,
                                     .C = shape_.C,
                                     .dtype = dtype_},
                   r.stream);
  }
  void backward(const Run& r) const override {
    r.kernels->run(ClassTokenBackward{.dinp = r.grad(inp_),
                                      .dout = r.grad(out_),
                                      .B = shape_.B,
                                      .N = shape_.N,
                                      .C = shape_.C,
                                      .dtype = dtype_},
                   r.stream);
  }

 private:
  Tensor out_, inp_;
  Shape shape_;
  DType dtype_;
};

// Forward in place; backward into another buffer, since the gradient that it reads may be shared.
class DropoutNode : public Node {
 public:
  struct Shape {
    int B, elements, group;
  };
  DropoutNode(std::string name, Tensor out, Tensor inp, Shape shape, uint32_t layer, float drop,
              DType dtype)
      : Node(std::move(name), "dropout"),
        out_(out),
        inp_(inp),
        shape_(shape),
        layer_(layer),
        drop_(drop),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_)});
  }
  void forward(const Run& r) const override {
    if (r.training) r.kernels->run(op(r, r.at(out_), r.at(inp_)), r.stream);
  }
  void backward(const Run& r) const override {
    r.kernels->run(op(r, r.grad(inp_), r.grad(out_)), r.stream);
  }

 private:
  Dropout op(const Run& r, void* out, const void* inp) const {
    return {.out = out,
            .inp = inp,
            .params = r.params,
            .B = shape_.B,
            .elements = shape_.elements,
            .group = shape_.group,
            .layer = layer_,
            .drop = drop_,
            .dtype = dtype_};
  }

  Tensor out_, inp_;
  Shape shape_;
  uint32_t layer_;
  float drop_;
  DType dtype_;
};

class CrossEntropyNode : public Node {
 public:
  CrossEntropyNode(Tensor loss, Tensor lse, Tensor logits, int B, int K, float smoothing,
                   DType dtype)
      : Node("loss", "loss"),
        loss_(loss),
        lse_(lse),
        logits_(logits),
        B_(B),
        K_(K),
        smoothing_(smoothing),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({loss_, lse_, logits_});
    p.backward.uses({loss_, lse_, logits_, p.grad(logits_)});
  }
  void forward(const Run& r) const override {
    // Evaluation reports the loss without smoothing.
    r.kernels->run(CrossEntropyForward{.loss = r.floats(loss_),
                                       .lse = r.floats(lse_),
                                       .logits = r.at(logits_),
                                       .labels = r.labels,
                                       .targets = nullptr,
                                       .B = B_,
                                       .K = K_,
                                       .smoothing = r.training ? smoothing_ : 0,
                                       .dtype = dtype_},
                   r.stream);
    if (r.sums)
      r.kernels->run(Metrics{.sums = r.sums,
                             .loss = r.floats(loss_),
                             .logits = r.at(logits_),
                             .labels = r.labels,
                             .B = B_,
                             .K = K_,
                             .dtype = dtype_},
                     r.stream);
  }
  void backward(const Run& r) const override {
    r.kernels->run(CrossEntropyBackward{.dlogits = r.grad(logits_),
                                        .logits = r.at(logits_),
                                        .lse = r.floats(lse_),
                                        .labels = r.labels,
                                        .targets = nullptr,
                                        .params = r.params,
                                        .state = r.state,
                                        .B = B_,
                                        .K = K_,
                                        .smoothing = smoothing_,
                                        .dtype = dtype_},
                   r.stream);
    r.kernels->run(GradientTail{.tail = r.tail(),
                                .loss = r.floats(loss_),
                                .params = r.params,
                                .B = B_,
                                .accumulate = r.accumulate},
                   r.stream);
  }

 private:
  Tensor loss_, lse_, logits_;
  int B_, K_;
  float smoothing_;
  DType dtype_;
};

int dim(const Graph& g, Tensor t, size_t i) { return static_cast<int>(g.info(t).shape[i]); }

}  // namespace

Tensor input_patches(Graph& g, const InputShape& s) {
  const int grid = s.size / s.patch;
  const Tensor out = g.tensor("patches", {s.batch, grid * grid, 3 * s.patch * s.patch});
  g.add<InputPatchesNode>(out, s, g.dtype());
  return out;
}

Tensor linear(Graph& g, const std::string& name, Tensor inp, const LinearOptions& o) {
  const TensorInfo& from = g.info(inp);
  const int K = static_cast<int>(from.shape.back());
  const LinearNode::Shape shape{static_cast<int>(rows_of(from)), o.N, K};
  const Tensor out = g.tensor(name, with_last(from.shape, o.N));
  const Parameter weight = g.parameter(
      name + ".weight", o.weight_shape.empty() ? std::vector<int64_t>{o.N, K} : o.weight_shape,
      o.init.init, o.init.scale, true);
  const Parameter bias =
      o.bias ? g.parameter(name + ".bias", {o.N}, o.init.bias_init, o.init.scale, false)
             : Parameter{};
  if (o.input_grad) g.grad(inp);
  g.add<LinearNode>(name, out, inp, weight, bias, shape, g.dtype(), o.input_grad);
  return out;
}

Tensor linear_gelu(Graph& g, const std::string& name, Tensor inp, int N, WeightInit init) {
  const Tensor h = linear(g, name, inp, {.N = N, .init = init, .bias = false});
  const Parameter bias = g.parameter(name + ".bias", {N}, init.bias_init, init.scale, false);
  const Tensor out = g.tensor(name + " gelu", g.info(h).shape);
  g.share_grad(h, out);  // backward works in place
  g.add<BiasGeluNode>(name + " gelu", out, h, bias, static_cast<int>(rows_of(g.info(h))), N,
                      g.dtype());
  return out;
}

NormOut layernorm(Graph& g, const std::string& name, Tensor inp, Tensor residual, float eps) {
  const std::vector<int64_t> shape = g.info(inp).shape;
  const int C = static_cast<int>(shape.back()), rows = static_cast<int>(rows_of(g.info(inp)));
  LayerNormNode::Tensors t{
      .out = g.tensor(name, shape),
      .sum = residual ? g.tensor(name + " sum", shape) : g.same_memory(inp, name + " input"),
      .mean = g.tensor(name + " mean", {rows}, DType::fp32),
      .rstd = g.tensor(name + " rstd", {rows}, DType::fp32),
      .inp = inp,
      .residual = residual};
  g.grad(inp);
  if (residual) g.share_grad(inp, residual);
  const Parameter weight = g.parameter(name + ".weight", {C}, Init::ones, 0, false);
  const Parameter bias = g.parameter(name + ".bias", {C}, Init::zeros, 0, false);
  g.add<LayerNormNode>(name, t, weight, bias, rows, C, eps, g.dtype());
  return {t.sum, t.out};
}

Tensor attention(Graph& g, const std::string& name, Tensor qkv, int heads, float drop) {
  const int B = dim(g, qkv, 0), N = dim(g, qkv, 1), C = dim(g, qkv, 2) / 3;
  const Tensor out = g.tensor(name, {B, N, C});
  const Tensor lse = g.tensor(name + " lse", {B, heads, N}, DType::fp32);
  g.grad(qkv);
  g.add<AttentionNode>(name, out, lse, qkv, AttentionNode::Shape{B, N, heads, C / heads},
                       layer_number(g), drop, g.dtype());
  return out;
}

Tensor embed_tokens(Graph& g, Tensor patches) {
  const int B = dim(g, patches, 0), P = dim(g, patches, 1), C = dim(g, patches, 2);
  const Tensor out = g.tensor("embed", {B, 1 + P, C});
  const Parameter class_token = g.parameter("cls_token", {1, 1, C}, Init::normal, 1e-6f, false);
  const Parameter position = g.parameter("pos_embed", {1, 1 + P, C}, Init::normal, .02f, false);
  g.grad(patches);
  g.add<EmbedNode>(out, patches, class_token, position, EmbedNode::Shape{B, P, C}, g.dtype());
  return out;
}

Tensor take_class_token(Graph& g, Tensor tokens) {
  const int B = dim(g, tokens, 0), N = dim(g, tokens, 1), C = dim(g, tokens, 2);
  const Tensor out = g.tensor("class token", {B, C});
  g.grad(tokens);
  g.add<ClassTokenNode>(out, tokens, ClassTokenNode::Shape{B, N, C}, g.dtype());
  return out;
}

Tensor dropout(Graph& g, const std::string& name, Tensor inp, float drop, bool whole_images) {
  if (drop <= 0) return inp;
  const int B = dim(g, inp, 0);
  const int elements = static_cast<int>(rows_of(g.info(inp)) / B * g.info(inp).shape.back());
  const Tensor out = g.same_memory(inp, name);
  g.grad(inp);
  g.add<DropoutNode>(name, out, inp, DropoutNode::Shape{B, elements, whole_images ? elements : 1},
                     layer_number(g), drop, g.dtype());
  return out;
}

Tensor cross_entropy(Graph& g, Tensor logits, float smoothing) {
  const int B = dim(g, logits, 0), K = dim(g, logits, 1);
  const Tensor loss = g.tensor("loss", {B}, DType::fp32),
               lse = g.tensor("loss lse", {B}, DType::fp32);
  g.grad(logits);
  g.add<CrossEntropyNode>(loss, lse, logits, B, K, smoothing, g.dtype());
  return loss;
}

}  // namespace bv
