// report.json: the page's data that is not in metrics.jsonl or config.json. ./launcher report and a
// resumed run read it. Its members:
//   version: 1; model, data, device, command: text; parameters, processes, updates_per_epoch,
//   steps_end, forward_nodes: counts; classes: [name]
//   written: when, "2026-11-21 12:00 UTC"; ending: how the run ended, empty while it is running
//   memory: [[name, planned bytes per process]]; seconds: [[operation, seconds]], with --profile
//   scratch: [[tensor, offset, bytes, first, last]]: tensors in scratch memory, live while nodes
//     first to last run, counted through forward and then backward
//   evaluated: the last evaluation, best: the best one; null if there is none yet. {step, epoch,
//     averaged: whether with averaged weights, images: [[label, predicted, images]],
//     mistakes: [[image, label, predicted, its probability, picture]], the surest first}
//   restarts: the lines of metrics.jsonl about restarts by the launcher; missing in older runs
//   training_pictures: [picture]. A picture is a data: URI; empty if it can't be read.
#pragma once
#include "base/json.h"
#include "engine/run/run.h"

namespace bv {

// Values of `ending`; after an error, `ending` is the error's line.
constexpr const char *finished = "finished", *stopped = "stopped";

// All facts except evaluations and pictures.
Json facts_of(const Run&);
// The member `evaluated`, from the trainer's predictions after an evaluation.
Json evaluated_of(const Run&, bool averaged);
// The first training images, augmented.
Json training_pictures_of(const Run&);

// Throws UserError naming `path` if the text is not such a file.
Json parse_facts(const std::string& text, const std::string& path);

}  // namespace bv
