// What the host sends to the device in each step: batches and StepParams. With an upload stream,
// batches arrive in two slots in turn, one while the model trains on the other's copy. StepParams
// go through a ring of host memory, since the host may be a whole update ahead of the device.
#pragma once
#include <memory>

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
    int params_in_flight;      // StepParams that the device may not have read yet
  };
  Feed(Backend&, const Sizes&);
  size_t bytes() const { return slots() * slot_bytes_ + params_bytes; }
  void allocate();
  void bind(Context&) const;  // images, crops, ops, mixes, labels, params

  void upload(const Batch&);
  void wait_for_upload();
  void set_params(const StepParams&);

 private:
  static constexpr size_t params_bytes = align(sizeof(StepParams));
  size_t slots() const { return backend_->upload_stream() ? 3 : 1; }
  char* slot(int number) const {
    return memory_.data() + params_bytes + static_cast<size_t>(number) * slot_bytes_;
  }
  void copy(const Batch&, char* slot, Stream);

  Backend* backend_;
  size_t images_, op_bytes_, mix_bytes_, crops_at_, ops_at_, mixes_at_, labels_at_, slot_bytes_,
      params_in_flight_;
  DeviceMemory memory_;  // params, the slot that the model reads, two for uploads
  Event uploaded_[2]{}, consumed_[2]{};
  int uploads_ = 0;
  std::shared_ptr<void> params_;
  size_t params_written_ = 0;
};

}  // namespace bv
