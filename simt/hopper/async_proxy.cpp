#include "simt/hopper/async_proxy.h"

#include "simt/hopper/hopper.h"

namespace simt {

void async_read(Bytes b, const char* who, Site site) {
  note_writes();
  Hopper::here().proxy.read(b, who, site);
}
Hold hold_read(Bytes b, const char* who, Site site) {
  return Hopper::here().proxy.hold(b, who, site);
}
void release_read(Hold hold) {
  note_writes();  // what was written before is an error
  Hopper::here().proxy.release(hold);
}
void fence_proxy_async() {
  note_writes();
  const unsigned me = Block::current()->running().id;
  Hopper::here().proxy.fence(me);
  Hopper::here().mbarriers.fence(me);
}
void ordinary_write(Bytes b, unsigned thread, const char* who, Site site) {
  Hopper::here().proxy.wrote(b, thread, who, site);
}
void note_writes() { Hopper::here().proxy.note(Block::current()->running().id); }

}  // namespace simt
