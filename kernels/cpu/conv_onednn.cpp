#include "kernels/cpu/conv_onednn.h"

#include <algorithm>
#include <dnnl.hpp>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace bv {
namespace {

using Tag = dnnl::memory::format_tag;
using Dims = dnnl::memory::dims;
constexpr auto f32 = dnnl::memory::data_type::f32;

void check(dnnl_status_t status) {
  if (status != dnnl_success)
    throw std::runtime_error("oneDNN: a convolution failed with status " + std::to_string(status));
}

size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

dnnl::primitive_attr with_our_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::desc weights(const ConvShape& s, Tag plain, Tag grouped) {
  if (s.groups == 1) return {{s.K, s.C, s.R, s.S}, f32, plain};
  return {{s.groups, s.K / s.groups, s.C / s.groups, s.R, s.S}, f32, grouped};
}

// What a primitive is made of.
struct Description {
  dnnl::primitive primitive;
  dnnl::memory::desc inp, weight, out, scratch;

  template <class Desc>
  void scratch_of(const Desc& description) {
    primitive = dnnl::primitive(description.get());
    scratch = description.scratchpad_desc();
  }
};

// All that differs between oneDNN 2.x and 3.x.
Description describe(const dnnl::engine& engine, const Convolution& convolution) {
  const ConvShape& s = convolution.shape;
  const dnnl::memory::desc inp({s.N, s.C, s.H, s.W}, f32, Tag::nhwc);
  const dnnl::memory::desc out({s.N, s.K, s.P(), s.Q()}, f32, Tag::nhwc);
  const auto weight = weights(s, Tag::any, Tag::any);
  const Dims stride{s.stride, s.stride}, padding{s.padding, s.padding};
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
  constexpr auto training = dnnl::prop_kind::forward_training;
  const auto attributes = with_our_scratchpad();
  Description made{{}, inp, {}, out, {}};
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_forward::primitive_desc forward(
      engine, training, algorithm, inp, weight, out, stride, padding, padding, attributes);
  const auto backward_input = [&] {
    return dnnl::convolution_backward_data::primitive_desc(
        engine, algorithm, inp, weight, out, stride, padding, padding, forward, attributes);
  };
  const auto backward_weight = [&] {
    return dnnl::convolution_backward_weights::primitive_desc(
        engine, algorithm, inp, weight, out, stride, padding, padding, forward, attributes);
  };
#else
  const dnnl::convolution_forward::primitive_desc forward(
      {training, algorithm, inp, weight, out, stride, padding, padding}, attributes, engine);
  const auto backward_input = [&] {
    return dnnl::convolution_backward_data::primitive_desc(
        {algorithm, inp, weight, out, stride, padding, padding}, attributes, engine, forward);
  };
  const auto backward_weight = [&] {
    return dnnl::convolution_backward_weights::primitive_desc(
        {algorithm, inp, weight, out, stride, padding, padding}, attributes, engine, forward);
  };
#endif
  switch (convolution.result) {
    case Convolution::Result::out:
      made.scratch_of(forward);
      made.weight = forward.weights_desc();
      break;
    case Convolution::Result::dinp: {
      const auto description = backward_input();
      made.scratch_of(description);
      made.weight = description.weights_desc();
      break;
    }
    case Convolution::Result::dweight: {
      const auto description = backward_weight();
      made.scratch_of(description);
      made.weight = description.diff_weights_desc();
      break;
    }
  }
  return made;
}

}  // namespace

struct ConvOneDnn::Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};

  dnnl::memory memory(const dnnl::memory::desc& shape) const {
    return {shape, engine, DNNL_MEMORY_NONE};
  }
};

// A convolution made ready: the primitives and what they are run on. Without reorder: oneDNN takes
// the weights as they are.
struct ConvOneDnn::Plan {
  dnnl::primitive convolution, reorder;
  dnnl::memory inp, weight, out, scratch, plain_weight, reorder_scratch;
  size_t weight_bytes = 0, scratch_bytes = 0;
};

std::unique_ptr<ConvOneDnn> ConvOneDnn::make() { return std::make_unique<ConvOneDnn>(); }
ConvOneDnn::ConvOneDnn() : engine_(std::make_unique<Engine>()) {}
ConvOneDnn::~ConvOneDnn() = default;

ConvOneDnn::Plan& ConvOneDnn::plan(const Convolution& c) {
  const ConvShape& s = c.shape;
  const auto [found, is_new] =
      plans_.try_emplace({s.N, s.H, s.W, s.C, s.K, s.R, s.S, s.stride, s.padding, s.groups,
                          static_cast<int>(c.result), c.accumulate});
  Plan& plan = found->second;
  if (!is_new) return plan;
  const auto made = describe(engine_->engine, c);
  plan.convolution = made.primitive;
  plan.inp = engine_->memory(made.inp);
  plan.weight = engine_->memory(made.weight);
  plan.out = engine_->memory(made.out);
  plan.scratch = engine_->memory(made.scratch);
  plan.scratch_bytes = made.scratch.get_size();

  const auto plain = weights(s, Tag::ohwi, Tag::gohwi);
  if (made.weight == plain && !c.accumulate) return plan;
  auto attributes = with_our_scratchpad();
  if (c.accumulate) {
    dnnl::post_ops post;
    post.append_sum();
    attributes.set_post_ops(post);
  }
  const bool back = c.result == Convolution::Result::dweight;
  const dnnl::reorder::primitive_desc description(engine_->engine, back ? made.weight : plain,
                                                  engine_->engine, back ? plain : made.weight,
                                                  attributes);
  plan.reorder = dnnl::reorder(description);
  plan.plain_weight = engine_->memory(plain);
  plan.reorder_scratch = engine_->memory(description.scratchpad_desc());
  plan.weight_bytes = padded(made.weight.get_size());
  plan.scratch_bytes = std::max(plan.scratch_bytes, description.scratchpad_desc().get_size());
  return plan;
}

size_t ConvOneDnn::workspace_bytes(const Convolution& c) {
  const Plan& ready = plan(c);
  return ready.weight_bytes + padded(ready.scratch_bytes);
}

void ConvOneDnn::run(const Convolution& c, const ConvTensors& tensors) {
  Plan& ready = plan(c);
  char* scratch = static_cast<char*>(tensors.workspace) + ready.weight_bytes;
  ready.inp.set_data_handle(tensors.inp);
  ready.out.set_data_handle(tensors.out);
  ready.scratch.set_data_handle(scratch);
  ready.weight.set_data_handle(ready.reorder ? tensors.workspace : tensors.weight);
  if (ready.reorder) {
    ready.plain_weight.set_data_handle(tensors.weight);
    ready.reorder_scratch.set_data_handle(scratch);
  }
  // The C call: the C++ one would build a hash map at each run.
  const auto execute = [&](const dnnl::primitive& primitive,
                           std::initializer_list<dnnl_exec_arg_t> arguments) {
    check(dnnl_primitive_execute(primitive.get(), engine_->stream.get(),
                                 static_cast<int>(arguments.size()), arguments.begin()));
    engine_->stream.wait();
  };
  const auto reorder = [&](dnnl::memory& from, dnnl::memory& to) {
    if (ready.reorder)
      execute(ready.reorder, {{DNNL_ARG_FROM, from.get()},
                              {DNNL_ARG_TO, to.get()},
                              {DNNL_ARG_SCRATCHPAD, ready.reorder_scratch.get()}});
  };
  const bool to_out = c.result == Convolution::Result::out;
  const bool to_inp = c.result == Convolution::Result::dinp;
  const bool to_weight = c.result == Convolution::Result::dweight;
  if (!to_weight) reorder(ready.plain_weight, ready.weight);
  execute(ready.convolution,
          {{to_inp ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, ready.inp.get()},
           {to_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, ready.weight.get()},
           {to_out ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, ready.out.get()},
           {DNNL_ARG_SCRATCHPAD, ready.scratch.get()}});
  if (to_weight) reorder(ready.weight, ready.plain_weight);
}

}  // namespace bv
