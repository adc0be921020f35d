// Warnings about valid options with which a run will hardly train well: too few updates, pixels
// normalised with another data set's mean and deviation, a rate that rises again. Each finding is a
// line, `warning: WHAT: WHY; ADVICE`.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/recipe_check/finding.h"
#include "data/dataset_stats/data_check.h"
#include "engine/setup/setup.h"

namespace bv {

// At most 256 images, evenly spread; pixels.images is 0 if no check needs them or decoding fails.
Sample sample_images(const Setup&, int threads);

// The findings of all checks; a pure function of its arguments.
std::vector<Finding> lint(const Setup&, const Sample&);

// The findings about the images themselves, which take a full decode: lint has them, training not.
// At most 4096 images are looked at, evenly spread.
DataCheck look_at_images(const Setup&, int threads,
                         const std::function<void(int64_t done, int64_t images)>& progress);
std::vector<Finding> lint_images(const Setup&, const DataCheck&);

// For a new run, on rank 0: puts the findings into setup.findings. With --strict, prints them and
// throws UserError if there are any.
void say_findings(Setup&, int threads);

}  // namespace bv
