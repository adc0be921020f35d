#include "data/decode/file_view.h"

#include <algorithm>

namespace bv {

std::span<const uint8_t> FileView::at(uint64_t offset, size_t count) {
  constexpr size_t block = 4096;
  if (offset >= size_) return {};
  count = static_cast<size_t>(std::min<uint64_t>(count, size_ - offset));
  const bool held = offset >= held_at_ && offset - held_at_ + count <= held_.size();
  if (!held) {
    buffer_.resize(static_cast<size_t>(std::min<uint64_t>(std::max(count, block), size_ - offset)));
    file_->read(offset, std::as_writable_bytes(std::span(buffer_)));
    held_at_ = offset;
    held_ = buffer_;
  }
  return held_.subspan(static_cast<size_t>(offset - held_at_), count);
}

}  // namespace bv
