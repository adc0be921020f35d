// What a run's page shows besides metrics.jsonl and config.json. The run writes it as report.json
// beside them, from which ./launcher report and a resumed run read it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bv {

struct Mistake {
  std::string name;  // of the image
  int label = 0, predicted = 0;
  double probability = 0;    // of what was predicted
  std::string picture = {};  // a data: URI; empty: it can't be read
};

struct Confusion {
  int label = 0, predicted = 0;
  int64_t images = 0;
};

// The last evaluation.
struct Evaluated {
  int64_t step = 0, epoch = 0;
  bool averaged = false;  // the weights' moving average
  std::vector<Confusion> images = {};
  std::vector<Mistake> mistakes = {};  // the surest ones first
};

// A tensor's place in scratch memory, while nodes `first` to `last` run, forward and then backward.
struct ScratchTensor {
  std::string name;
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;
};

struct RunFacts {
  std::string model, data, device, command;
  std::string written;  // when: "2026-11-21 12:00 UTC"
  std::string ending;   // how the run ended; empty: it was still running
  int64_t parameters = 0, processes = 1, updates_per_epoch = 0, steps_end = 0;
  std::vector<std::string> classes = {};
  std::vector<std::pair<std::string, double>> memory = {};   // bytes per process, as planned
  std::vector<std::pair<std::string, double>> seconds = {};  // of --profile
  int forward_nodes = 0;
  std::vector<ScratchTensor> scratch = {};
  std::optional<Evaluated> evaluated = {};
  std::vector<std::string> training_pictures = {};  // data: URIs
};

std::string to_json(const RunFacts&);
// Throws UserError naming `path` where it is none.
RunFacts facts_from_json(const std::string& text, const std::string& path);

}  // namespace bv
