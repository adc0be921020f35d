// lint MODEL: prints the warnings that train would print before its first step, and nothing else.
#include <iostream>

#include "app/commands/commands.h"
#include "app/commands/processes.h"
#include "app/recipe_check/recipe_check.h"
#include "base/error.h"
#include "base/text.h"
#include "comm/processes/affinity.h"
#include "engine/options/config.h"

namespace bv {

namespace {

constexpr std::string_view takes[] = {"model",     "Data",       "Model",  "Steps",
                                      "Optimizer", "Run folder", "Machine"};

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
  const std::vector<Finding> findings = lint(setup, sample_images(setup, cores));
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
        "training; --strict: exit code 2 if it finds anything",
    .own = {},
    .takes = takes,
    .run = lint_run};

}  // namespace bv
