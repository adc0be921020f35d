// lint MODEL: prints the warnings that train would print before its first step, and those about the
// images that data check would find.
#include <algorithm>
#include <iostream>
#include <iterator>

#include "app/commands/commands.h"
#include "app/commands/processes.h"
#include "app/recipe_check/recipe_check.h"
#include "base/error.h"
#include "base/text.h"
#include "comm/processes/affinity.h"
#include "engine/console/progress_line.h"
#include "engine/options/config.h"
#include "engine/run/image_check.h"

namespace bv {

namespace {

int lint_run(const CommandLine& line, const std::vector<std::string>&) {
  if (line.values.contains("resume") && !names_model(line))
    throw UserError("--resume: lint checks a new run; --config " + line.values.at("resume").at(0) +
                    "/config.json checks that run's options");
  const Request request = read_new_run(line);
  const Options& options = request.options;
  World world;
  world.local_size = processes_here(options);
  world.size = world.local_size * options.nnodes.most;
  world.launched = true;
  const int cores = usable_cores();
  const DeviceChoice device = choose_device(options, world);
  const auto backend = open_backend(device.kind, {.index = device.index, .threads = cores});
  const Setup setup = prepare(request, world.size, device, *backend);
  std::vector<Finding> findings = lint(setup, sample_images(setup, cores));
  DataCheck found;
  {
    ProgressLine progress;
    found = look_at_images(setup, cores, [&](int64_t done, int64_t images) {
      progress.show(counted_of(done, images, "images"));
    });
  }
  std::ranges::move(lint_images(setup, found), std::back_inserter(findings));
  if (const auto& damaged = found.damaged;
      setup.options.on_bad_image == OnBadImage::skip && !damaged.empty()) {
    const auto count = static_cast<int64_t>(damaged.size());
    const std::string first = damaged[0].path + ": " + damaged[0].what;
    std::cout << printable(line_of_skipped(count, found.looked_at, first), std::string::npos)
              << "\n";
  }
  for (const Finding& f : findings) std::cout << printable(line_of(f), std::string::npos) << "\n";
  if (findings.empty()) std::cout << "no problems found\n";
  return options.strict && !findings.empty() ? 2 : 0;
}

}  // namespace

constinit const Command lint_command = {
    .name = "lint",
    .usage = "MODEL [options]",
    .summary =
        "check the options of a training run as train does before the first step, without "
        "training, and its images as data check does, of many only some; --strict: exit code 2 "
        "if it finds anything",
    .takes = of_training,
    .run = lint_run};

}  // namespace bv
