// A communicator with a stream of its own, so that communication overlaps compute. If the device
// has no such stream, the channel uses stream 0.
#pragma once
#include <memory>
#include <utility>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

class Channel {
 public:
  // The communicator is not owned.
  Channel(Backend& backend, Communicator& communicator, int stream)
      : backend_(&backend),
        communicator_(&communicator),
        stream_(backend.communication_stream(stream)),
        forked_(backend.create_event()),
        joined_(backend.create_event()) {}
  Channel(Backend& backend, std::unique_ptr<Communicator> own, int stream)
      : Channel(backend, *own, stream) {
    own_ = std::move(own);
  }

  Communicator& communicator() const { return *communicator_; }
  Stream stream() const { return stream_; }
  // Makes the channel's stream wait for stream 0's work so far, and returns it.
  Stream fork() const {
    backend_->record(forked_, nullptr);
    backend_->wait(stream_, forked_);
    return stream_;
  }
  // Makes stream 0 wait for the channel's work.
  void join() const {
    backend_->record(joined_, stream_);
    backend_->wait(nullptr, joined_);
  }

 private:
  Backend* backend_;
  std::unique_ptr<Communicator> own_;
  Communicator* communicator_;
  Stream stream_;
  Event forked_, joined_;
};

}  // namespace bv
