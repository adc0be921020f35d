// A training run in the test's own process, with hooks.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/hooks/standard_hooks.h"
#include "engine/options/config.h"
#include "engine/run/run_folder_lock.h"
#include "engine/run/training_loop.h"
#include "engine/setup/device.h"

namespace bv::test {

using Strings = std::vector<std::string>;

// Runs training in this process, like main.cpp; `hooks` follow the standard ones.
inline int train_here(const Strings& words, HookList hooks) {
  const CommandLine line = parse_command_line(words);
  const World world;
  RunFolderLock claim(line, world);
  Request request = read_request(line);
  Options& given = request.options;
  if (given.resume.empty()) claim.claim_new(given, world);
  given.out = claim.folder();
  const DeviceChoice device = choose_device(given, world);
  const auto backend = make_backend(device.kind, {.index = device.index, .threads = 1});
  testing::internal::CaptureStdout();
  const auto make_hooks = [&](const Run& run) {
    HookList all = standard_hooks(run);
    for (auto& hook : hooks) all.push_back(std::move(hook));
    return all;
  };
  const int code = train(prepare(request, 1, device, *backend), *backend, nullptr, 1, make_hooks);
  testing::internal::GetCapturedStdout();
  return code;
}

template <class... H>
HookList list_of(std::unique_ptr<H>... hooks) {
  HookList list;
  (list.push_back(std::move(hooks)), ...);
  return list;
}

}  // namespace bv::test
