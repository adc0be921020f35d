// A TensorBoard event file: curves, text and pictures of a run, each at a step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file_io.h"

namespace bv {

struct Scalar {
  std::string_view tag;
  double value;
};

struct HParam {  // shown as a number if it is one
  std::string name, value;
};

class EventFile {
 public:
  // Creates a file named as by TensorBoard's own writer, to be read after those in the folder.
  // Their entries from `first_step` on are no longer shown. Throws RunError.
  EventFile(const std::string& folder, int64_t first_step);

  // The following are kept in memory until flush().
  void scalars(int64_t step, std::span<const Scalar>);
  void text(int64_t step, std::string_view tag, std::string_view markdown);
  // The run's options, for the HPARAMS tab.
  void parameters(std::string_view run, std::span<const HParam>);
  void image(int64_t step, std::string_view tag, std::span<const std::byte> png, int height,
             int width);
  // Throws RunError; then the file ends after the last flush, and what was kept is dropped.
  void flush();

 private:
  LogFile file_;
  std::string kept_;
};

}  // namespace bv
