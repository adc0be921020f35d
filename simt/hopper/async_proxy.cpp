#include "simt/hopper/async_proxy.h"

#include "simt/hopper/hopper.h"

namespace simt {

void async_read(Bytes b, const char* who, Site site) {
  Hopper& hopper = Hopper::here();
  hopper.proxy.note(b, hopper.block.running().id);
  hopper.proxy.read(b, who, site);
}
Hold hold_read(Bytes b, const char* who, Site site) {
  return Hopper::here().proxy.hold(b, who, site);
}
void release_read(Hold hold) { Hopper::here().proxy.release(hold); }
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
