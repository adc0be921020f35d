// Runs a model on a device with given weights, for one batch of the golden pictures: forward,
// backward and results. Without trainer and loader, it tests graph, plan and kernels.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model_chunk.h"
#include "engine/model/parameters.h"
#include "tests/golden/formula.h"

namespace bv::test::golden {

class ModelRun {
 public:
  // dtype: of the graph's computation; logits, losses and values are returned in fp32.
  ModelRun(std::unique_ptr<Backend>, const Model&, DType dtype = DType::fp32);

  const Graph& graph() const { return graph_; }
  Parameters& parameters() { return parameters_; }
  void set_formula_weights();
  // The passes run on images(batch, image_size), with mean and std 0.5.
  void forward();  // in training
  void evaluate();
  void backward();  // of the mean loss
  std::vector<float> logits() const { return download(graph_.logits()); }
  std::vector<float> values(const std::string& tensor) const;  // of the graph
  std::vector<float> losses() const { return download(graph_.loss()); }
  // In the shapes that weights files have.
  std::map<std::string, HostTensor> gradients() const { return parameters_.get_gradients(); }
  std::map<std::string, HostTensor> weights() const { return parameters_.get_weights(); }

 private:
  std::vector<float> download(Tensor) const;
  template <class T>
  DeviceMemory upload(const std::vector<T>&) const;
  Context run() const;

  std::unique_ptr<Backend> backend_;
  Graph graph_;
  Parameters parameters_;
  ModelChunk stage_;
  DeviceMemory images_, crops_, labels_, params_, state_, sums_;
};

}  // namespace bv::test::golden
