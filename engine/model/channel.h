// A communicator with a stream of its own, so that communication overlaps compute. On a machine
// without room for that stream, it is stream 0 itself.
#pragma once
#include <memory>
#include <utility>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

class Channel {
 public:
  // The communicator is another's.
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
  // Its stream, after what stream 0 has been given so far.
  Stream fork() const {
    backend_->record(forked_, nullptr);
    backend_->wait(stream_, forked_);
    return stream_;
  }
  // Stream 0 continues after the channel's work.
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
