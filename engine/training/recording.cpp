#include "engine/training/recording.h"

#include <limits>
#include <memory>
#include <new>

#include "engine/inference/inference.h"

namespace bv {
namespace {

// Returns addresses that are never dereferenced, spaced like real memory.
class RecordingBackend final : public Backend {
 public:
  std::string describe() const override { return "no device"; }
  bool supports(DType) const override { return true; }
  RecordingKernels& kernels() override { return kernels_; }
  void* allocate(size_t bytes) override {
    const uintptr_t address = next_;
    next_ += (bytes + 255) / 256 * 256;
    return reinterpret_cast<void*>(address);
  }
  void release(void*) override {}
  void* allocate_host(size_t bytes) override { return ::operator new(bytes); }
  void release_host(void* p) override { ::operator delete(p); }
  size_t memory_limit() const override { return std::numeric_limits<size_t>::max(); }
  void to_device(void*, const void*, size_t, Stream) override {}
  void to_host(void*, const void*, size_t, Stream) override {}
  void copy(void*, const void*, size_t, Stream) override {}
  void zero(void*, size_t, Stream) override {}
  Stream communication_stream(int) override { return nullptr; }
  void call_on_host(Stream, std::function<void()>) override {}
  Event create_event() override { return nullptr; }
  void record(Event, Stream) override {}
  void wait(Stream, Event) override {}
  void synchronize(Stream) override {}
  void host_wait(Event) override {}

 private:
  RecordingKernels kernels_;
  uintptr_t next_ = uintptr_t{1} << 40;
};

// For SyncBN, which runs collectives inside a step.
class AbsentPeers final : public Communicator {
 public:
  AbsentPeers() : Communicator(0, 2) {}
  void all_reduce(float*, size_t, Stream) override {}
  void all_reduce(double*, size_t, Stream) override {}
  void all_gather(float*, size_t, Stream) override {}
  void broadcast(void*, size_t, int, Stream) override {}
  void reduce_scatter(float*, size_t, Stream) override {}
  void exchange(std::span<const Transfer>, Stream) override {}
  std::unique_ptr<Communicator> group(std::span<const int>) override {
    return std::make_unique<AbsentPeers>();
  }
  void barrier() override {}
  double all_reduce_scalar(double x) override { return x; }
  void busy(Busy) override {}
};

}  // namespace

std::vector<RecordedOperation> record_step(const Graph& given, const TrainerOptions& asked,
                                           bool together) {
  Graph graph = given;
  graph.finish();  // for a stage's graph: the whole model
  TrainerOptions options = asked;
  options.sync.zero = false;
  options.pipeline = {.shape = {.micro_batches = asked.pipeline.shape.micro_batches}};
  RecordingBackend backend;
  backend.kernels().together = together;
  AbsentPeers peers;
  Trainer trainer(backend, options.sync.sync_batchnorm ? &peers : nullptr, graph, options);
  trainer.allocate();
  const Batch batch{.count = options.local_batch};
  trainer.step().micro_step(batch, {.epoch = 0, .first = true, .last = true, .stop = false});
  trainer.step().start_update(0, options.local_batch);
  backend.kernels().counting = false;
  for (const bool averaged : {false, true}) {
    if (averaged && options.optimizer.ema_rate == 0) continue;
    trainer.begin_evaluation(averaged);
    trainer.evaluate(batch);
    trainer.end_evaluation();
  }
  return backend.kernels().operations;
}

std::vector<RecordedOperation> record_forward(const Graph& graph, int batch, int side) {
  RecordingBackend backend;
  Inference inference(backend, nullptr, graph, batch, side);
  inference.allocate();
  inference.begin();
  inference.run({.count = batch});
  inference.end();
  return backend.kernels().operations;
}

std::unique_ptr<Backend> make_recording_backend() { return std::make_unique<RecordingBackend>(); }

double flops_of(const std::vector<RecordedOperation>& operations) {
  double flops = 0;
  for (const RecordedOperation& o : operations) flops += o.count * o.cost.flops;
  return flops;
}

}  // namespace bv
