// The checks of lint(), by topic. Each adds its findings.
#pragma once
#include <vector>

#include "app/recipe_check/finding.h"
#include "engine/setup/setup.h"

namespace bv {

using Findings = std::vector<Finding>;

// steps.cpp
void check_updates(const Setup&, Findings&);     // too few
void check_left_out(const Setup&, Findings&);    // images that don't fill a batch
void check_remainder(const Setup&, Findings&);   // batches left over by --accumulate
void check_zero_rate(const Setup&, Findings&);   // nothing is learned
void check_rate(const Setup&, Findings&);        // beyond the linear rule
void check_sgd(const Setup&, Findings&);         // a ViT at a ResNet's rate
void check_warmup(const Setup&, Findings&);      // longer than the run
void check_pairs(const Setup&, Findings&);       // mixing in odd batches
void check_batch_norm(const Setup&, Findings&);  // statistics of one image
// schedule.cpp
void check_rises(const Setup&, Findings&);       // the rate rises again after a period
void check_end(const Setup&, Findings&);         // the schedule ends long before or after the run
void check_milestones(const Setup&, Findings&);  // milestones that are never reached
// pictures.cpp
bool needs_sample(const Setup&);
void check_normalising(const Setup&, const Sample&, Findings&);
void check_scales(const Setup&, const Sample&, Findings&);  // training and evaluation scales differ
void check_files(const Setup&, Findings&);                  // files left out by their names
constexpr int enough_patches = 4;                           // from side to side
void check_patches(const Setup&, int least, Findings&);     // fewer than `least` from side to side
void check_validation(const Setup&, Findings&);             // too few validation images
void check_own_validation(const Setup&, Findings&);         // --val names training images
// precision.cpp
void check_precision(const Setup&, Findings&);  // requested but not in effect
void check_policy(const Setup&, Findings&);     // windows of --amp-policy that never open

}  // namespace bv
