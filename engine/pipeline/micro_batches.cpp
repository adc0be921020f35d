#include "engine/pipeline/micro_batches.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bv {

std::string unfit(int count, const Micro& m) {
  if (m.images % count) return "doesn't divide the local batch of " + std::to_string(m.images);
  if (m.chunks > 1 && count % m.stages)
    return "with --chunks it must be a multiple of --pipeline " + std::to_string(m.stages);
  const std::string each = "leaves " + counted(m.images / count, "image") + " each, ";
  if (m.mixing && m.images / count % 2) return each + "and they are mixed in pairs";
  if (m.batch_norm && count > 1 && m.images / count == 1)
    return each + "too few for batch norm's statistics";
  return "";
}

namespace {

// The first number that fits among `count`, `count` + `by`, ...; 0: none.
int next_fit(int count, int by, const Micro& m) {
  for (; count > 0 && count <= m.images; count += by)
    if (unfit(count, m).empty()) return count;
  return 0;
}

int wanted(const Micro& m) { return m.stages > 1 ? 4 * m.stages : 1; }

}  // namespace

int next_micro_batches(int count, const Micro& m) { return next_fit(count, 1, m); }

int default_micro_batches(const Micro& m) {
  if (const int smaller = next_fit(std::min(wanted(m), m.images), -1, m)) return smaller;
  const int larger = next_fit(wanted(m), 1, m);
  return larger ? larger : wanted(m);
}

void check_micro_batches(int count, const Micro& m) {
  const std::string why = unfit(count, m);
  if (why.empty()) return;
  std::vector<std::string> fitting;
  if (const int less = next_fit(std::min(count, m.images), -1, m))
    fitting.push_back(std::to_string(less));
  if (const int more = next_fit(count, 1, m)) fitting.push_back(std::to_string(more));
  if (fitting.empty()) {  // suggest a batch with two images in each
    const int usual = wanted(m), unit = 2 * usual;
    fitting = {"--local-batch " + std::to_string((m.images + unit - 1) / unit * unit) +
               " --micro-batches " + std::to_string(usual)};
  }
  throw UserError("--micro-batches " + std::to_string(count) + ": " + why + "; try " +
                  join(fitting, " or "));
}

}  // namespace bv
