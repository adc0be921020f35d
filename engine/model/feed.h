// The host's input to a step: batches and StepParams. The model always reads slot 0, since recorded
// graphs hold its addresses. With an upload stream, batches arrive in slots 1 and 2 in turn, and
// stream 0 copies them to slot 0. StepParams pass through a ring buffer in host memory, as the host
// may be a whole update ahead of the device. In a pipeline, the first stage holds the images and
// sends the targets to the last stage, which computes the loss.
#pragma once
#include <memory>
#include <span>

#include "data/loader.h"
#include "engine/model/memory.h"
#include "models/graph/graph.h"

namespace bv {

class Feed {
 public:
  struct Sizes {
    int batch, height, width;  // images per micro-step in this process; largest stored size
    int layers;                // ImageOps per image
    bool mixing;               // each image has a Mix
    int params_in_flight;      // set_params() calls whose data the device may not have read yet
    int micro_batches = 1;     // equal parts of the batch, with StepParams of their own
    bool images = true, targets = true;  // parts of a batch that this process holds
  };
  Feed(Backend&, const Sizes&);
  size_t bytes() const { return slots() * slot_bytes_ + params_bytes_; }
  void allocate();
  void bind(Context&, int micro) const;  // images, crops, ops, mixes, labels, params
  const StepParams* params(int micro) const;
  std::span<char> targets() const;  // mixes and labels of the whole batch

  void upload(const Batch&);  // does nothing if this process holds no images
  void wait_for_upload();
  void set_params(std::span<const StepParams>);  // one per micro-batch

 private:
  // One field of a batch in a slot. Each micro-batch uses `used` bytes at a stride of `each`, so
  // that the data of every micro-batch is aligned for the kernels.
  struct Field {
    size_t at, each, used;
    size_t end(int micro_batches) const { return at + each * static_cast<size_t>(micro_batches); }
  };
  Field field(size_t at, bool wanted, size_t bytes_of_row) const;
  size_t slots() const { return sizes_.images && backend_->upload_stream() ? 3 : 1; }
  char* slot(int number) const {
    return memory_.data() + params_bytes_ + static_cast<size_t>(number) * slot_bytes_;
  }
  void copy(const Batch&, char* slot, Stream);
  void copy(char* slot, const Field&, const void* from, size_t used, Stream);

  Backend* backend_;
  Sizes sizes_;
  size_t rows_;  // images per micro-batch
  Field images_, crops_, ops_, mixes_, labels_;
  size_t params_bytes_, slot_bytes_;
  DeviceMemory memory_;  // params; slot 0, which the model reads; two upload slots
  Event uploaded_[2]{}, consumed_[2]{};
  int uploads_ = 0;
  std::shared_ptr<void> params_;
  size_t params_written_ = 0;
};

}  // namespace bv
