#include "tests/golden/model_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/options/model_config.h"
#include "models/family.h"
#include "tests/files.h"
#include "tests/square_input.h"

namespace bv::test::golden {

namespace {

Graph graph_of(const Model& m, DType dtype) {
  auto file = nlohmann::json::parse(contents(models_folder() / (m.model + ".json")));
  file.update(nlohmann::json::parse(m.sizes));
  const ModelConfig config = parse_model_config(file.dump(), m.model, m.model);
  const InputShape input = square_input(m.batch, m.image_size, std::max(1, m.patch_size));
  return config.family->build(config.sizes, m.options, input, dtype);
}

}  // namespace

ModelRun::ModelRun(std::unique_ptr<Backend> backend, const Model& m, DType dtype)
    : backend_(std::move(backend)),
      graph_(graph_of(m, dtype)),
      parameters_(*backend_, graph_, 0),
      stage_(*backend_, graph_, 0, static_cast<int>(graph_.nodes().size()), 1) {
  parameters_.allocate();
  stage_.allocate();
  images_ = upload(images(m.batch, m.image_size));
  crops_ = upload(std::vector<Crop>(static_cast<size_t>(m.batch)));
  labels_ = upload(labels(m.batch, m.classes));
  const auto batch = static_cast<float>(m.batch);
  params_ = upload(std::vector<StepParams>{{.seed = m.seed,
                                            .epoch = m.epoch,
                                            .position = m.position,
                                            .grad_scale = 1 / batch,
                                            .divisor = 1,
                                            .count = batch}});
  state_ = upload(std::vector<UpdateState>{{.loss_scale = 1}});
  sums_ = upload(std::vector<double>(4));
}

void ModelRun::set_formula_weights() {
  std::map<std::string, HostTensor> weights;
  for (const auto* infos : {&graph_.parameters(), &graph_.buffers()})
    for (const ParameterInfo& p : *infos)
      weights[p.name] = {.shape = p.shape, .data = parameter(p.name, p.shape)};
  parameters_.set_weights(weights);
}

void ModelRun::forward() { stage_.forward(run(), 0); }

void ModelRun::evaluate() {
  Context evaluation = run();
  evaluation.training = false;
  stage_.forward(evaluation, 0);
}

void ModelRun::backward() { stage_.backward(run(), 0); }

std::vector<float> ModelRun::values(const std::string& name) const {
  const auto& tensors = graph_.tensors();
  const auto found = std::ranges::find(tensors, name, &TensorInfo::name);
  return download({static_cast<int>(found - tensors.begin())});
}

std::vector<float> ModelRun::download(Tensor t) const {
  std::vector<float> values(graph_.info(t).bytes() / sizeof(float));
  backend_->to_host(values.data(), stage_.place(0, t), values.size() * sizeof(float), nullptr);
  backend_->synchronize(nullptr);
  return values;
}

template <class T>
DeviceMemory ModelRun::upload(const std::vector<T>& values) const {
  DeviceMemory memory(*backend_, values.size() * sizeof(T));
  backend_->to_device(memory.data(), values.data(), memory.bytes(), nullptr);
  backend_->synchronize(nullptr);
  return memory;
}

Context ModelRun::run() const {
  return {.weights = parameters_.weights(),
          .compute_weights = parameters_.compute_weights(),
          .grads = parameters_.grads(),
          .buffers = parameters_.buffers(),
          .params = params_.data<StepParams>(),
          .state = state_.data<UpdateState>(),
          .sums = sums_.data<double>(),
          .images = images_.data<uint8_t>(),
          .crops = crops_.data<Crop>(),
          .labels = labels_.data<int32_t>()};
}

}  // namespace bv::test::golden
