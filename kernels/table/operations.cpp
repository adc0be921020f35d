// Each operation's requirements on its arguments, and its cost: flops by the formulas in kernels.h,
// bytes by the tensors' sizes. Every device uses these checks.
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/kernels.h"

namespace bv {
namespace {

Arguments& sizes(Arguments& a, const LinearShape& s) {
  a.size("M", s.M), a.size("N", s.N), a.size("K", s.K);
  return a;
}
Arguments& sizes(Arguments& a, const RowsShape& s) {
  a.size("rows", s.rows), a.size("C", s.C);
  return a;
}
template <class Op>
bool drops(const Op& op) {
  if constexpr (requires { op.drop_path; })
    if (op.drop_path.drop > 0) return true;
  return op.dropout.drop > 0;
}
template <class Op>
void drop_rules(Arguments& a, const Op& op, const RowsShape& s) {
  const auto rules = [&](const Drop& d) {
    a.rule(d.drop >= 0 && d.drop <= 1, "drop must be in 0-1");
    a.rule(d.image_rows > 0 && s.rows % d.image_rows == 0, "rows must be a multiple of image_rows");
  };
  const Drop* named = &op.dropout;
  if constexpr (requires { op.drop_path; })
    if (op.dropout.drop == 0) named = &op.drop_path;
  a.size("image_rows", named->image_rows);
  rules(op.dropout);
  if constexpr (requires { op.drop_path; }) rules(op.drop_path);
}
Arguments& sizes(Arguments& a, const AttentionShape& s) {
  a.size("B", s.B), a.size("N", s.N), a.size("H", s.H), a.size("D", s.D), a.size("Q", s.Q);
  a.rule(s.Q <= s.N, "Q must be at most N");
  return a;
}
Arguments& sizes(Arguments& a, const EmbedShape& s) {
  a.size("B", s.B), a.size("P", s.P), a.size("C", s.C), a.size("prefix", s.prefix);
  a.rule(s.prefix <= 2, "prefix must be 1 or 2");
  return a;
}
Arguments& sizes(Arguments& a, const TokensShape& s) {
  a.size("B", s.B), a.size("N", s.N), a.size("C", s.C), a.size("count", s.count);
  a.rule(s.first >= 0, "first must not be negative");
  a.rule(int64_t{s.first} + s.count <= s.N, "first + count must be at most N");
  return a;
}
Arguments& sizes(Arguments& a, const PositionsShape& s) {
  a.size("N", s.N), a.size("positions", s.positions), a.size("C", s.C);
  return a;
}
Arguments& sizes(Arguments& a, const ClassesShape& s) {
  a.size("B", s.B), a.size("K", s.K);
  return a;
}

Arguments& sizes(Arguments& a, const ConvShape& s) {
  a.size("N", s.N), a.size("H", s.H), a.size("W", s.W), a.size("C", s.C);
  a.size("K", s.K), a.size("R", s.R), a.size("S", s.S);
  a.size("stride", s.stride), a.size("groups", s.groups);
  a.rule(s.stride < 256, "stride must be at most 255");
  a.rule(s.padding >= 0, "padding must not be negative");
  a.rule(s.groups > 0 && s.C % s.groups == 0, "C must be divisible by groups");
  a.rule(s.groups > 0 && s.K % s.groups == 0, "K must be divisible by groups");
  const double H = s.H + 2.0 * s.padding, W = s.W + 2.0 * s.padding;
  a.rule(H >= s.R && W >= s.S, "H and W: the padded image is smaller than the filter");
  a.rule(s.N * H * W <= max_size, "N, H, W: more positions than an index holds");
  a.rule(s.weight_count() <= max_size, "K, R, S, C: a weight of more than 2^30 elements");
  return a;
}

Arguments& sizes(Arguments& a, const PoolShape& s) {
  a.size("N", s.N), a.size("H", s.H), a.size("W", s.W), a.size("C", s.C);
  a.size("R", s.R), a.size("stride", s.stride);
  a.rule(s.padding >= 0 && s.padding <= s.R / 2, "padding must be in 0 .. R / 2");
  a.rule(s.H + 2 * s.padding >= s.R && s.W + 2 * s.padding >= s.R,
         "H and W: the padded image is smaller than R");
  return a;
}

double count(const RowsShape& s) { return double(s.rows) * s.C; }
// Words with one bit per element, each row padded to whole words.
double words(const RowsShape& s) { return double((s.C + 63) / 64) * s.rows; }
double count(const ClassesShape& s) { return double(s.B) * s.K; }
double queries(const AttentionShape& s) { return double(s.B) * s.Q * s.H; }
double keys(const AttentionShape& s) { return double(s.B) * s.N * s.H; }
// The elements of qkv that are read: Q only for tokens that are queries.
double projections(const AttentionShape& s) { return (queries(s) + 2 * keys(s)) * s.D; }
Need needed_if(bool condition) { return condition ? Need::required : Need::optional; }

constexpr size_t max_elements = size_t{1} << 40;  // of an arena
constexpr Need optional = Need::optional;
constexpr const char* no_crops = "crops: only images of height and width `size` need none";
constexpr const char* odd = "mixes: B must be even, since images are mixed in pairs";

[[noreturn]] void refuse(const char* operation, const std::string& what) {
  throw std::invalid_argument(std::string(operation) + ": " + what);
}

}  // namespace

// ---- input --------------------------------------------------------------------------------------
void InputPatches::describe(Arguments& a) const {
  const double n = 3.0 * shape.B * shape.size * shape.size;
  a.operation("InputPatches", dtype).flops(2 * n);
  a.size("B", shape.B), a.size("height", shape.height), a.size("width", shape.width);
  a.size("size", shape.size), a.size("patch", shape.patch);
  a.rule(shape.patch > 0 && shape.size % shape.patch == 0, "size must be a multiple of patch");
  a.rule(crops || (shape.height == shape.size && shape.width == shape.size), no_crops);
  a.write("out", out, n);
  a.rule(!mixes || shape.B % 2 == 0, odd);
  a.read_part("images", images, n, 3.0 * shape.B * shape.height * shape.width);
  a.read("crops", crops, shape.B, optional), a.read("mixes", mixes, shape.B, optional);
}

void AugmentImages::describe(Arguments& a) const {
  const double n = 3.0 * shape.B * shape.size * shape.size;
  a.operation("AugmentImages", DType::fp32).flops(n);
  a.size("B", shape.B), a.size("height", shape.height), a.size("width", shape.width);
  a.size("size", shape.size), a.size("layers", shape.layers);
  a.rule(shape.size <= 8192, "size must be at most 8192");
  a.rule(shape.layer >= 0 && shape.layer < shape.layers, "layer must be in 0 .. layers - 1");
  a.rule(crops || (shape.height == shape.size && shape.width == shape.size), no_crops);
  a.write("out", out, n);
  a.read_part("images", images, n, 3.0 * shape.B * shape.height * shape.width);
  a.read("crops", crops, shape.B, optional);
  a.read("ops", ops, double(shape.B) * shape.layers);
}

// ---- linear -------------------------------------------------------------------------------------
void LinearForward::describe(Arguments& a) const {
  const auto [M, N, K] = shape;
  sizes(a.operation("LinearForward", dtype), shape).flops(2.0 * M * N * K);
  a.write("out", out, double(M) * N);
  a.workspace(workspace);
  a.read("inp", inp, double(M) * K), a.read("weight", weight, double(N) * K);
  a.read("bias", bias, N, optional);
}

void LinearBackwardInput::describe(Arguments& a) const {
  const auto [M, N, K] = shape;
  sizes(a.operation("LinearBackwardInput", dtype), shape).flops(2.0 * M * N * K);
  a.write("dinp", dinp, double(M) * K);
  a.workspace(workspace);
  a.read("dout", dout, double(M) * N), a.read("weight", weight, double(N) * K);
}

void LinearBackwardWeight::describe(Arguments& a) const {
  const auto [M, N, K] = shape;
  sizes(a.operation("LinearBackwardWeight", dtype), shape).flops(2.0 * M * N * K);
  a.gradient("dweight", dweight, double(N) * K, accumulate);
  a.gradient("dbias", dbias, N, accumulate, optional);
  a.workspace(workspace);
  a.read("dout", dout, double(M) * N), a.read("inp", inp, double(M) * K);
}

// ---- both gradients -----------------------------------------------------------------------------
// Forwards what each of two gradients describes, except what they share: the name and the
// workspace, which the caller describes, and the sizes, which are those of the first.
class OneOfTwo final : public Arguments {
 public:
  explicit OneOfTwo(Arguments& to) : to_(to) {}
  void next() { is_first_ = false; }
  void size(const char* name, const int& value) override {
    if (is_first_) to_.size(name, value);
  }
  void flops(double n) override { to_.flops(flops_ += n); }
  void rule(bool holds, const char* otherwise) override { to_.rule(holds, otherwise); }

 private:
  void begin(const char*, DType) override {}
  void tensor(const TensorArgument& t) override {
    if (t.need != Need::workspace) to_.tensor(t);
  }

  Arguments& to_;
  bool is_first_ = true;
  double flops_ = 0;
};

template <class Both>
void describe_both(Arguments& a, const char* name, const Both& op) {
  const auto& [weight, input, workspace] = op;
  OneOfTwo gradient(a.operation(name, weight.dtype));
  weight.describe(gradient);
  gradient.next();
  input.describe(gradient);
  a.rule(weight.dtype == input.dtype && weight.dout == input.dout &&
             std::memcmp(&weight.shape, &input.shape, sizeof weight.shape) == 0,
         "the two gradients must be of one layer");
  a.workspace(workspace);
}
template <>
void LinearBackward::describe(Arguments& a) const {
  describe_both(a, "LinearBackward", *this);
}
template <>
void GeluLinearBackward::describe(Arguments& a) const {
  describe_both(a, "GeluLinearBackward", *this);
}
template <>
void ConvBackward::describe(Arguments& a) const {
  describe_both(a, "ConvBackward", *this);
}
template <>
void ConvBackwardSums::describe(Arguments& a) const {
  describe_both(a, "ConvBackwardSums", *this);
}

// ---- activations --------------------------------------------------------------------------------
void BiasGeluForward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("BiasGeluForward", dtype), shape).flops(20 * n);
  drop_rules(a, *this, shape);
  a.write("out", out, n);
  a.read("inp", inp, n), a.read("bias", bias, shape.C);
  a.read("params", params, 1, needed_if(drops(*this)));
}

void BiasGeluBackward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("BiasGeluBackward", dtype), shape).flops(30 * n);
  drop_rules(a, *this, shape);
  a.write("dinp", dinp, n);
  a.gradient("dbias", dbias, shape.C, accumulate);
  a.workspace(workspace);
  a.read("dout", dout, n), a.read("inp", inp, n), a.read("bias", bias, shape.C);
  a.read("params", params, 1, needed_if(drops(*this)));
}

void TanhForward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("TanhForward", dtype), shape).flops(20 * n);
  a.write("out", out, n);
  a.read("inp", inp, n);
}

void TanhBackward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("TanhBackward", dtype), shape).flops(3 * n);
  a.write("dinp", dinp, n);
  a.read("dout", dout, n), a.read("out", out, n);
}

// ---- linear and GELU ----------------------------------------------------------------------------
void LinearGeluForward::describe(Arguments& a) const {
  const auto [M, N, K] = shape;
  const double n = double(M) * N;
  sizes(a.operation("LinearGeluForward", dtype), shape).flops(2 * n * K + 20 * n);
  drop_rules(a, *this, {M, N});
  a.write("out", out, n), a.write("h", h, n, optional);
  a.workspace(workspace);
  a.read("inp", inp, double(M) * K), a.read("weight", weight, double(N) * K);
  a.read("bias", bias, N);
  a.read("params", params, 1, needed_if(drops(*this)));
}

void GeluLinearBackwardInput::describe(Arguments& a) const {
  const auto [M, N, K] = shape;
  const double n = double(M) * K;
  sizes(a.operation("GeluLinearBackwardInput", dtype), shape).flops(2 * n * N + 30 * n);
  drop_rules(a, *this, {M, K});
  a.write("dinp", dinp, n);
  a.gradient("dgelu_bias", dgelu_bias, K, accumulate);
  a.workspace(workspace);
  a.read("dout", dout, double(M) * N), a.read("h", h, n);
  a.read("weight", weight, double(N) * K), a.read("gelu_bias", gelu_bias, K);
  a.read("params", params, 1, needed_if(drops(*this)));
}

// ---- layernorm ----------------------------------------------------------------------------------
void LayerNormForward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("LayerNormForward", dtype), shape).flops(8 * n);
  drop_rules(a, *this, shape);
  a.rule(residual || !drops(*this), "dropout and drop_path require a residual");
  a.write("out", out, n), a.write("sum", sum, residual ? n : 0, needed_if(residual));
  a.write("mean", mean, shape.rows), a.write("rstd", rstd, shape.rows);
  a.read("inp", inp, n), a.read("residual", residual, n, optional);
  a.read("weight", weight, shape.C), a.read("bias", bias, shape.C);
  a.read("params", params, 1, needed_if(drops(*this)));
}

void LayerNormBackward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("LayerNormBackward", dtype), shape).flops(14 * n);
  drop_rules(a, *this, shape);
  a.write("dinp", dinp, n);
  a.write("dresidual", dresidual, n, needed_if(drops(*this)));
  a.gradient("dweight", dweight, shape.C, accumulate);
  a.gradient("dbias", dbias, shape.C, accumulate);
  a.workspace(workspace);
  a.read("dout", dout, n), a.read("dsum", dsum, n, optional);
  a.read("sum", sum, n);
  a.read("mean", mean, shape.rows), a.read("rstd", rstd, shape.rows);
  a.read("weight", weight, shape.C);
  a.read("params", params, 1, needed_if(drops(*this)));
}

// ---- linear and layernorm -----------------------------------------------------------------------
void LinearNormForward::describe(Arguments& a) const {
  const auto [M, N, K] = shape;
  const double n = double(M) * N;
  sizes(a.operation("LinearNormForward", dtype), shape).flops(2 * n * K + 8 * n);
  drop_rules(a, *this, {M, N});
  a.write("out", out, n), a.write("sum", sum, n);
  a.write("mean", mean, M), a.write("rstd", rstd, M);
  a.workspace(workspace);
  a.read("inp", inp, double(M) * K), a.read("stream", stream, n);
  a.read("weight", weight, double(N) * K), a.read("bias", bias, N, optional);
  a.read("norm_weight", norm_weight, N), a.read("norm_bias", norm_bias, N);
  a.read("params", params, 1, needed_if(drops(*this)));
}

void NormLinearBackwardInput::describe(Arguments& a) const {
  const auto [M, N, K] = shape;
  const double n = double(M) * K;
  sizes(a.operation("NormLinearBackwardInput", dtype), shape).flops(2 * n * N + 14 * n);
  drop_rules(a, *this, {M, K});
  a.write("dinp", dinp, n);
  a.write("dresidual", dresidual, n, needed_if(drops(*this)));
  a.gradient("dnorm_weight", dnorm_weight, K, accumulate);
  a.gradient("dnorm_bias", dnorm_bias, K, accumulate);
  a.workspace(workspace);
  a.read("dout", dout, double(M) * N), a.read("dsum", dsum, n, optional), a.read("sum", sum, n);
  a.read("mean", mean, M), a.read("rstd", rstd, M);
  a.read("weight", weight, double(N) * K), a.read("norm_weight", norm_weight, K);
  a.read("params", params, 1, needed_if(drops(*this)));
}

template <>
void NormLinearBackward::describe(Arguments& a) const {
  describe_both(a, "NormLinearBackward", *this);
}

// ---- attention ----------------------------------------------------------------------------------
void AttentionForward::describe(Arguments& a) const {
  const double n = queries(shape) * shape.D;
  sizes(a.operation("AttentionForward", dtype), shape).flops(4 * n * shape.N);
  a.rule(drop >= 0 && drop <= 1, "drop must be in 0-1");
  a.write("out", out, n), a.write("lse", lse, queries(shape));
  a.workspace(workspace);
  a.read_part("qkv", qkv, projections(shape), 3 * keys(shape) * shape.D);
  a.read("params", params, 1, needed_if(drop > 0));
}

void AttentionBackward::describe(Arguments& a) const {
  const double n = queries(shape) * shape.D, all = 3 * keys(shape) * shape.D;
  sizes(a.operation("AttentionBackward", dtype), shape).flops(10 * n * shape.N);
  a.rule(drop >= 0 && drop <= 1, "drop must be in 0-1");
  a.write("dqkv", dqkv, all);
  a.workspace(workspace);
  a.read("dout", dout, n), a.read_part("qkv", qkv, projections(shape), all);
  a.read("out", out, n), a.read("lse", lse, queries(shape));
  a.read("params", params, 1, needed_if(drop > 0));
}

// ---- tokens -------------------------------------------------------------------------------------
void EmbedForward::describe(Arguments& a) const {
  const double B = shape.B, n = double(shape.P) * shape.C, tokens = double(shape.prefix) * shape.C;
  sizes(a.operation("EmbedForward", dtype), shape).flops(B * n);
  a.write("out", out, B * (tokens + n));
  a.read("patches", patches, B * n), a.read("class_token", class_token, shape.C);
  a.read("dist_token", dist_token, shape.C, needed_if(shape.prefix == 2));
  a.read("position", position, tokens + n);
}

void EmbedBackward::describe(Arguments& a) const {
  const double B = shape.B, n = double(shape.P) * shape.C, tokens = double(shape.prefix) * shape.C;
  sizes(a.operation("EmbedBackward", dtype), shape).flops(B * n);
  a.write("dpatches", dpatches, B * n);
  a.gradient("dclass_token", dclass_token, shape.C, accumulate);
  a.gradient("ddist_token", ddist_token, shape.C, accumulate, needed_if(shape.prefix == 2));
  a.gradient("dposition", dposition, tokens + n, accumulate);
  a.read("dout", dout, B * (tokens + n));
}

void TakeTokensForward::describe(Arguments& a) const {
  const double taken = double(shape.B) * shape.count * shape.C;
  sizes(a.operation("TakeTokensForward", dtype), shape).flops(0);
  a.write("out", out, taken);
  a.read_part("inp", inp, taken, double(shape.B) * shape.N * shape.C);
}

void TakeTokensBackward::describe(Arguments& a) const {
  const double row = double(shape.B) * shape.C;
  sizes(a.operation("TakeTokensBackward", dtype), shape).flops(0);
  a.write_part("dinp", dinp, row * (shape.N - shape.first), row * shape.N);
  a.read("dout", dout, row * shape.count);
}

// ---- convolution --------------------------------------------------------------------------------
void ConvForward::describe(Arguments& a) const {
  sizes(a.operation("ConvForward", dtype), shape).flops(shape.flops());
  a.write("out", out, shape.out_count());
  a.write("batch_stats", batch_stats, 2.0 * shape.K, optional);
  a.workspace(workspace);
  a.read("inp", inp, shape.inp_count()), a.read("weight", weight, shape.weight_count());
}

void ConvBackwardInput::describe(Arguments& a) const {
  sizes(a.operation("ConvBackwardInput", dtype), shape).flops(shape.flops());
  a.write("dinp", dinp, shape.inp_count());
  a.workspace(workspace);
  a.read("dout", dout, shape.out_count()), a.read("add", add, shape.inp_count(), optional);
  a.read("weight", weight, shape.weight_count());
}

void ConvBackwardWeight::describe(Arguments& a) const {
  sizes(a.operation("ConvBackwardWeight", dtype), shape).flops(shape.flops());
  a.gradient("dweight", dweight, shape.weight_count(), accumulate);
  a.workspace(workspace);
  a.read("dout", dout, shape.out_count()), a.read("inp", inp, shape.inp_count());
}

// ---- batch norm ---------------------------------------------------------------------------------
void BatchNormForward::describe(Arguments& a) const {
  const double n = count(shape), C = shape.C;
  const Norm &own = norm, &other = residual_norm;
  const bool two = other.moments != nullptr;
  sizes(a.operation("BatchNormForward", dtype), shape).flops(two ? 7 * n : 4 * n);
  a.size("parts", parts);
  a.rule(!own.running_mean == !own.running_var && !other.running_mean == !other.running_var,
         "running_mean and running_var must be given together");
  a.rule(!relu_mask || (relu && residual), "relu_mask requires relu and a residual");
  a.rule(!two || residual, "residual_norm requires a residual");
  a.write("out", out, n), a.write("relu_mask", relu_mask, words(shape), optional);
  a.read("inp", inp, n), a.read("residual", residual, n, optional);
  a.write("mean", own.mean, C), a.write("rstd", own.rstd, C);
  a.update("running_mean", own.running_mean, C, optional);
  a.update("running_var", own.running_var, C, optional);
  a.read("moments", own.moments, 2 * parts * C);
  a.read("weight", own.weight, C), a.read("bias", own.bias, C);
  a.write("residual_mean", other.mean, C, needed_if(two));
  a.write("residual_rstd", other.rstd, C, needed_if(two));
  a.update("residual_running_mean", other.running_mean, C, optional);
  a.update("residual_running_var", other.running_var, C, optional);
  a.read("residual_moments", other.moments, 2 * parts * C, optional);
  a.read("residual_weight", other.weight, C, needed_if(two));
  a.read("residual_bias", other.bias, C, needed_if(two));
}

void BatchNormEvaluate::describe(Arguments& a) const {
  const double n = count(shape), C = shape.C;
  sizes(a.operation("BatchNormEvaluate", dtype), shape).flops(4 * n);
  a.write("out", out, n);
  a.read("inp", inp, n), a.read("residual", residual, n, optional);
  a.read("running_mean", running_mean, C), a.read("running_var", running_var, C);
  a.read("weight", weight, C), a.read("bias", bias, C);
}

void BatchNormBackwardSums::describe(Arguments& a) const {
  const double n = count(shape), C = shape.C;
  sizes(a.operation("BatchNormBackwardSums", dtype), shape).flops(6 * n);
  a.write("sums", sums, 2 * C);
  a.gradient("dweight", dweight, C, accumulate), a.gradient("dbias", dbias, C, accumulate);
  a.write("g", g, n, optional);
  a.workspace(workspace);
  a.read("dout", dout, n), a.read("relu_mask", relu_mask, words(shape), optional);
  a.read("inp", inp, n);
  a.read("mean", mean, C), a.read("rstd", rstd, C), a.read("weight", weight, C);
  a.read("bias", bias, C);
}

ConvBackwardInput ConvBackwardInputSums::input_gradient() const {
  return {.dinp = dinp,
          .workspace = workspace,
          .dout = dout,
          .add = add,
          .weight = weight,
          .shape = shape,
          .dtype = dtype};
}

BatchNormBackwardSums ConvBackwardInputSums::norm_sums() const {
  return {.sums = sums,
          .dweight = dnorm_weight,
          .dbias = dnorm_bias,
          .g = norm_relu_mask ? dinp : nullptr,
          .workspace = workspace,
          .dout = dinp,
          .relu_mask = norm_relu_mask,
          .inp = norm_inp,
          .mean = mean,
          .rstd = rstd,
          .weight = norm_weight,
          .bias = norm_bias,
          .shape = {.rows = shape.N * shape.H * shape.W, .C = shape.C},
          .relu = relu,
          .dtype = dtype,
          .accumulate = accumulate};
}

void ConvBackwardInputSums::describe(Arguments& a) const {
  const double n = shape.inp_count(), C = shape.C;
  sizes(a.operation("ConvBackwardInputSums", dtype), shape).flops(shape.flops() + 6 * n);
  a.rule(!norm_relu_mask || relu, "norm_relu_mask requires relu");
  a.write("dinp", dinp, n), a.write("sums", sums, 2 * C);
  a.gradient("dnorm_weight", dnorm_weight, C, accumulate);
  a.gradient("dnorm_bias", dnorm_bias, C, accumulate);
  a.workspace(workspace);
  a.read("dout", dout, shape.out_count()), a.read("add", add, n, optional);
  a.read("norm_relu_mask", norm_relu_mask, words(norm_sums().shape), optional);
  a.read("norm_inp", norm_inp, n);
  a.read("mean", mean, C), a.read("rstd", rstd, C);
  a.read("norm_weight", norm_weight, C), a.read("norm_bias", norm_bias, C);
  a.read("weight", weight, shape.weight_count());
}

void BatchNormBackward::describe(Arguments& a) const {
  const double n = count(shape), C = shape.C;
  const Norm &own = norm, &other = residual_norm;
  const bool two = other.dinp != nullptr;
  sizes(a.operation("BatchNormBackward", dtype), shape).flops(two ? 15 * n : 8 * n);
  a.size("parts", parts);
  a.rule(!two || !relu, "with residual_norm, dout is g: relu must be false");
  a.read("dout", dout, n);
  a.write("dinp", own.dinp, n), a.read("sums", own.sums, 2 * C), a.read("inp", own.inp, n);
  a.read("mean", own.mean, C), a.read("rstd", own.rstd, C), a.read("weight", own.weight, C);
  a.read("bias", bias, C);
  a.write("residual_dinp", other.dinp, n, optional);
  a.read("residual_sums", other.sums, 2 * C, needed_if(two));
  a.read("residual", other.inp, n, needed_if(two));
  a.read("residual_mean", other.mean, C, needed_if(two));
  a.read("residual_rstd", other.rstd, C, needed_if(two));
  a.read("residual_weight", other.weight, C, needed_if(two));
}

// ---- pooling ------------------------------------------------------------------------------------
void MaxPoolForward::describe(Arguments& a) const {
  sizes(a.operation("MaxPoolForward", dtype), shape).flops(shape.out_count() * shape.R * shape.R);
  a.write("out", out, shape.out_count()), a.write("index", index, shape.out_count());
  a.read("inp", inp, shape.inp_count());
  a.rule(shape.R <= 16, "R must be in 1-16, so that an index fits a byte");
}

void MaxPoolBackward::describe(Arguments& a) const {
  sizes(a.operation("MaxPoolBackward", dtype), shape).flops(shape.out_count());
  a.write("dinp", dinp, shape.inp_count());
  a.read("dout", dout, shape.out_count()), a.read("index", index, shape.out_count());
  a.rule(shape.R <= 16, "R must be in 1-16, so that an index fits a byte");
}

void AveragePoolForward::describe(Arguments& a) const {
  const double n = double(shape.N) * shape.C;
  sizes(a.operation("AveragePoolForward", dtype), shape).flops(n * shape.positions);
  a.write("out", out, n);
  a.read("inp", inp, n * shape.positions);
}

void AveragePoolBackward::describe(Arguments& a) const {
  const double n = double(shape.N) * shape.C;
  sizes(a.operation("AveragePoolBackward", dtype), shape).flops(n * shape.positions);
  a.write("dinp", dinp, n * shape.positions);
  a.read("dout", dout, n);
}

// ---- dropout ------------------------------------------------------------------------------------
void Dropout::describe(Arguments& a) const {
  const double n = double(shape.B) * shape.elements;
  a.operation("Dropout", dtype).flops(n);
  a.size("B", shape.B), a.size("elements", shape.elements);
  a.rule(drop >= 0 && drop <= 1, "drop must be in 0-1");
  a.write("out", out, n);
  a.read("inp", inp, n), a.read("params", params, 1);
}

// ---- loss ---------------------------------------------------------------------------------------
void CrossEntropyForward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("CrossEntropyForward", dtype), shape).flops(4 * n);
  a.rule(smoothing >= 0 && smoothing <= 1, "smoothing must be in 0-1");
  a.rule(!mixes || shape.B % 2 == 0, odd);
  a.gradient("loss", loss, shape.B, add);
  a.write("lse", lse, shape.B), a.write("top1", top1, shape.B);
  a.read("logits", logits, n), a.read("labels", labels, shape.B);
  a.read("mixes", mixes, shape.B, optional);
}

void CrossEntropyBackward::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("CrossEntropyBackward", dtype), shape).flops(4 * n);
  a.rule(smoothing >= 0 && smoothing <= 1, "smoothing must be in 0-1");
  a.rule(!mixes || shape.B % 2 == 0, odd);
  a.write("dlogits", dlogits, n);
  a.read("logits", logits, n), a.read("lse", lse, shape.B), a.read("labels", labels, shape.B);
  a.read("mixes", mixes, shape.B, optional), a.read("params", params, 1);
  a.read("state", state, 1);
}

void MeanLogits::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("MeanLogits", dtype), shape).flops(2 * n);
  a.write("out", out, n);
  a.read("head", head, n), a.read("dist", dist, n);
}

void Metrics::describe(Arguments& a) const {
  const double n = count(shape);
  sizes(a.operation("Metrics", dtype), shape).flops(2 * n);
  a.update("sums", sums, 4);
  a.read("loss", loss, shape.B), a.read("logits", logits, n), a.read("labels", labels, shape.B);
}

void GradientTail::describe(Arguments& a) const {
  a.operation("GradientTail", DType::fp32).flops(2.0 * B);
  a.size("B", B);
  a.gradient("tail", tail, 4, accumulate);
  a.rule(!loss == !top1, "loss and top1 must be given together");
  a.read("loss", loss, B, optional), a.read("top1", top1, B, optional);
  a.read("params", params, 1);
}

// ---- optimizer ----------------------------------------------------------------------------------
void GradientSquares::describe(Arguments& a) const {
  const auto n = static_cast<double>(count);
  a.operation("GradientSquares", DType::fp32).flops(2 * n);
  a.rule(count > 0 && count <= max_elements, "count must be 1 .. 2^40");
  a.rule(first <= max_elements, "first must be 0 .. 2^40");
  a.write("sums", sums, static_cast<double>(first) + std::ceil(n / norm_block));
  a.read("grad", grad, n);
}

void GradientNorm::describe(Arguments& a) const {
  a.operation("GradientNorm", DType::fp32).flops(norm_blocks);
  a.size("norm_blocks", norm_blocks);
  a.rule(scaling.growth_interval >= 0, "scaling.growth_interval must not be negative");
  a.update("state", state, 1);
  a.read("sums", sums, norm_blocks), a.read("params", params, 1);
}

void OptimizerUpdate::describe(Arguments& a) const {
  const auto n = static_cast<double>(count);
  const bool sgd = kind == OptimizerKind::sgd;
  a.operation("OptimizerUpdate", dtype).flops(15 * n);
  a.rule(count > 0 && count <= max_elements, "count must be 1 .. 2^40");
  a.rule(dtype != DType::fp32 || !compute_weights,
         "compute_weights must be null where dtype is fp32");
  a.update("weight", weight, n);
  a.write("compute_weights", compute_weights, n, needed_if(dtype != DType::fp32));
  a.update("m", m, n, needed_if(!sgd || momentum != 0)), a.update("v", v, n, needed_if(!sgd));
  a.update("ema", ema, n, optional);
  a.read("state", state, 1);
  a.read("grad", grad, n), a.read("decay", decay, std::ceil(n / decay_chunk));
  a.read("lr_scale", lr_scale, std::ceil(n / decay_chunk), optional), a.read("params", params, 1);
}

void RoundWeights::describe(Arguments& a) const {
  const auto n = static_cast<double>(count);
  a.operation("RoundWeights", dtype).flops(n);
  a.rule(count > 0 && count <= max_elements, "count must be 1 .. 2^40");
  a.write("out", out, n);
  a.read("inp", inp, n);
}

void SumParts::describe(Arguments& a) const {
  const auto n = static_cast<double>(count), rows = static_cast<double>(parts);
  a.operation("SumParts", dtype).flops(rows * n);
  a.size("parts", parts);
  a.rule(count > 0 && count <= max_elements, "count must be 1 .. 2^40");
  a.rule(stride <= max_elements && (parts == 1 || stride >= count), "stride must be count .. 2^40");
  a.rule(parts == 1 || stride % OptimizerUpdate::decay_chunk == 0,
         "stride must be a multiple of 64");
  const double all = (rows - 1) * static_cast<double>(stride) + n;
  a.write_part("out", out, n, out == inp ? all : n);
  a.read_part("inp", inp, rows * n, all);
}

// ---- the check ----------------------------------------------------------------------------------
void Validation::begin(const char* name, DType dtype) {
  operation_ = name;
  if (limits_.only_fp32 && dtype != DType::fp32)
    refuse(operation_, "this device doesn't support this dtype");
}

void Validation::size(const char* name, const int& value) {
  if (value < 1 || value > max_size)
    refuse(operation_, std::string(name) + " is " + std::to_string(value) + ", not 1 to " +
                           std::to_string(max_size));
}

void Validation::rule(bool holds, const char* otherwise) {
  if (!holds) refuse(operation_, otherwise);
}

void Validation::tensor(const TensorArgument& t) {
  const bool needed =
      t.need == Need::required || (t.need == Need::workspace && limits_.needs_workspace);
  if (needed && !*t.field) refuse(operation_, std::string(t.name) + " is null");
  const size_t alignment =
      t.need == Need::workspace ? limits_.workspace_alignment : limits_.alignment;
  if (reinterpret_cast<uintptr_t>(*t.field) % alignment != 0)
    refuse(operation_, std::string(t.name) + " is not at a multiple of " +
                           std::to_string(alignment) + " bytes");
}

}  // namespace bv
