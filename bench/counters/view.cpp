#include "bench/counters/view.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "bench/counters/table.h"
#include "simt/counters/lines_json.h"

namespace bv::counting {
namespace {

std::string plain(const std::string& kernel) { return kernel.substr(0, kernel.find('<')); }

bool launches(const OperationCounts& o, const std::string& kernel) {
  return std::ranges::any_of(o.kernels, [&](const auto& k) { return plain(k.first) == kernel; });
}

std::string listed(const auto& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

// The kernel of this name, or the only one whose name contains it.
std::string found(const std::vector<StepCounts>& steps, const std::string& name) {
  std::set<std::string> all, fitting;
  for (const StepCounts& step : steps)
    for (const OperationCounts& o : step.operations)
      for (const auto& [kernel, counts] : o.kernels) all.insert(plain(kernel));
  if (all.contains(name)) return name;
  for (const std::string& kernel : all)
    if (kernel.find(name) != kernel.npos) fitting.insert(kernel);
  if (fitting.size() == 1) return *fitting.begin();
  if (!fitting.empty()) throw UserError(name + " fits several kernels: " + listed(fitting));
  const std::vector<std::string> known(all.begin(), all.end());
  const std::string near = nearest(name, known);
  throw UserError("no kernel is called " + name +
                  (near.empty() ? "; there are " + listed(known) : "; the nearest is " + near));
}

std::string text_of(const OperationCounts& o) {
  return o.name + (o.shape.empty() ? "" : " " + o.shape);
}

const OperationCounts& chosen(const std::vector<const OperationCounts*>& cases,
                              const std::string& kernel, const std::string& words) {
  const auto runs = [](const OperationCounts* o) { return o->count; };
  if (words.empty()) return **std::ranges::max_element(cases, {}, runs);
  for (const OperationCounts* o : cases)
    if (text_of(*o) == words) return *o;
  for (const OperationCounts* o : cases)
    if (text_of(*o).find(words) != std::string::npos) return *o;
  std::set<std::string> all;
  for (const OperationCounts* o : cases) all.insert(text_of(*o));
  throw UserError(kernel + " has no case " + words + ", but: " + listed(all));
}

}  // namespace

void view_kernel(std::span<const Step> steps, const std::string& name, const std::string& words) {
  std::vector<StepCounts> launched;
  for (const Step& step : steps) launched.push_back(count_launches(step));
  const std::string kernel = found(launched, name);
  for (size_t i = 0; i < steps.size(); ++i) {
    std::vector<const OperationCounts*> cases;
    for (const OperationCounts& o : launched[i].operations)
      if (launches(o, kernel)) cases.push_back(&o);
    if (cases.empty()) continue;
    const OperationCounts& one = chosen(cases, kernel, words);
    simt::Lines::on = true;
    count_operation(steps[i], size_t(&one - launched[i].operations.data()));
    auto lines = simt::Lines::take();
    simt::Lines::on = false;
    if (std::ranges::none_of(lines, [&](const auto& k) {
          return plain(k.first) == kernel && !k.second.lines.empty();
        }))
      throw UserError(kernel + " belongs to a library, which has no line information");
    Json page = {{"kernel", kernel}, {"case", text_of(one) + "; " + title(steps[i])}};
    page.update(to_json(lines));
    std::puts(to_line(page).c_str());
    return;
  }
}

}  // namespace bv::counting
