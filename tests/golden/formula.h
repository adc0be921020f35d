// Golden files: results of PyTorch with timm and torchvision for weights and pictures computed by a
// formula. formula.py documents the formula; this implementation gives the same bits. Also a reader
// of these files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/family.h"

namespace bv::test::golden {

std::vector<float> signed_values(std::string_view name, size_t count);  // uniform in [-1, 1)
std::vector<float> parameter(std::string_view name, std::span<const int64_t> shape);
std::vector<uint8_t> images(int batch, int size);     // [batch, size, size, 3]
std::vector<int32_t> labels(int batch, int classes);  // [batch]
std::vector<size_t> sample_indices(std::string_view name, size_t count);

// The values that a golden file has for a tensor.
struct Summary {
  double norm, max;  // L2; largest magnitude
  std::vector<double> projections, samples;
};
Summary summarize(std::string_view name, std::span<const float> values);

// Empty if `got` equals `want` within `tolerance`: norm and projections relative to the norm,
// samples and maximum relative to the largest element; else a line with the difference. NaN never
// passes.
std::string difference(const Summary& got, const Summary& want, double tolerance);

struct GoldenTensor {
  std::vector<int64_t> shape;
  Summary summary;
  double float32_error;  // of PyTorch's own fp32, relative to the largest element; 0: unknown
};
struct Model {
  std::string model;  // our name
  int image_size = 0, patch_size = 0, classes = 0, batch = 0;
  std::string sizes;  // a JSON object: sizes that differ from the model's
  GraphOptions options;
  uint32_t seed = 0, epoch = 0, position = 0;  // for drawing the dropout masks
  int64_t parameters = 0;
  double loss = 0;
  std::vector<double> logits;  // [batch, classes], in training
  std::vector<double> heads;   // [2, batch, classes], with mean `logits`; empty for one head
  // Logits of evaluation, if they differ: without dropout, with the running statistics after one
  // step of training. Else empty.
  std::vector<double> evaluation_logits;
  std::map<std::string, GoldenTensor> gradients;  // of the mean loss, for every parameter
  std::map<std::string, GoldenTensor> buffers;    // after one step of training
};
Model read_model(const std::string& name);  // "vit_tiny_224", "resnet34"

struct OptimizerState {
  std::vector<double> weight, m, v;  // m, v: empty if the optimizer lacks them
};
struct OptimizerCase {
  std::string name, kind;  // kind: sgd adam adamw
  double momentum, beta1, beta2, eps, weight_decay, clip;
  bool nesterov;
  std::vector<double> grad_norms;                            // of each step, before clipping
  std::vector<std::map<std::string, OptimizerState>> after;  // each step, by tensor
};
// A tensor starts as parameter(name, shape); its gradient in step s is gradient_scales[s] *
// signed_values(name + "/gradient" + s). Tensors of one dimension have no weight decay.
struct Optimizers {
  std::vector<double> lr, gradient_scales;  // of each step
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
  std::vector<OptimizerCase> cases;
};
Optimizers read_optimizers();

// Values computed by formula.py.
struct FormulaCheck {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<size_t> indices, samples;
  std::vector<float> values;
  std::vector<double> projections;
};
struct FormulaChecks {
  std::vector<int> pixels;  // of images(1, 8)
  std::vector<FormulaCheck> parameters;
};
FormulaChecks read_formula_checks();

}  // namespace bv::test::golden
