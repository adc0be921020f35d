#include "tests/golden/model_run.h"

#include "engine/model_config.h"

namespace bv::golden {
namespace {

Vit build(const Model& m) {
  const ModelConfig config = load_model_config(m.model);
  const VitConfig vit{.embed_dim = config.embed_dim,
                      .depth = m.depth ? m.depth : config.depth,
                      .heads = config.heads,
                      .mlp_ratio = static_cast<float>(config.mlp_ratio),
                      .layer_norm_eps = static_cast<float>(config.layer_norm_eps),
                      .classes = m.classes};
  const InputShape input{.batch = m.batch,
                         .height = m.image_size,
                         .width = m.image_size,
                         .size = m.image_size,
                         .patch = m.patch_size,
                         .mean = {.5f, .5f, .5f},
                         .std = {.5f, .5f, .5f}};
  return build_vit(vit, input, DType::fp32);
}

}  // namespace

ModelRun::ModelRun(std::unique_ptr<Backend> backend, const Model& m)
    : backend_(std::move(backend)),
      vit_(build(m)),
      parameters_(*backend_, vit_.graph, {.first_moment = false, .second_moment = false}),
      stage_(*backend_, vit_.graph, 0, static_cast<int>(vit_.graph.nodes().size()), 1) {
  parameters_.allocate();
  stage_.allocate();
  images_ = upload(images(m.batch, m.image_size));
  crops_ = upload(std::vector<Crop>(static_cast<size_t>(m.batch)));
  labels_ = upload(labels(m.batch, m.classes));
  const auto batch = static_cast<float>(m.batch);
  params_ =
      upload(std::vector<StepParams>{{.grad_scale = 1 / batch, .divisor = 1, .count = batch}});
  state_ = upload(std::vector<UpdateState>{{.loss_scale = 1}});
  sums_ = upload(std::vector<double>(4));
}

void ModelRun::set_formula_weights() {
  std::map<std::string, HostTensor> weights;
  for (const ParameterInfo& p : vit_.graph.parameters())
    weights[p.name] = {.shape = p.shape, .data = parameter(p.name, p.shape)};
  parameters_.set_weights(weights);
}

void ModelRun::forward() { stage_.forward(run(), 0); }

void ModelRun::backward() { stage_.backward(run(), 0); }

std::map<std::string, std::vector<float>> ModelRun::gradients() const {
  std::map<std::string, std::vector<float>> gradients;
  for (const ParameterInfo& p : vit_.graph.parameters()) {
    auto& values = gradients[p.name];
    values.resize(p.count());
    backend_->to_host(values.data(), parameters_.grads() + p.offset, values.size() * sizeof(float),
                      nullptr);
  }
  backend_->synchronize(nullptr);
  return gradients;
}

std::vector<float> ModelRun::download(Tensor t) const {
  std::vector<float> values(vit_.graph.info(t).bytes() / sizeof(float));
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

Run ModelRun::run() const {
  return {.weights = parameters_.weights(),
          .copy = parameters_.copy(),
          .grads = parameters_.grads(),
          .params = params_.data<StepParams>(),
          .state = state_.data<UpdateState>(),
          .sums = sums_.data<double>(),
          .images = images_.data<uint8_t>(),
          .crops = crops_.data<Crop>(),
          .labels = labels_.data<int32_t>()};
}

}  // namespace bv::golden
