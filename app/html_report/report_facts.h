// Collects report.html's data from a run.
#pragma once
#include "app/html_report/facts.h"
#include "engine/run/run.h"

namespace bv {

// All but the evaluation and pictures.
RunFacts facts_of(const Run&);
// From the trainer's predictions, after an evaluation.
Evaluated evaluated_of(const Run&, bool averaged);
// data: URIs of the first ones, augmented.
std::vector<std::string> training_pictures_of(const Run&);

}  // namespace bv
