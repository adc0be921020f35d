#include "kernels/cpu/conv_onednn.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/onednn.h"

namespace bv {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

Type type_of(const Convolution& c) { return c.dtype == DType::bf16 ? Type::bf16 : Type::f32; }
Type weight_type_of(const Convolution& c) {
  return c.result == Convolution::Result::dweight ? Type::f32 : type_of(c);
}

dnnl::memory::desc weights(const ConvShape& s, Type type, Tag plain, Tag grouped) {
  if (s.groups == 1) return {{s.K, s.C, s.R, s.S}, type, plain};
  return {{s.groups, s.K / s.groups, s.C / s.groups, s.R, s.S}, type, grouped};
}

// In bf16, oneDNN 2.6 reads one channel past the end of inp and adds it, times 0, to out.
bool reads_past_the_end(const Convolution& c) {
  return c.result == Convolution::Result::out && c.dtype == DType::bf16 && c.shape.C > 256 &&
         c.shape.C % 2 != 0;
}

struct Description {
  dnnl::primitive primitive;
  dnnl::memory::desc inp, weight, out, scratch;
};

// The only code in this file that differs between oneDNN 2.x and 3.x.
Description describe(const dnnl::engine& engine, const Convolution& convolution) {
  const ConvShape& s = convolution.shape;
  const Type type = type_of(convolution);
  const dnnl::memory::desc inp({s.N, s.C, s.H, s.W}, type, Tag::nhwc),
      inp_or_dinp({s.N, s.C, s.H, s.W}, convolution.to_fp32 ? Type::f32 : type, Tag::nhwc);
  const dnnl::memory::desc out({s.N, s.K, s.P(), s.Q()}, type, Tag::nhwc);
  // A gradient also needs the forward pass's description, which has the gradient's input type.
  const auto weight = weights(s, type, Tag::any, Tag::any),
             dweight = weights(s, weight_type_of(convolution), Tag::any, Tag::any);
  const dnnl::memory::dims stride{s.stride, s.stride}, padding{s.padding, s.padding};
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
  constexpr auto training = dnnl::prop_kind::forward_training;
  const auto attributes = onednn_attributes(false);
  const auto made = [&](const auto& desc, const dnnl::memory::desc& weights) -> Description {
    return {dnnl::primitive(desc.get()), inp_or_dinp, weights, out, desc.scratchpad_desc()};
  };
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_forward::primitive_desc forward(
      engine, training, algorithm, inp, weight, out, stride, padding, padding, attributes);
  const auto backward = [&]<class Desc>() -> Desc {
    return {engine, algorithm, inp_or_dinp, dweight, out,
            stride, padding,   padding,     forward, attributes};
  };
#else
  const dnnl::convolution_forward::primitive_desc forward(
      {training, algorithm, inp, weight, out, stride, padding, padding}, attributes, engine);
  const auto backward = [&]<class Desc>() -> Desc {
    return {{algorithm, inp_or_dinp, dweight, out, stride, padding, padding},
            attributes,
            engine,
            forward};
  };
#endif
  if (convolution.result == Convolution::Result::out) return made(forward, forward.weights_desc());
  if (convolution.result == Convolution::Result::dinp) {
    const auto data = backward.operator()<dnnl::convolution_backward_data::primitive_desc>();
    return made(data, data.weights_desc());
  }
  const auto weights = backward.operator()<dnnl::convolution_backward_weights::primitive_desc>();
  return made(weights, weights.diff_weights_desc());
}

}  // namespace

// A prepared convolution: the primitives and their arguments. Without a reorder, oneDNN uses the
// weights as they are.
struct ConvOneDnn::Plan {
  dnnl::primitive convolution;
  OneDnnReorder reorder;
  dnnl::memory inp, weight, out, scratch;
  size_t weight_bytes = 0, scratch_bytes = 0;
  size_t copy_bytes = 0;  // of a copy of inp followed by zeros
};

std::unique_ptr<ConvOneDnn> ConvOneDnn::make() { return std::make_unique<ConvOneDnn>(); }
ConvOneDnn::ConvOneDnn() : engine_(std::make_unique<OneDnnEngine>()) {}
ConvOneDnn::~ConvOneDnn() = default;

ConvOneDnn::Plan& ConvOneDnn::plan(const Convolution& c) {
  const ConvShape& s = c.shape;
  const auto [found, is_new] = plans_.try_emplace(
      {s.N, s.H, s.W, s.C, s.K, s.R, s.S, s.stride, s.padding, s.groups, static_cast<int>(c.result),
       c.accumulate, static_cast<int>(c.dtype), c.to_fp32});
  Plan& plan = found->second;
  if (!is_new) return plan;
  const auto made = describe(engine_->engine, c);
  plan.convolution = made.primitive;
  plan.inp = engine_->memory(made.inp);
  plan.weight = engine_->memory(made.weight);
  plan.out = engine_->memory(made.out);
  plan.scratch = engine_->memory(made.scratch);
  plan.scratch_bytes = made.scratch.get_size();
  if (reads_past_the_end(c)) plan.copy_bytes = padded(made.inp.get_size() + 2);

  const auto plain = weights(s, weight_type_of(c), Tag::ohwi, Tag::gohwi);
  if (made.weight == plain && !c.accumulate) return plan;
  const bool back = c.result == Convolution::Result::dweight;
  plan.reorder =
      OneDnnReorder(*engine_, back ? made.weight : plain, back ? plain : made.weight, c.accumulate);
  plan.weight_bytes = padded(made.weight.get_size());
  plan.scratch_bytes = std::max(plan.scratch_bytes, plan.reorder.scratch_bytes());
  return plan;
}

size_t ConvOneDnn::workspace_bytes(const Convolution& c) {
  const Plan& ready = plan(c);
  return ready.weight_bytes + padded(ready.scratch_bytes) + ready.copy_bytes;
}

void ConvOneDnn::run(const Convolution& c, const ConvTensors& tensors) {
  Plan& ready = plan(c);
  char* scratch = static_cast<char*>(tensors.workspace) + ready.weight_bytes;
  ready.inp.set_data_handle(tensors.inp);
  if (ready.copy_bytes > 0) {
    char* copy = scratch + padded(ready.scratch_bytes);
    const size_t inp_bytes = ready.inp.get_desc().get_size();
    std::memcpy(copy, tensors.inp, inp_bytes);
    std::memset(copy + inp_bytes, 0, ready.copy_bytes - inp_bytes);
    ready.inp.set_data_handle(copy);
  }
  ready.out.set_data_handle(tensors.out);
  ready.scratch.set_data_handle(scratch);
  ready.weight.set_data_handle(ready.reorder ? tensors.workspace : tensors.weight);
  const bool to_out = c.result == Convolution::Result::out;
  const bool to_inp = c.result == Convolution::Result::dinp;
  const bool to_weight = c.result == Convolution::Result::dweight;
  if (ready.reorder && !to_weight)
    ready.reorder.run(*engine_, tensors.weight, tensors.workspace, scratch);
  engine_->run(ready.convolution,
               {{to_inp ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, ready.inp.get()},
                {to_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, ready.weight.get()},
                {to_out ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, ready.out.get()},
                {DNNL_ARG_SCRATCHPAD, ready.scratch.get()}},
               "a convolution");
  if (ready.reorder && to_weight)
    ready.reorder.run(*engine_, tensors.workspace, tensors.weight, scratch);
}

}  // namespace bv
