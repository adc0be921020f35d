// Golden files: what PyTorch with timm and torchvision computed from weights and pictures that a
// formula gives, the same bits in formula.py and here (formula.py states it), and a reader of the
// files.
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

// What a golden file keeps of a tensor.
struct Summary {
  double norm, max;  // L2; largest magnitude
  std::vector<double> projections, samples;
};
Summary summarize(std::string_view name, std::span<const float> values);

// Empty if `got` is `want` within `tolerance`: norm and projections relative to the norm, samples
// and maximum relative to the largest element; else a line that says by how much it is off. A NaN
// is never within.
std::string difference(const Summary& got, const Summary& want, double tolerance);

struct GoldenTensor {
  std::vector<int64_t> shape;
  Summary summary;
  double float32_error;  // of PyTorch's own, relative to the largest element; 0: not stated
};
struct Model {
  std::string model;  // our name
  int image_size = 0, patch_size = 0, classes = 0, batch = 0;
  std::string sizes;  // a JSON object: those that aren't the model's own
  GraphOptions options;
  uint32_t seed = 0, epoch = 0, position = 0;  // what the masks of its dropout are drawn by
  int64_t parameters = 0;
  double loss = 0;
  std::vector<double> logits;  // [batch, classes], in training
  std::vector<double>
      heads;  // [2, batch, classes], whose mean these are; empty for a model with one
  // Where they differ: without dropout, with the running statistics as one step of training leaves
  // them. Else empty.
  std::vector<double> evaluation_logits;
  std::map<std::string, GoldenTensor> gradients;  // of every parameter, of the mean loss
  std::map<std::string, GoldenTensor> buffers;    // after that step
};
Model read_model(const std::string& name);  // "vit_tiny_224", "resnet34"

struct OptimizerState {
  std::vector<double> weight, m, v;  // m, v: empty where the optimizer has none
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

// Values that formula.py gave.
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
