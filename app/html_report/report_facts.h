// report.json: a run's data for its page besides metrics.jsonl and config.json. ./launcher report
// and a resumed run read it. Its members:
//   version: 1; model, data, device, command: text; parameters, processes, updates_per_epoch,
//   steps_end, forward_nodes: counts; classes: [name]
//   written: when, "2026-11-21 12:00 UTC"; ending: how the run ended, empty while it is running
//   memory: [[what, bytes per process, as planned]]; seconds: [[operation, seconds]], of --profile
//   scratch: [[tensor, offset, bytes, first, last]] in scratch memory, while the nodes from first
//     to last run, forward and then backward
//   evaluated: the last evaluation, best: the best one; null if there is none yet. {step, epoch,
//     averaged: by the weights' moving average, images: [[label, predicted, images]], mistakes:
//     [[image, label, predicted, probability of what was predicted, picture]], the surest first}
//   training_pictures: [picture]. A picture is a data: URI; empty if it can't be read.
#pragma once
#include "base/json.h"
#include "engine/run/run.h"

namespace bv {

// `ending`, besides an error's line.
constexpr const char *finished = "finished", *stopped = "stopped";

// All but the evaluations and pictures.
Json facts_of(const Run&);
// From the trainer's predictions, after an evaluation.
Json evaluated_of(const Run&, bool averaged);
// The first ones, augmented.
Json training_pictures_of(const Run&);

// Throws UserError naming `path` where it is none.
Json parse_facts(const std::string& text, const std::string& path);

}  // namespace bv
