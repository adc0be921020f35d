// A TensorBoard event file: curves, text and pictures of a run, each at a step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/files/file_io.h"

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
  // Creates a file with a name like those of TensorBoard's own writer, sorted after the files in
  // the folder. TensorBoard no longer shows their entries from `first_step` on. Throws RunError.
  EventFile(const std::string& folder, int64_t first_step);

  // These functions buffer their events in memory until flush().
  void scalars(int64_t step, std::span<const Scalar>);
  void text(int64_t step, std::string_view tag, std::string_view markdown);
  // The run's options, for the HPARAMS tab.
  void parameters(std::string_view run, std::span<const HParam>);
  void image(int64_t step, std::string_view tag, std::span<const std::byte> png, int height,
             int width);
  // Throws RunError; the file then ends with the previous flush, and the buffer is dropped.
  void flush();

 private:
  LogFile file_;
  std::string kept_;
};

}  // namespace bv
