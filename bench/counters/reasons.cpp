#include "bench/counters/reasons.h"

#include <cstdio>
#include <iterator>
#include <map>

namespace bv::counting {
namespace {

constexpr double max_moved = 1.1;

struct Reason {
  std::string_view name;   // the operation's, or the beginning of a kernel's
  std::string_view shape;  // a part of the operation's shape
  std::string_view why;
  bool only_elsewhere = false;  // no kernel on the stand-in's default chip needs it
};
constexpr Reason reasons[] = {
    // Bytes moved.
    {"GradientTail", "", "a few numbers, each of which moves a whole sector"},
    {"LinearGeluForward", "", "the GELU reads what the product has written"},
    {"GeluLinearBackwardInput", "",
     "the GELU reads what the product has written, and writes it anew"},
    {"LinearNormForward", "",
     "the layer norm reads what the product has written, and writes it anew"},
    {"NormLinearBackwardInput", "",
     "the layer norm reads what the product has written, and writes it anew"},
    {"LinearBackwardWeight", "", "the sums of dbias read dout again", true},
    {"ConvBackwardWeight", "C3 ",
     "each block's part of dweight is written and read, for one image"},
    {"ConvBackwardWeight", "H56 W56 C64 K", "dweight's parts are written and read, for one image"},
    // Bank conflicts in shared memory.
    {"average_pool_forward<", "", "block sums at the end: each thread stores 8 neighbours"},
    {"embed_backward<", "", "block sums at the end: each thread stores 8 neighbours"},
    {"batchnorm_backward_sums<", "", "block sums at the end: each thread stores 2 neighbours"},
    {"column_sums_by_stripes<", "", "block sums at the end: each thread stores 8 neighbours", true},
    {"bias_gelu_backward<", "", "block sums at the end: each thread stores 2 neighbours"},
    {"layernorm_backward<", "", "block sums at the end: each thread stores neighbours"},
    {"attention_backward<", "", "lse and delta of a tile's queries, stored once per tile"},
    {"conv_tile<", "", "the moments of a tile's columns, after the main loop"},
    {"conv_groups_tile<", "", "the moments of a tile's columns, after the main loop"},
    {"conv_stem_forward_tiles<", "",
     "main loop: a fragment's pairs from two rows of the filter share a bank"},
    {"conv_stem_weight_tiles<", "",
     "main loop: pixels of 3 channels are read by words, as no swizzle fits their rows"},
};

}  // namespace

std::string Reasons::why(const std::string& what, const std::string& name,
                         const std::string& shape) {
  for (const Reason& reason : reasons) {
    const bool is_kernel = reason.name.ends_with('<');
    if (is_kernel ? !name.starts_with(reason.name) : name != reason.name) continue;
    if (shape.find(reason.shape) == shape.npos) continue;
    used_.insert(static_cast<size_t>(&reason - reasons));
    return std::string(reason.why);
  }
  unexplained_ += what + ": bench/counters/reasons.cpp doesn't say why\n";
  return "?";
}

std::string Reasons::lines(const StepCounts& counts) {
  std::string all;
  const auto add = [&](const std::string& what, const std::string& name, const std::string& shape) {
    const std::string line = "why " + what + ": " + why(what, name, shape) + "\n";
    if (all.find(line) == all.npos) all += line;
  };
  for (const OperationCounts& o : counts.operations) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.3f", double(o.all().moved()) / o.cost.bytes);
    if (double(o.all().moved()) <= max_moved * o.cost.bytes) continue;
    // Names of operations end with their options: "BatchNormForward +residual relu".
    const std::string name = o.name.substr(0, o.name.find(' '));
    add(o.name + (o.shape.empty() ? "" : " " + o.shape) + " moves " + ratio + " of what it needs",
        name, o.shape);
  }
  for (const auto& [name, c] : counts.kernels())
    if (c.shared.conflicts + c.ldmatrix.conflicts > 0) add(name + " has conflicts", name, "");
  return all;
}

std::string Reasons::problems(bool all_models) const {
  std::string all = unexplained_;
  for (size_t i = 0; all_models && i < std::size(reasons); ++i)
    if (!used_.contains(i) && !reasons[i].only_elsewhere)
      all += "bench/counters/reasons.cpp: nothing needs the reason '" +
             std::string(reasons[i].why) + "' of " + std::string(reasons[i].name) + " any more\n";
  return all;
}

}  // namespace bv::counting
