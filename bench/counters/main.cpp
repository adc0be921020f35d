// make counters: counts what the GPU's kernels do in a training step of each model, on the stand-in
// (simt/counters/), and compares the counts with the committed tables.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "bench/counters/reasons.h"
#include "bench/counters/table.h"
#include "bench/counters/view.h"

namespace bv::counting {
namespace {

// The kernels to count, on the chip that SIMT_ARCH names.
struct Chosen {
  std::string model;  // empty: all models
  std::string arch;   // empty: the stand-in's default
  KernelSet set = KernelSet::fast;

  // The command that writes these kernels' tables.
  std::string update() const {
    return "make counters UPDATE=1" + (arch.empty() ? "" : " ARCH=" + arch) +
           (set == KernelSet::hopper ? " KERNELS=hopper" : "");
  }
  std::string file(const std::string& of_model) const {
    const std::string kind = set == KernelSet::hopper ? "hopper" : arch;
    return "tests/counters/" + of_model + (kind.empty() ? "" : "-" + kind) + ".txt";
  }
};
// Counts depend on g++'s code: another version may eliminate other loads.
const std::string compiler =
    "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);

// A multiprocessor gets as many images as on a large GPU. Bytes then grow linearly with the number
// of multiprocessors, so two small steps predict the large one (512, 256 or 64 images).
struct Model {
  const char* name;
  int images;     // per multiprocessor
  int large = 0;  // number of multiprocessors to extrapolate to; 0: no extrapolation
};
constexpr Model models[] = {{"vit_tiny", 4, 128},
                            {"resnet50", 2, 128},
                            {"resnet34", 1},
                            {"resnext50_32x4d", 1},
                            {"vit_large", 1, 64}};

constexpr const char* legend =
    R"(# A kernel's line is of all its runs in the step, and counts warps. requests: to global memory;
# /req: sectors of 32 bytes that one touches; %used: bytes asked for, of those sectors' (over 100:
# several lanes ask for the same); %part: of all accesses, those in which lanes of the warp took no
# part; MB by L2: all these sectors; MB moved: each sector read and written once a launch; shared:
# accesses, turns: of each, conflict: those beyond what its width takes; the same of ldmatrix. An
# operation's line is of one run; needed: what it has to read and write. A library's product moves
# what it needs. Last, why operations move more than 1.1 of that, or kernels' accesses conflict.
)";

Step step_of(const Model& model, KernelSet set, int multiprocessors) {
  return {.model = model.name,
          .precision = "bf16",
          .image_size = 224,
          .batch = model.images * multiprocessors,
          .multiprocessors = multiprocessors,
          .set = set};
}

// The kernels' counts, with all tile sizes of Hopper's matrix product added up, since the tile size
// that an operation uses depends on the number of multiprocessors.
std::map<std::string, simt::Counters> by_kernel(const StepCounts& counts) {
  std::map<std::string, simt::Counters> kernels;
  for (const auto& [name, c] : counts.kernels()) {
    static const std::regex tile("^(sm90_product<.*?), [0-9].*");
    kernels[std::regex_replace(name, tile, "$1, ...> >")] += c;
  }
  return kernels;
}

// Each kernel's counts, extrapolated linearly from 1 and 2 multiprocessors, with its counted
// launches. Leaves out kernels that are not used at every one of these sizes.
std::map<std::string, simt::Counters> extended(const StepCounts& one, const StepCounts& two,
                                               const StepCounts& launched, int large) {
  std::map<std::string, simt::Counters> kernels;
  const auto at_one = by_kernel(one), at_two = by_kernel(two);
  for (const auto& [name, launches] : by_kernel(launched)) {
    if (!at_one.contains(name) || !at_two.contains(name)) continue;
    simt::Counters c = at_two.at(name) * (large - 1);
    c += at_one.at(name) * -static_cast<uint64_t>(large - 2);  // modulo 2^64
    c.launches = launches.launches;
    // A tail that only the smaller step has would be extrapolated below 0.
    if (static_cast<int64_t>(c.partial) < 0) c.partial = 0;
    kernels[name] = c;
  }
  return kernels;
}

// The estimate for a large GPU: counted launches, bytes extrapolated from two small steps, and the
// error of the same extrapolation for a third step.
std::string scaled(const Model& model, KernelSet set, const StepCounts& one) {
  const StepCounts two = count_step(step_of(model, set, 2));
  const double slope = two.moved() - one.moved();
  const double three = count_step(step_of(model, set, 3)).moved();
  const Step step = step_of(model, set, model.large);
  const StepCounts launched = count_launches(step);
  char line[300];
  std::snprintf(line, sizeof line,
                "\nthe same: %s: %lu launches, %.2f GB; 3 multiprocessors %+.3f%% off the line\n\n",
                title(step).c_str(), launched.launches(),
                (one.moved() + (model.large - 1) * slope) / 1e9,
                100 * (three / (one.moved() + 2 * slope) - 1));
  return line + kernel_table(extended(one, two, launched, model.large));
}

std::string tables(const Model& model, KernelSet set, Reasons& reasons) {
  const auto begin = std::chrono::steady_clock::now();
  const Step step = step_of(model, set, 1);
  const StepCounts counts = count_step(step);
  std::string all = table(step, counts);
  all += "\n" + reasons.lines(counts);
  if (model.large) all += scaled(model, set, counts);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr, "counted   %s (%.0f s)\n", title(step).c_str(), seconds.count());
  return all;
}

std::vector<std::string> lines_of(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  return lines;
}

std::string head(const Chosen& chosen) {
  return "# What the GPU's kernels do in a training step. " + compiler +
         ". Written by: " + chosen.update() + "\n" + legend;
}

std::vector<std::string> committed_lines(const Chosen& chosen, const std::string& model) {
  const std::string name = chosen.file(model);
  std::ifstream file(name);
  std::string first;
  if (!std::getline(file, first))
    throw UserError(name + ": no such table; write it by: " + chosen.update());
  if (first.find(compiler + ".") == std::string::npos)
    throw UserError(name + " is not of a build by " + compiler +
                    ": write it anew by: " + chosen.update());
  return lines_of(file);
}

// The lines that only one of the two tables has.
std::string differences(const Chosen& chosen, const Model& model, Reasons& reasons) {
  const std::vector<std::string> before = committed_lines(chosen, model.name);
  std::istringstream counted(tables(model, chosen.set, reasons));
  const std::vector<std::string> now = lines_of(counted);
  const std::multiset<std::string> had(before.begin(), before.end()), has(now.begin(), now.end());
  std::string changes;
  for (const std::string& line : before)
    if (!has.contains(line)) changes += "- " + line + "\n";
  for (const std::string& line : now)
    if (!had.contains(line)) changes += "+ " + line + "\n";
  return changes;
}

std::vector<Model> models_of(const std::string& only) {
  std::vector<Model> all(std::begin(models), std::end(models));
  if (!only.empty()) std::erase_if(all, [&](const Model& model) { return only != model.name; });
  if (all.empty()) throw UserError("no model is called " + only);
  return all;
}

// The reasons apply to the stand-in's default chip; another chip may need fewer.
std::string problems_of(const Chosen& chosen, const Reasons& reasons) {
  return reasons.problems(chosen.model.empty() && chosen.arch.empty());
}

int check(const Chosen& chosen) {
  Reasons reasons;
  std::string changes;
  for (const Model& model : models_of(chosen.model)) changes += differences(chosen, model, reasons);
  if (!changes.empty())
    changes += "update the tables, and commit them, by:  " + chosen.update() + "\n";
  changes += problems_of(chosen, reasons);
  std::printf("%s", changes.empty() ? "counters are as in tests/counters/\n" : changes.c_str());
  return changes.empty() ? 0 : 1;
}

int update(const Chosen& chosen) {
  Reasons reasons;
  for (const Model& model : models_of(chosen.model)) {
    const std::string text = head(chosen) + tables(model, chosen.set, reasons);
    std::ofstream file(chosen.file(model.name));
    file << text;
    if (!file.flush()) throw std::runtime_error("can't write " + chosen.file(model.name));
  }
  const std::string problems = problems_of(chosen, reasons);
  std::printf("%s", problems.c_str());
  return problems.empty() ? 0 : 1;
}

// Prints the operations with `word` in their name or in a kernel's name.
int show(const Chosen& chosen, const std::string& word) {
  for (const Model& model : models_of(chosen.model)) {
    const Step step = step_of(model, chosen.set, 1);
    const StepCounts counts = count_step(step, word);
    if (counts.operations.empty()) continue;
    std::fputs(table(step, counts).c_str(), stdout);
    return 0;
  }
  throw UserError("no operation and no kernel has " + word + " in its name");
}

int view(const Chosen& chosen, const std::string& kernel, const std::string& words) {
  std::vector<Step> steps;
  for (const Model& model : models_of(chosen.model)) steps.push_back(step_of(model, chosen.set, 1));
  view_kernel(steps, kernel, words);
  return 0;
}

constexpr const char* usage =
    "usage: counters [--update | --filter WORD | --view KERNEL [--case WORDS]] [--model NAME]\n"
    "                [--arch sm_90 [--kernels hopper]]\n"
    "  counts what kernels do in each model's step, and compares it with tests/counters/NAME.txt\n"
    "  --update       writes these tables\n"
    "  --filter WORD  prints what operations with WORD in their name, or in a kernel's, do, in "
    "the\n"
    "                 first model that has one\n"
    "  --view KERNEL  prints one run's counts by line, for make view\n"
    "  --case WORDS   of the operation with these words in its name and shape\n"
    "  --model NAME   of this model only\n"
    "  --arch CHIP    on this chip of the stand-in; the tables are NAME-CHIP.txt\n"
    "  --kernels hopper  by the kernels made for sm_90; the tables are NAME-hopper.txt\n";

int run(int argc, char** argv) {
  std::string word, kernel, words, kernels;
  Chosen chosen;
  const std::map<std::string, std::string*> texts = {
      {"--filter", &word}, {"--model", &chosen.model}, {"--view", &kernel},
      {"--case", &words},  {"--arch", &chosen.arch},   {"--kernels", &kernels}};
  bool updates = false, helps = false, known = true;
  for (int i = 1; i < argc && known; ++i) {
    const std::string name = argv[i];
    if (name == "--update")
      updates = true;
    else if (name == "--help")
      helps = true;
    else if (const auto to = texts.find(name); to != texts.end() && i + 1 < argc)
      *to->second = argv[++i];
    else
      known = false;
  }
  if (helps || !known) {
    std::fputs(usage, known ? stdout : stderr);
    return known ? 0 : 2;
  }
  if (!kernels.empty() && (kernels != "hopper" || chosen.arch != "sm_90"))
    throw UserError("--kernels " + kernels + ": only --arch sm_90 --kernels hopper is counted");
  if (!chosen.arch.empty()) setenv("SIMT_ARCH", chosen.arch.c_str(), 1);
  if (kernels == "hopper") chosen.set = KernelSet::hopper;
  if (!kernel.empty()) return view(chosen, kernel, words);
  return updates ? update(chosen) : word.empty() ? check(chosen) : show(chosen, word);
}

}  // namespace
}  // namespace bv::counting

int main(int argc, char** argv) {
  try {
    return bv::counting::run(argc, argv);
  } catch (const bv::UserError& e) {
    std::fprintf(stderr, "counters: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "counters: %s\n", e.what());
    return 1;
  }
}
