// Nodes: pictures to images or patches, tokens in front of them and out again.
#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"
#include "models/graph/planner.h"

namespace bv {
namespace {

class InputPatchesNode : public Node {
 public:
  InputPatchesNode(Tensor out, const InputShape& shape, DType dtype)
      : Node("input", "input"), out_(out), shape_(shape), dtype_(dtype) {}

  void plan(Planner& p) const override { p.forward.uses({out_}); }
  void forward(const Context& r) const override {
    r.kernels->run(InputPatches{.out = r.at(out_),
                                .images = r.images,
                                .crops = r.crops,
                                .shape = shape_,
                                .dtype = dtype_},
                   r.stream);
  }
  void backward(const Context&) const override {}

 private:
  Tensor out_;
  InputShape shape_;
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
  void forward(const Context& r) const override {
    r.kernels->run(EmbedForward{.out = r.at(out_),
                                .patches = r.at(patches_),
                                .class_token = r.master(class_token_),
                                .position = r.master(position_),
                                .shape = {shape_.B, shape_.P, shape_.C},
                                .dtype = dtype_},
                   r.stream);
  }
  void backward(const Context& r) const override {
    r.kernels->run(EmbedBackward{.dpatches = r.grad(patches_),
                                 .dclass_token = r.dweight(class_token_),
                                 .dposition = r.dweight(position_),
                                 .dout = r.grad(out_),
                                 .shape = {shape_.B, shape_.P, shape_.C},
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
  ClassTokenNode(std::string name, Tensor out, Tensor inp, Shape shape, DType dtype)
      : Node(std::move(name), "class token"), out_(out), inp_(inp), shape_(shape), dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_)});
  }
  void forward(const Context& r) const override {
    r.kernels->run(ClassTokenForward{.out = r.at(out_),
                                     .inp = r.at(inp_),
                                     .shape = {shape_.B, shape_.N, shape_.C},
                                     .dtype = dtype_},
                   r.stream);
  }
  void backward(const Context& r) const override {
    r.kernels->run(ClassTokenBackward{.dinp = r.grad(inp_),
                                      .dout = r.grad(out_),
                                      .shape = {shape_.B, shape_.N, shape_.C},
                                      .dtype = dtype_},
                   r.stream);
  }

 private:
  Tensor out_, inp_;
  Shape shape_;
  DType dtype_;
};

}  // namespace

Tensor input_patches(Graph& g, const InputShape& s) {
  const int grid = s.size / s.patch;
  const Tensor out = g.tensor("patches", {s.B, grid * grid, 3 * s.patch * s.patch});
  g.add<InputPatchesNode>(out, s, g.dtype());
  return out;
}

// Patches of one pixel.
Tensor input_images(Graph& g, const InputShape& s) {
  InputShape pixels = s;
  pixels.patch = 1;
  const Tensor out = g.tensor("images", {s.B, s.size, s.size, 3});
  g.add<InputPatchesNode>(out, pixels, g.dtype());
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

Tensor take_class_token(Graph& g, const std::string& name, Tensor tokens) {
  const int B = dim(g, tokens, 0), N = dim(g, tokens, 1), C = dim(g, tokens, 2);
  const Tensor out = g.tensor(name, {B, C});
  g.grad(tokens);
  g.add<ClassTokenNode>(name, out, tokens, ClassTokenNode::Shape{B, N, C}, g.dtype());
  return out;
}

}  // namespace bv
