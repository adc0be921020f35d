// Compares updates with those of torch.optim in float64 (tests/golden/make_golden.py): three steps
// with given gradients, with and without clipping.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/backend.h"
#include "tests/golden/formula.h"

namespace bv::test::golden {
namespace {

constexpr size_t chunk = OptimizerUpdate::decay_chunk;

size_t count_of(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t d : shape) count *= size_t(d);
  return count;
}

// The tensors in flat arenas, each starting at a multiple of `chunk`.
class Update {
 public:
  Update(const Optimizers& all, const OptimizerCase& c)
      : all_(all), case_(c), backend_(make_cpu_backend(2, false)) {
    for (const auto& [name, shape] : all.tensors) {
      offsets_.push_back(count_);
      const size_t chunks = (count_of(shape) + chunk - 1) / chunk;
      count_ += chunks * chunk;
      decay_.insert(decay_.end(), chunks, shape.size() > 1);
    }
    for (DeviceMemory* arena : {&weight_, &m_, &v_, &grad_}) {
      *arena = DeviceMemory(*backend_, count_ * sizeof(float));
      backend_->zero(arena->data(), arena->bytes(), nullptr);
    }
    for (size_t t = 0; t < offsets_.size(); ++t) {
      const auto values = parameter(all.tensors[t].first, all.tensors[t].second);
      std::memcpy(at(weight_, t), values.data(), values.size() * sizeof(float));
    }
  }

  void step(size_t s) {
    params_.lr = float(all_.lr[s]);
    params_.divisor = 1;
    for (size_t t = 0; t < offsets_.size(); ++t) {
      const auto& [name, shape] = all_.tensors[t];
      auto values = signed_values(name + "/gradient" + std::to_string(s), count_of(shape));
      for (float& v : values) v *= float(all_.gradient_scales[s]);
      std::memcpy(at(grad_, t), values.data(), values.size() * sizeof(float));
    }
    Kernels& kernels = backend_->kernels();
    std::vector<double> sums(count_ / GradientSquares::norm_block + 1);
    kernels.run(GradientSquares{.sums = sums.data(), .grad = grad_.data<float>(), .count = count_},
                nullptr);
    kernels.run(GradientNorm{.state = &state_,
                             .sums = sums.data(),
                             .params = &params_,
                             .norm_blocks = static_cast<int>(sums.size())},
                nullptr);
    kernels.run(update(), nullptr);
    backend_->synchronize(nullptr);
  }

  float grad_norm() const { return state_.grad_norm; }
  const float* weight(size_t t) const { return at(weight_, t); }
  const float* m(size_t t) const { return at(m_, t); }
  const float* v(size_t t) const { return at(v_, t); }

 private:
  float* at(const DeviceMemory& arena, size_t t) const { return arena.data<float>() + offsets_[t]; }

  OptimizerUpdate update() {
    const bool sgd = case_.kind == "sgd";
    return {.weight = weight_.data<float>(),
            .compute_weights = nullptr,
            .m = sgd && case_.momentum == 0 ? nullptr : m_.data<float>(),
            .v = sgd ? nullptr : v_.data<float>(),
            .state = &state_,
            .grad = grad_.data<float>(),
            .decay = decay_.data(),
            .params = &params_,
            .count = count_,
            .momentum = float(case_.momentum),
            .beta1 = case_.beta1,
            .beta2 = case_.beta2,
            .eps = float(case_.eps),
            .weight_decay = float(case_.weight_decay),
            .clip = float(case_.clip),
            .kind = sgd                    ? OptimizerKind::sgd
                    : case_.kind == "adam" ? OptimizerKind::adam
                                           : OptimizerKind::adamw,
            .nesterov = case_.nesterov,
            .dtype = DType::fp32};
  }

  const Optimizers& all_;
  const OptimizerCase& case_;
  std::unique_ptr<Backend> backend_;
  std::vector<size_t> offsets_;
  size_t count_ = 0;
  std::vector<uint8_t> decay_;
  DeviceMemory weight_, m_, v_, grad_;
  StepParams params_{};
  UpdateState state_{.loss_scale = 1};
};

// Relative to the largest element.
void expect_near(const float* got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * largest) << what << " " << i;
}

TEST(GoldenOptimizer, ThreeStepsOfEachAreTorchs) {
  const Optimizers all = read_optimizers();
  for (const OptimizerCase& c : all.cases) {
    Update update(all, c);
    for (size_t s = 0; s < all.lr.size(); ++s) {
      SCOPED_TRACE(c.name + ", step " + std::to_string(s + 1));
      update.step(s);
      EXPECT_NEAR(update.grad_norm(), c.grad_norms[s], 1e-6 * c.grad_norms[s]);
      for (size_t t = 0; t < all.tensors.size(); ++t) {
        const std::string& name = all.tensors[t].first;
        const OptimizerState& want = c.after[s].at(name);
        expect_near(update.weight(t), want.weight, 1e-5, name);
        expect_near(update.m(t), want.m, 1e-5, name + " m");
        expect_near(update.v(t), want.v, 1e-5, name + " v");
      }
    }
  }
}

}  // namespace
}  // namespace bv::test::golden
