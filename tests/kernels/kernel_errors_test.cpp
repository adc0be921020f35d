// What an operation refuses: std::invalid_argument that names operation and argument, with nothing
// read or written. Each case is an operation that is valid but for one argument.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/kernels/device.h"

namespace bv::test {
namespace {

struct Memory {
  explicit Memory(const Device& d) : device(d), data(d.allocate(bytes)) {
    const std::vector<char> zeros(bytes);
    d.upload(data, zeros.data(), bytes);
  }
  ~Memory() { device.release(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <class T = void>
  T* at() const {
    return static_cast<T*>(data);
  }

  static constexpr size_t bytes = 1 << 16;
  const Device& device;
  void* data;
};

template <class Op, class T>
struct Pointer {
  const char* name;
  T Op::*member;
};

class KernelErrors : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!GetParam().unavailable.empty()) GTEST_SKIP() << GetParam().unavailable;
    kernels_ = GetParam().make_kernels();
    memory_ = std::make_unique<Memory>(GetParam());
  }

  // `name` of the operation; `wrong` spoils `argument`.
  template <class Op, class Change>
  void refuses(const Op& valid, const std::string& name, const std::string& argument,
               const Change& wrong) {
    Op op = valid;
    wrong(op);
    try {
      kernels_->run(op, nullptr);
      ADD_FAILURE() << name << " accepts a wrong " << argument;
    } catch (const std::invalid_argument& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find(name), std::string::npos) << message << ": doesn't name " << name;
      EXPECT_NE(message.find(argument), std::string::npos)
          << message << ": doesn't name " << argument;
    }
  }

  template <class Op>
  void refuses_sizes(const Op& valid, const std::string& name,
                     std::initializer_list<std::pair<const char*, int Op::*>> members) {
    for (const auto& [argument, member] : members)
      for (const int wrong : {0, -1})
        refuses(valid, name, argument, [&](Op& op) { op.*member = wrong; });
  }

  // The CPU computes in fp32 so far: other types are refused, never misread.
  template <class Op>
  void refuses_foreign_dtypes(const Op& valid, const std::string& name) {
    const std::vector<DType>& known = GetParam().dtypes;
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
      if (std::find(known.begin(), known.end(), dtype) == known.end())
        refuses(valid, name, "dtype", [&](Op& op) { op.dtype = dtype; });
  }

  // Null, on every device.
  template <class Op, class... T>
  void refuses_null(const Op& valid, const std::string& name, Pointer<Op, T>... arguments) {
    (refuses(valid, name, arguments.name, [&](Op& op) { op.*arguments.member = nullptr; }), ...);
    refuses_misaligned(valid, name, arguments...);
  }

  // The GPU's kernels read 16 bytes at a time, and nothing stops them at address 0.
  template <class Op, class... T>
  void refuses_pointers(const Op& valid, const std::string& name, Pointer<Op, T>... arguments) {
    if (GetParam().host_threads) return;
    (refuses(valid, name, arguments.name, [&](Op& op) { op.*arguments.member = nullptr; }), ...);
    refuses_misaligned(valid, name, arguments...);
  }
  // Those that may be null.
  template <class Op, class... T>
  void refuses_misaligned(const Op& valid, const std::string& name, Pointer<Op, T>... arguments) {
    if (GetParam().host_threads) return;
    (refuses(valid, name, arguments.name,
             [&](Op& op) {
               op.*arguments.member =
                   reinterpret_cast<T>(reinterpret_cast<uintptr_t>(op.*arguments.member) + 8);
             }),
     ...);
  }

  template <class T = void>
  T* at() const {
    return memory_->at<T>();
  }

  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Memory> memory_;
};

constexpr float nan = NAN;

TEST_P(KernelErrors, Input) {
  const InputPatches op{.out = at(),
                        .images = at<uint8_t>(),
                        .crops = at<Crop>(),
                        .B = 1,
                        .height = 4,
                        .width = 4,
                        .size = 4,
                        .patch = 2};
  using Op = InputPatches;
  refuses_sizes(op, "InputPatches",
                {{"B", &Op::B},
                 {"height", &Op::height},
                 {"width", &Op::width},
                 {"size", &Op::size},
                 {"patch", &Op::patch}});
  refuses(op, "InputPatches", "patch", [](Op& o) { o.patch = 3; });
  refuses(op, "InputPatches", "out", [](Op& o) { o.out = nullptr; });
  refuses_pointers(op, "InputPatches", Pointer{"out", &InputPatches::out},
                   Pointer{"images", &InputPatches::images},
                   Pointer{"crops", &InputPatches::crops});
  refuses_foreign_dtypes(op, "InputPatches");
}

TEST_P(KernelErrors, Linear) {
  const LinearForward forward{.out = at(),
                              .workspace = at(),
                              .inp = at(),
                              .weight = at(),
                              .bias = at(),
                              .M = 2,
                              .N = 3,
                              .K = 4};
  const LinearBackwardInput input{
      .dinp = at(), .workspace = at(), .dout = at(), .weight = at(), .M = 2, .N = 3, .K = 4};
  const LinearBackwardWeight weight{.dweight = at<float>(),
                                    .dbias = at<float>(),
                                    .workspace = at(),
                                    .dout = at(),
                                    .inp = at(),
                                    .M = 2,
                                    .N = 3,
                                    .K = 4};
  refuses_sizes(forward, "LinearForward",
                {{"M", &LinearForward::M}, {"N", &LinearForward::N}, {"K", &LinearForward::K}});
  refuses_sizes(input, "LinearBackwardInput",
                {{"M", &LinearBackwardInput::M},
                 {"N", &LinearBackwardInput::N},
                 {"K", &LinearBackwardInput::K}});
  refuses_sizes(weight, "LinearBackwardWeight",
                {{"M", &LinearBackwardWeight::M},
                 {"N", &LinearBackwardWeight::N},
                 {"K", &LinearBackwardWeight::K}});
  refuses_pointers(forward, "LinearForward", Pointer{"out", &LinearForward::out},
                   Pointer{"inp", &LinearForward::inp}, Pointer{"weight", &LinearForward::weight});
  refuses_misaligned(forward, "LinearForward", Pointer{"bias", &LinearForward::bias});
  refuses_foreign_dtypes(forward, "LinearForward");
  refuses_pointers(input, "LinearBackwardInput", Pointer{"dinp", &LinearBackwardInput::dinp},
                   Pointer{"dout", &LinearBackwardInput::dout},
                   Pointer{"weight", &LinearBackwardInput::weight});
  refuses_foreign_dtypes(input, "LinearBackwardInput");
  refuses_pointers(
      weight, "LinearBackwardWeight", Pointer{"dweight", &LinearBackwardWeight::dweight},
      Pointer{"dout", &LinearBackwardWeight::dout}, Pointer{"inp", &LinearBackwardWeight::inp});
  refuses_misaligned(weight, "LinearBackwardWeight",
                     Pointer{"dbias", &LinearBackwardWeight::dbias});
  refuses_foreign_dtypes(weight, "LinearBackwardWeight");
}

TEST_P(KernelErrors, BiasGelu) {
  const BiasGeluForward forward{.out = at(), .inp = at(), .bias = at(), .rows = 2, .C = 3};
  const BiasGeluBackward backward{.dinp = at(),
                                  .dbias = at<float>(),
                                  .workspace = at(),
                                  .dout = at(),
                                  .inp = at(),
                                  .bias = at(),
                                  .rows = 2,
                                  .C = 3};
  refuses_sizes(forward, "BiasGeluForward",
                {{"rows", &BiasGeluForward::rows}, {"C", &BiasGeluForward::C}});
  refuses_sizes(backward, "BiasGeluBackward",
                {{"rows", &BiasGeluBackward::rows}, {"C", &BiasGeluBackward::C}});
  refuses(forward, "BiasGeluForward", "bias", [](BiasGeluForward& o) { o.bias = nullptr; });
  refuses(backward, "BiasGeluBackward", "dbias", [](BiasGeluBackward& o) { o.dbias = nullptr; });
  refuses_pointers(forward, "BiasGeluForward", Pointer{"out", &BiasGeluForward::out},
                   Pointer{"inp", &BiasGeluForward::inp}, Pointer{"bias", &BiasGeluForward::bias});
  refuses_foreign_dtypes(forward, "BiasGeluForward");
  refuses_pointers(backward, "BiasGeluBackward", Pointer{"dinp", &BiasGeluBackward::dinp},
                   Pointer{"dbias", &BiasGeluBackward::dbias},
                   Pointer{"dout", &BiasGeluBackward::dout}, Pointer{"inp", &BiasGeluBackward::inp},
                   Pointer{"bias", &BiasGeluBackward::bias});
  refuses_foreign_dtypes(backward, "BiasGeluBackward");
}

TEST_P(KernelErrors, LayerNorm) {
  const LayerNormForward forward{.out = at(),
                                 .sum = at(),
                                 .mean = at<float>(),
                                 .rstd = at<float>(),
                                 .inp = at(),
                                 .residual = at(),
                                 .weight = at<float>(),
                                 .bias = at<float>(),
                                 .rows = 2,
                                 .C = 3,
                                 .eps = 1e-6f};
  const LayerNormBackward backward{.dinp = at(),
                                   .dweight = at<float>(),
                                   .dbias = at<float>(),
                                   .workspace = at(),
                                   .dout = at(),
                                   .dsum = at(),
                                   .sum = at(),
                                   .mean = at<float>(),
                                   .rstd = at<float>(),
                                   .weight = at<float>(),
                                   .rows = 2,
                                   .C = 3};
  refuses_sizes(forward, "LayerNormForward",
                {{"rows", &LayerNormForward::rows}, {"C", &LayerNormForward::C}});
  refuses_sizes(backward, "LayerNormBackward",
                {{"rows", &LayerNormBackward::rows}, {"C", &LayerNormBackward::C}});
  refuses(forward, "LayerNormForward", "sum", [](LayerNormForward& o) { o.sum = nullptr; });
  refuses(backward, "LayerNormBackward", "mean", [](LayerNormBackward& o) { o.mean = nullptr; });
  refuses_pointers(forward, "LayerNormForward", Pointer{"out", &LayerNormForward::out},
                   Pointer{"mean", &LayerNormForward::mean},
                   Pointer{"rstd", &LayerNormForward::rstd}, Pointer{"inp", &LayerNormForward::inp},
                   Pointer{"weight", &LayerNormForward::weight},
                   Pointer{"bias", &LayerNormForward::bias});
  refuses_misaligned(forward, "LayerNormForward", Pointer{"sum", &LayerNormForward::sum},
                     Pointer{"residual", &LayerNormForward::residual});
  refuses_foreign_dtypes(forward, "LayerNormForward");
  refuses_pointers(
      backward, "LayerNormBackward", Pointer{"dinp", &LayerNormBackward::dinp},
      Pointer{"dweight", &LayerNormBackward::dweight}, Pointer{"dbias", &LayerNormBackward::dbias},
      Pointer{"dout", &LayerNormBackward::dout}, Pointer{"sum", &LayerNormBackward::sum},
      Pointer{"mean", &LayerNormBackward::mean}, Pointer{"rstd", &LayerNormBackward::rstd},
      Pointer{"weight", &LayerNormBackward::weight});
  refuses_misaligned(backward, "LayerNormBackward", Pointer{"dsum", &LayerNormBackward::dsum});
  refuses_foreign_dtypes(backward, "LayerNormBackward");
}

TEST_P(KernelErrors, Attention) {
  const AttentionForward forward{.out = at(),
                                 .lse = at<float>(),
                                 .workspace = at(),
                                 .qkv = at(),
                                 .params = at<StepParams>(),
                                 .B = 1,
                                 .N = 2,
                                 .H = 1,
                                 .D = 32};
  const AttentionBackward backward{.dqkv = at(),
                                   .workspace = at(),
                                   .dout = at(),
                                   .qkv = at(),
                                   .out = at(),
                                   .lse = at<float>(),
                                   .params = at<StepParams>(),
                                   .B = 1,
                                   .N = 2,
                                   .H = 1,
                                   .D = 32};
  refuses_sizes(forward, "AttentionForward",
                {{"B", &AttentionForward::B},
                 {"N", &AttentionForward::N},
                 {"H", &AttentionForward::H},
                 {"D", &AttentionForward::D}});
  refuses_sizes(backward, "AttentionBackward",
                {{"B", &AttentionBackward::B},
                 {"N", &AttentionBackward::N},
                 {"H", &AttentionBackward::H},
                 {"D", &AttentionBackward::D}});
  for (const int D : {7, 100000}) {
    refuses(forward, "AttentionForward", "D", [D](AttentionForward& o) { o.D = D; });
    refuses(backward, "AttentionBackward", "D", [D](AttentionBackward& o) { o.D = D; });
  }
  if (!GetParam().host_threads)
    for (const int D : {8, 16, 48, 96, 256}) {
      const char* which = "32, 64 and 128";
      refuses(forward, "AttentionForward", which, [D](AttentionForward& o) { o.D = D; });
      refuses(backward, "AttentionBackward", which, [D](AttentionBackward& o) { o.D = D; });
    }
  for (const float drop : {-0.1f, 1.1f, nan}) {
    refuses(forward, "AttentionForward", "drop", [=](AttentionForward& o) { o.drop = drop; });
    refuses(backward, "AttentionBackward", "drop", [=](AttentionBackward& o) { o.drop = drop; });
  }
  refuses_pointers(forward, "AttentionForward", Pointer{"out", &AttentionForward::out},
                   Pointer{"lse", &AttentionForward::lse}, Pointer{"qkv", &AttentionForward::qkv});
  AttentionForward dropping = forward;
  AttentionBackward dropping_back = backward;
  dropping.drop = dropping_back.drop = 0.1f;  // which reads the seed
  refuses_pointers(dropping, "AttentionForward", Pointer{"params", &AttentionForward::params});
  refuses_pointers(dropping_back, "AttentionBackward",
                   Pointer{"params", &AttentionBackward::params});
  refuses_foreign_dtypes(forward, "AttentionForward");
  refuses_pointers(backward, "AttentionBackward", Pointer{"dqkv", &AttentionBackward::dqkv},
                   Pointer{"dout", &AttentionBackward::dout},
                   Pointer{"qkv", &AttentionBackward::qkv}, Pointer{"out", &AttentionBackward::out},
                   Pointer{"lse", &AttentionBackward::lse});
  refuses_foreign_dtypes(backward, "AttentionBackward");
}

TEST_P(KernelErrors, Tokens) {
  const EmbedForward embed{.out = at(),
                           .patches = at(),
                           .class_token = at<float>(),
                           .position = at<float>(),
                           .B = 1,
                           .P = 2,
                           .C = 3};
  const EmbedBackward dembed{.dpatches = at(),
                             .dclass_token = at<float>(),
                             .dposition = at<float>(),
                             .dout = at(),
                             .B = 1,
                             .P = 2,
                             .C = 3};
  const ClassTokenForward token{.out = at(), .inp = at(), .B = 1, .N = 2, .C = 3};
  const ClassTokenBackward dtoken{.dinp = at(), .dout = at(), .B = 1, .N = 2, .C = 3};
  refuses_sizes(embed, "EmbedForward",
                {{"B", &EmbedForward::B}, {"P", &EmbedForward::P}, {"C", &EmbedForward::C}});
  refuses_sizes(dembed, "EmbedBackward",
                {{"B", &EmbedBackward::B}, {"P", &EmbedBackward::P}, {"C", &EmbedBackward::C}});
  refuses_sizes(
      token, "ClassTokenForward",
      {{"B", &ClassTokenForward::B}, {"N", &ClassTokenForward::N}, {"C", &ClassTokenForward::C}});
  refuses_sizes(dtoken, "ClassTokenBackward",
                {{"B", &ClassTokenBackward::B},
                 {"N", &ClassTokenBackward::N},
                 {"C", &ClassTokenBackward::C}});
  refuses_pointers(token, "ClassTokenForward", Pointer{"out", &ClassTokenForward::out},
                   Pointer{"inp", &ClassTokenForward::inp});
  refuses_pointers(dtoken, "ClassTokenBackward", Pointer{"dinp", &ClassTokenBackward::dinp},
                   Pointer{"dout", &ClassTokenBackward::dout});
  refuses_pointers(embed, "EmbedForward", Pointer{"out", &EmbedForward::out},
                   Pointer{"patches", &EmbedForward::patches},
                   Pointer{"class_token", &EmbedForward::class_token},
                   Pointer{"position", &EmbedForward::position});
  refuses_foreign_dtypes(embed, "EmbedForward");
  refuses_pointers(dembed, "EmbedBackward", Pointer{"dpatches", &EmbedBackward::dpatches},
                   Pointer{"dclass_token", &EmbedBackward::dclass_token},
                   Pointer{"dposition", &EmbedBackward::dposition},
                   Pointer{"dout", &EmbedBackward::dout});
  refuses_foreign_dtypes(dembed, "EmbedBackward");
}

TEST_P(KernelErrors, Conv) {
  const ConvShape shape{2, 4, 4, 6, 4, 3, 3, 1, 1, 2};
  const ConvForward forward{.out = at(),
                            .moments = at<float>(),
                            .workspace = at(),
                            .inp = at(),
                            .weight = at(),
                            .shape = shape};
  const ConvBackwardInput input{
      .dinp = at(), .workspace = at(), .dout = at(), .add = at(), .weight = at(), .shape = shape};
  const ConvBackwardWeight weight{
      .dweight = at<float>(), .workspace = at(), .dout = at(), .inp = at(), .shape = shape};
  const auto refuses_shapes = [&]<class Op>(const Op& op, const std::string& name) {
    const auto refuses_shape = [&](const char* argument, auto wrong) {
      refuses(op, name, argument, [&](Op& o) { wrong(o.shape); });
    };
    using S = ConvShape;
    const std::pair<const char*, int S::*> sizes[] = {
        {"N", &S::N}, {"H", &S::H}, {"W", &S::W},           {"C", &S::C},     {"K", &S::K},
        {"R", &S::R}, {"S", &S::S}, {"stride", &S::stride}, {"C", &S::groups}};
    for (const auto& [argument, member] : sizes)
      for (const int wrong : {0, -1}) refuses_shape(argument, [&](S& s) { s.*member = wrong; });
    refuses_shape("padding", [](S& s) { s.padding = -1; });
    refuses_shape("C: ", [](S& s) { s.C = 5; });
    refuses_shape("K: ", [](S& s) { s.K = 5; });
    refuses_shape("smaller than the filter", [](S& s) { s.R = 7; });
    refuses_shape("smaller than the filter", [](S& s) { s.S = 7; });
    refuses_shape("more positions", [](S& s) { s.N = s.H = s.W = 1 << 12; });
    if (!GetParam().host_threads) refuses_shape("stride: 256", [](S& s) { s.stride = 256; });
    refuses_foreign_dtypes(op, name);
  };
  refuses_shapes(forward, "ConvForward");
  refuses_shapes(input, "ConvBackwardInput");
  refuses_shapes(weight, "ConvBackwardWeight");
  using Forward = ConvForward;
  using Input = ConvBackwardInput;
  using Weight = ConvBackwardWeight;
  refuses_null(forward, "ConvForward", Pointer{"out", &Forward::out},
               Pointer{"workspace", &Forward::workspace}, Pointer{"inp", &Forward::inp},
               Pointer{"weight", &Forward::weight});
  refuses_misaligned(forward, "ConvForward", Pointer{"moments", &Forward::moments});
  refuses_null(input, "ConvBackwardInput", Pointer{"dinp", &Input::dinp},
               Pointer{"dout", &Input::dout}, Pointer{"weight", &Input::weight});
  refuses_misaligned(input, "ConvBackwardInput", Pointer{"add", &Input::add});
  refuses_null(weight, "ConvBackwardWeight", Pointer{"dweight", &Weight::dweight},
               Pointer{"dout", &Weight::dout}, Pointer{"inp", &Weight::inp});
}

TEST_P(KernelErrors, BatchNorm) {
  const BatchNormForward forward{.out = at(),
                                 .mean = at<float>(),
                                 .rstd = at<float>(),
                                 .running_mean = at<float>(),
                                 .running_var = at<float>(),
                                 .inp = at(),
                                 .residual = at(),
                                 .moments = at<float>(),
                                 .weight = at<float>(),
                                 .bias = at<float>(),
                                 .rows = 2,
                                 .C = 3,
                                 .parts = 1};
  const BatchNormEvaluate evaluate{.out = at(),
                                   .inp = at(),
                                   .residual = at(),
                                   .running_mean = at<float>(),
                                   .running_var = at<float>(),
                                   .weight = at<float>(),
                                   .bias = at<float>(),
                                   .rows = 2,
                                   .C = 3};
  const BatchNormBackwardSums sums{.sums = at<float>(),
                                   .dweight = at<float>(),
                                   .dbias = at<float>(),
                                   .g = at(),
                                   .workspace = at(),
                                   .dout = at(),
                                   .out = at(),
                                   .inp = at(),
                                   .mean = at<float>(),
                                   .rstd = at<float>(),
                                   .weight = at<float>(),
                                   .bias = at<float>(),
                                   .rows = 2,
                                   .C = 3,
                                   .relu = true};
  const BatchNormBackward backward{.dinp = at(),
                                   .sums = at<float>(),
                                   .dout = at(),
                                   .inp = at(),
                                   .mean = at<float>(),
                                   .rstd = at<float>(),
                                   .weight = at<float>(),
                                   .bias = at<float>(),
                                   .rows = 2,
                                   .C = 3,
                                   .parts = 1};
  using Forward = BatchNormForward;
  using Evaluate = BatchNormEvaluate;
  using Sums = BatchNormBackwardSums;
  using Backward = BatchNormBackward;
  refuses_sizes(forward, "BatchNormForward",
                {{"rows", &Forward::rows}, {"C", &Forward::C}, {"parts", &Forward::parts}});
  refuses_sizes(evaluate, "BatchNormEvaluate", {{"rows", &Evaluate::rows}, {"C", &Evaluate::C}});
  refuses_sizes(sums, "BatchNormBackwardSums", {{"rows", &Sums::rows}, {"C", &Sums::C}});
  refuses_sizes(backward, "BatchNormBackward",
                {{"rows", &Backward::rows}, {"C", &Backward::C}, {"parts", &Backward::parts}});
  // One of the two statistics alone would stay behind the other.
  refuses(forward, "BatchNormForward", "running_var", [](Forward& o) { o.running_var = nullptr; });
  refuses(forward, "BatchNormForward", "running_mean",
          [](Forward& o) { o.running_mean = nullptr; });
  refuses_null(forward, "BatchNormForward", Pointer{"out", &Forward::out},
               Pointer{"mean", &Forward::mean}, Pointer{"rstd", &Forward::rstd},
               Pointer{"inp", &Forward::inp}, Pointer{"moments", &Forward::moments},
               Pointer{"weight", &Forward::weight}, Pointer{"bias", &Forward::bias});
  refuses_misaligned(forward, "BatchNormForward", Pointer{"residual", &Forward::residual},
                     Pointer{"running_mean", &Forward::running_mean},
                     Pointer{"running_var", &Forward::running_var});
  refuses_foreign_dtypes(forward, "BatchNormForward");
  refuses_null(evaluate, "BatchNormEvaluate", Pointer{"out", &Evaluate::out},
               Pointer{"inp", &Evaluate::inp}, Pointer{"running_mean", &Evaluate::running_mean},
               Pointer{"running_var", &Evaluate::running_var}, Pointer{"weight", &Evaluate::weight},
               Pointer{"bias", &Evaluate::bias});
  refuses_misaligned(evaluate, "BatchNormEvaluate", Pointer{"residual", &Evaluate::residual});
  refuses_foreign_dtypes(evaluate, "BatchNormEvaluate");
  refuses_null(sums, "BatchNormBackwardSums", Pointer{"sums", &Sums::sums},
               Pointer{"dweight", &Sums::dweight}, Pointer{"dbias", &Sums::dbias},
               Pointer{"workspace", &Sums::workspace}, Pointer{"dout", &Sums::dout},
               Pointer{"inp", &Sums::inp}, Pointer{"mean", &Sums::mean},
               Pointer{"rstd", &Sums::rstd}, Pointer{"weight", &Sums::weight},
               Pointer{"bias", &Sums::bias});
  refuses_misaligned(sums, "BatchNormBackwardSums", Pointer{"g", &Sums::g},
                     Pointer{"out", &Sums::out});
  refuses_foreign_dtypes(sums, "BatchNormBackwardSums");
  refuses_null(backward, "BatchNormBackward", Pointer{"dinp", &Backward::dinp},
               Pointer{"sums", &Backward::sums}, Pointer{"dout", &Backward::dout},
               Pointer{"inp", &Backward::inp}, Pointer{"mean", &Backward::mean},
               Pointer{"rstd", &Backward::rstd}, Pointer{"weight", &Backward::weight},
               Pointer{"bias", &Backward::bias});
  refuses_foreign_dtypes(backward, "BatchNormBackward");
}

template <class Op>
Op window_of(DType dtype) {
  Op op{};
  op.N = 1, op.H = op.W = 4, op.C = 8, op.R = 3, op.stride = 2, op.padding = 1, op.dtype = dtype;
  return op;
}

TEST_P(KernelErrors, Pool) {
  auto forward = window_of<MaxPoolForward>(DType::fp32);
  forward.out = at(), forward.index = at<uint8_t>(), forward.inp = at();
  auto backward = window_of<MaxPoolBackward>(DType::fp32);
  backward.dinp = at(), backward.dout = at(), backward.index = at<uint8_t>();
  const auto refuses_window = [&]<class Op>(const Op& op, const std::string& name) {
    refuses_sizes(op, name,
                  {{"N", &Op::N},
                   {"H", &Op::H},
                   {"W", &Op::W},
                   {"C", &Op::C},
                   {"R", &Op::R},
                   {"stride", &Op::stride}});
    refuses(op, name, "R", [](Op& o) { o.R = 17, o.H = o.W = 40; });
    refuses(op, name, "padding", [](Op& o) { o.padding = -1; });
    refuses(op, name, "padding", [](Op& o) { o.padding = 2; });
    refuses(op, name, "smaller than R", [](Op& o) { o.padding = 0, o.H = 2; });
    refuses(op, name, "smaller than R", [](Op& o) { o.padding = 0, o.W = 2; });
    refuses_foreign_dtypes(op, name);
    if (GetParam().host_threads) return;
    refuses(op, name, "N", [](Op& o) { o.N = 65536; });
    refuses(op, name, "2^30", [](Op& o) { o.H = o.W = 1 << 15, o.C = 2; });
  };
  refuses_window(forward, "MaxPoolForward");
  refuses_window(backward, "MaxPoolBackward");
  refuses(forward, "MaxPoolForward", "index", [](MaxPoolForward& o) { o.index = nullptr; });
  refuses(backward, "MaxPoolBackward", "dout", [](MaxPoolBackward& o) { o.dout = nullptr; });
  refuses_pointers(forward, "MaxPoolForward", Pointer{"out", &MaxPoolForward::out},
                   Pointer{"index", &MaxPoolForward::index}, Pointer{"inp", &MaxPoolForward::inp});
  refuses_pointers(backward, "MaxPoolBackward", Pointer{"dinp", &MaxPoolBackward::dinp},
                   Pointer{"dout", &MaxPoolBackward::dout},
                   Pointer{"index", &MaxPoolBackward::index});

  const AveragePoolForward average{.out = at(), .inp = at(), .N = 1, .positions = 4, .C = 8};
  const AveragePoolBackward daverage{.dinp = at(), .dout = at(), .N = 1, .positions = 4, .C = 8};
  refuses_sizes(average, "AveragePoolForward",
                {{"N", &AveragePoolForward::N},
                 {"positions", &AveragePoolForward::positions},
                 {"C", &AveragePoolForward::C}});
  refuses_sizes(daverage, "AveragePoolBackward",
                {{"N", &AveragePoolBackward::N},
                 {"positions", &AveragePoolBackward::positions},
                 {"C", &AveragePoolBackward::C}});
  refuses(average, "AveragePoolForward", "inp", [](AveragePoolForward& o) { o.inp = nullptr; });
  refuses(daverage, "AveragePoolBackward", "dinp",
          [](AveragePoolBackward& o) { o.dinp = nullptr; });
  refuses_pointers(average, "AveragePoolForward", Pointer{"out", &AveragePoolForward::out},
                   Pointer{"inp", &AveragePoolForward::inp});
  refuses_pointers(daverage, "AveragePoolBackward", Pointer{"dinp", &AveragePoolBackward::dinp},
                   Pointer{"dout", &AveragePoolBackward::dout});
  refuses_foreign_dtypes(average, "AveragePoolForward");
  refuses_foreign_dtypes(daverage, "AveragePoolBackward");
}

TEST_P(KernelErrors, Dropout) {
  const Dropout op{.out = at(),
                   .inp = at(),
                   .params = at<StepParams>(),
                   .B = 1,
                   .elements = 4,
                   .group = 1,
                   .drop = 0.5f};
  refuses_sizes(op, "Dropout",
                {{"B", &Dropout::B}, {"elements", &Dropout::elements}, {"group", &Dropout::group}});
  for (const float drop : {-0.1f, 1.1f, nan})
    refuses(op, "Dropout", "drop", [=](Dropout& o) { o.drop = drop; });
  refuses_pointers(op, "Dropout", Pointer{"out", &Dropout::out}, Pointer{"inp", &Dropout::inp},
                   Pointer{"params", &Dropout::params});
  refuses_foreign_dtypes(op, "Dropout");
}

TEST_P(KernelErrors, Loss) {
  const CrossEntropyForward forward{.loss = at<float>(),
                                    .lse = at<float>(),
                                    .logits = at(),
                                    .labels = at<int32_t>(),
                                    .B = 2,
                                    .K = 3};
  const CrossEntropyBackward backward{.dlogits = at(),
                                      .logits = at(),
                                      .lse = at<float>(),
                                      .labels = at<int32_t>(),
                                      .params = at<StepParams>(),
                                      .state = at<UpdateState>(),
                                      .B = 2,
                                      .K = 3};
  const Metrics metrics{.sums = at<double>(),
                        .loss = at<float>(),
                        .logits = at(),
                        .labels = at<int32_t>(),
                        .B = 2,
                        .K = 3};
  const GradientTail tail{
      .tail = at<float>(), .loss = at<float>(), .params = at<StepParams>(), .B = 2};
  refuses_sizes(forward, "CrossEntropyForward",
                {{"B", &CrossEntropyForward::B}, {"K", &CrossEntropyForward::K}});
  refuses_sizes(backward, "CrossEntropyBackward",
                {{"B", &CrossEntropyBackward::B}, {"K", &CrossEntropyBackward::K}});
  refuses_sizes(metrics, "Metrics", {{"B", &Metrics::B}, {"K", &Metrics::K}});
  refuses_sizes(tail, "GradientTail", {{"B", &GradientTail::B}});
  refuses_pointers(tail, "GradientTail", Pointer{"tail", &GradientTail::tail},
                   Pointer{"loss", &GradientTail::loss}, Pointer{"params", &GradientTail::params});
  for (const float wrong : {-0.1f, 1.1f, nan}) {
    refuses(forward, "CrossEntropyForward", "smoothing",
            [=](CrossEntropyForward& o) { o.smoothing = wrong; });
    refuses(backward, "CrossEntropyBackward", "smoothing",
            [=](CrossEntropyBackward& o) { o.smoothing = wrong; });
  }
  if (GetParam().host_threads) {  // where it can look at them
    const int32_t absurd[] = {3, -2};
    for (const int32_t& label : absurd) {
      refuses(forward, "CrossEntropyForward", "labels",
              [&](CrossEntropyForward& o) { o.labels = &label, o.B = 1; });
      refuses(backward, "CrossEntropyBackward", "labels",
              [&](CrossEntropyBackward& o) { o.labels = &label, o.B = 1; });
      refuses(metrics, "Metrics", "labels", [&](Metrics& o) { o.labels = &label, o.B = 1; });
    }
  }
  refuses_pointers(forward, "CrossEntropyForward", Pointer{"loss", &CrossEntropyForward::loss},
                   Pointer{"lse", &CrossEntropyForward::lse},
                   Pointer{"logits", &CrossEntropyForward::logits},
                   Pointer{"labels", &CrossEntropyForward::labels});
  refuses_foreign_dtypes(forward, "CrossEntropyForward");
  refuses_pointers(
      backward, "CrossEntropyBackward", Pointer{"dlogits", &CrossEntropyBackward::dlogits},
      Pointer{"logits", &CrossEntropyBackward::logits}, Pointer{"lse", &CrossEntropyBackward::lse},
      Pointer{"labels", &CrossEntropyBackward::labels},
      Pointer{"params", &CrossEntropyBackward::params},
      Pointer{"state", &CrossEntropyBackward::state});
  refuses_foreign_dtypes(backward, "CrossEntropyBackward");
  refuses_pointers(metrics, "Metrics", Pointer{"sums", &Metrics::sums},
                   Pointer{"loss", &Metrics::loss}, Pointer{"logits", &Metrics::logits},
                   Pointer{"labels", &Metrics::labels});
  refuses_foreign_dtypes(metrics, "Metrics");
}

// Labels that lie in a GPU's memory can't be refused: what they make is NaN, which ends a run.
TEST_P(KernelErrors, ForeignLabels) {
  if (GetParam().host_threads) return;  // which refuse them: see Loss
  constexpr int B = 2, K = 3;
  const int32_t labels[B] = {K, -2};
  char* const base = at<char>();
  const auto place = [&](int i) { return base + 256 * i; };
  GetParam().upload(place(0), labels, sizeof labels);
  auto* loss = reinterpret_cast<float*>(place(1));
  auto* dlogits = reinterpret_cast<float*>(place(2));
  const auto* lse = reinterpret_cast<const float*>(place(3));
  const void* logits = place(4);
  const auto* label = reinterpret_cast<const int32_t*>(place(0));
  kernels_->run(CrossEntropyForward{.loss = loss,
                                    .lse = reinterpret_cast<float*>(place(3)),
                                    .logits = logits,
                                    .labels = label,
                                    .B = B,
                                    .K = K},
                nullptr);
  kernels_->run(CrossEntropyBackward{.dlogits = dlogits,
                                     .logits = logits,
                                     .lse = lse,
                                     .labels = label,
                                     .params = reinterpret_cast<const StepParams*>(place(5)),
                                     .state = reinterpret_cast<const UpdateState*>(place(6)),
                                     .B = B,
                                     .K = K},
                nullptr);
  kernels_->run(Metrics{.sums = reinterpret_cast<double*>(place(7)),
                        .loss = loss,
                        .logits = logits,
                        .labels = label,
                        .B = B,
                        .K = K},
                nullptr);
  float losses[B], gradients[B * K];
  double sums[4];
  GetParam().download(losses, loss, sizeof losses);
  GetParam().download(gradients, dlogits, sizeof gradients);
  GetParam().download(sums, place(7), sizeof sums);
  for (const float l : losses) EXPECT_TRUE(std::isnan(l));
  for (const float g : gradients) EXPECT_TRUE(std::isnan(g));
  EXPECT_TRUE(std::isnan(sums[0]));
  EXPECT_EQ(sums[3], 0) << "such a label is no hit";
}

TEST_P(KernelErrors, Optimizer) {
  const GradientNorm norm{.state = at<UpdateState>(),
                          .workspace = at(),
                          .grad = at<float>(),
                          .params = at<StepParams>(),
                          .count = 4};
  const OptimizerUpdate adam{.weight = at<float>(),
                             .m = at<float>(),
                             .v = at<float>(),
                             .state = at<UpdateState>(),
                             .grad = at<float>(),
                             .decay = at<uint8_t>(),
                             .params = at<StepParams>(),
                             .count = 4,
                             .momentum = 0.9f,
                             .kind = OptimizerKind::adam};
  using Op = OptimizerUpdate;
  refuses(norm, "GradientNorm", "count", [](GradientNorm& o) { o.count = 0; });
  const Scale scale{.data = at<float>(), .count = 4, .factor = 0.5f};
  refuses(scale, "Scale", "count", [](Scale& o) { o.count = 0; });
  refuses(scale, "Scale", "data", [](Scale& o) { o.data = nullptr; });
  refuses_pointers(scale, "Scale", Pointer{"data", &Scale::data});
  refuses(adam, "OptimizerUpdate", "count", [](Op& o) { o.count = 0; });
  refuses(adam, "OptimizerUpdate", "m", [](Op& o) { o.m = nullptr; });
  refuses(adam, "OptimizerUpdate", "v", [](Op& o) { o.v = nullptr; });
  refuses(adam, "OptimizerUpdate", "m", [](Op& o) { o.m = nullptr, o.kind = OptimizerKind::sgd; });
  refuses(adam, "OptimizerUpdate", "growth_interval",
          [](Op& o) { o.scaling.growth_interval = -1; });
  refuses(adam, "OptimizerUpdate", "compute_weights", [](Op& o) { o.compute_weights = o.weight; });
  refuses_pointers(norm, "GradientNorm", Pointer{"state", &GradientNorm::state},
                   Pointer{"grad", &GradientNorm::grad}, Pointer{"params", &GradientNorm::params});
  refuses_pointers(adam, "OptimizerUpdate", Pointer{"weight", &Op::weight}, Pointer{"m", &Op::m},
                   Pointer{"v", &Op::v}, Pointer{"state", &Op::state}, Pointer{"grad", &Op::grad},
                   Pointer{"decay", &Op::decay}, Pointer{"params", &Op::params});
  if (GetParam().host_threads) return;
  Op with_copy = adam;
  with_copy.dtype = DType::fp16, with_copy.compute_weights = at();
  refuses(with_copy, "OptimizerUpdate", "compute_weights",
          [](Op& o) { o.compute_weights = nullptr; });
  refuses_misaligned(with_copy, "OptimizerUpdate",
                     Pointer{"compute_weights", &Op::compute_weights});
}

INSTANTIATE_TEST_SUITE_P(KernelTable, KernelErrors, testing::ValuesIn(devices_to_test()),
                         [](const auto& device) { return device.param.name; });

}  // namespace
}  // namespace bv::test
