// data split SRC DST: copies a folder of class folders into train/ and val/.
#include <cstdio>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/commands/data_commands.h"
#include "app/datasets/split_folder.h"
#include "base/error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "engine/console/progress_line.h"
#include "engine/files/new_folder.h"

namespace bv {

namespace {

namespace fs = std::filesystem;

struct SplitOptions {
  std::string src, dst;
  double val_fraction = InputOptions{}.val_fraction;
  uint64_t seed = 0;
  bool link = false;
};
constexpr OptionRow rows[] = {
    positional("src", "SRC", field<&SplitOptions::src>, "folder of class folders"),
    positional("dst", "DST", field<&SplitOptions::dst>, "new folder for train/ and val/"),
    {"val_fraction",
     "X",
     field<&SplitOptions::val_fraction>,
     "fraction of each class's images that val/ gets, at least one: those that a training run "
     "with the same --val-fraction holds out",
     {.min = 0, .max = 1, .min_open = true, .max_open = true}},
    {"seed", "N", field<&SplitOptions::seed>, "seed of this choice, as --split-seed in training"},
    {"link", "", field<&SplitOptions::link>,
     "symbolic links to SRC's files instead of copies, on any disk; SRC must stay where it is"}};

void require_outside(const std::string& dst, const std::string& src) {
  std::error_code error;  // then the folder can't be made, which NewFolder says
  const fs::path real = fs::weakly_canonical(dst, error);
  const fs::path inside = error ? fs::path() : real.lexically_relative(fs::canonical(src));
  if (!inside.empty() && *inside.begin() != ".." && inside != ".")
    throw UserError("DST " + dst + " is inside SRC, where it would be a class");
}

int split_data(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<SplitOptions>(line);
  const std::string src = require_folder(o.src);
  require_outside(o.dst, src);
  const SplitPlan plan = plan_split(src, o.val_fraction, o.seed);
  catch_stop_signals();
  NewFolder folder("DST", o.dst);
  {
    ProgressLine progress;
    const auto go_on = [&](size_t done) {
      progress.show(counted_of(int64_t(done), int64_t(plan.files.size()), "files"));
      return stop_signal() == 0;
    };
    if (!write_split(plan, folder.place(), o.link, go_on)) return 128 + stop_signal();
  }
  folder.finish();
  ClassCount sum;
  for (const ClassCount& c : plan.classes) sum.train += c.train, sum.val += c.val;
  std::string text;
  for (const std::string& note : plan.notes) text += note + "\n";
  text += o.dst + ": " + std::to_string(sum.train) + " train, " + std::to_string(sum.val) +
          " val, " + std::to_string(plan.classes.size()) + " classes (seed " +
          std::to_string(o.seed) + ")\n" + class_table(plan.classes, true);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

constinit const Command data_split_command = {
    .name = "data split",
    .usage = "SRC DST [--val-fraction X] [--seed N] [--link]",
    .summary = "copy a folder of class folders as train/ and val/, or link to it",
    .own = rows,
    .run = split_data};

}  // namespace bv
