#include "engine/image_check.h"

#include <unistd.h>

#include <string>

#include "engine/report/output.h"

namespace bv {

void check_images(Setup& setup, Communicator* communicator) {
  const DataSets& data = setup.data;
  const int64_t files = data.train->files() + (data.val ? data.val->files() : 0);
  if (communicator) communicator->busy(Busy::starting);
  Output output(STDOUT_FILENO);
  int64_t seconds = 0;
  const BadImages bad = find_bad_images(data, [&](int64_t looked_at) {
    constexpr int64_t between_lines = 10;
    if (seconds++ % between_lines == 0)
      output.print("looking at the images: " + std::to_string(looked_at) + " of " +
                   std::to_string(files) + "\n");
  });
  if (bad.count == 0) return;
  const std::string more = std::to_string(bad.count - 1);
  if (setup.options.on_bad_image == "fail")
    throw DataError(bad.first + (bad.count > 1 ? ", and " + more + " more can't be read" : "") +
                    " (--on-bad-image skip skips such files)");
  setup.notes.push_back("warning: " + std::to_string(bad.count) + " of " + std::to_string(files) +
                        " images can't be read and will be skipped, the first " + bad.first);
}

}  // namespace bv
