// What the host sends to the device in each step: batches and StepParams. With an upload stream,
// batches arrive in two slots in turn, one while the model trains on the other's copy. StepParams
// go through a ring of host memory, since the host may be a whole update ahead of the device. A
// pipeline's first stage has the images, and sends its last one what belongs to the loss: the targets.
#pragma once
#include <memory>
#include <span>

#include "data/loader.h"
#include "engine/training/memory.h"
#include "models/graph/graph.h"

namespace bv {

class Feed {
 public:
  struct Sizes {
    int batch, height, width;  // images of a micro-step in this process, as the largest are stored
    int layers;                // ImageOps of each image
    bool mixing;               // each image has a Mix
    int params_in_flight;      // set_params() that the device may not have read yet
    int micro_batches = 1;     // equal parts of the batch, with StepParams of their own
    bool images = true, targets = true;  // what this process has of a batch
  };
  Feed(Backend&, const Sizes&);
  size_t bytes() const { return slots() * slot_bytes_ + params_bytes_; }
  void allocate();
  // Images, crops, ops, mixes, labels and params of a micro-batch of the last uploaded batch, and of
  // every other one whose images have that size.
  void bind(Context&, int micro) const;
  std::span<char> targets() const;  // mixes and labels of the whole batch

  void upload(const Batch&);  // nothing where it has no images
  void wait_for_upload();
  void set_params(std::span<const StepParams>);  // of each micro-batch

 private:
  size_t slots() const { return sizes_.images && backend_->upload_stream() ? 3 : 1; }
  char* slot(int number) const {
    return memory_.data() + params_bytes_ + static_cast<size_t>(number) * slot_bytes_;
  }
  void copy(const Batch&, char* slot, Stream);

  Backend* backend_;
  Sizes sizes_;
  size_t params_bytes_, images_, op_bytes_, mix_bytes_, crops_at_, ops_at_, mixes_at_, labels_at_,
      slot_bytes_;
  size_t image_bytes_ = 0;  // of each image of the last batch
  DeviceMemory memory_;     // params, the slot that the model reads, two for uploads
  Event uploaded_[2]{}, consumed_[2]{};
  int uploads_ = 0;
  std::shared_ptr<void> params_;
  size_t params_written_ = 0;
};

}  // namespace bv
