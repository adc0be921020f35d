// The lattice's points: training runs, each described by its name, whose words these are:
//     DEVICE_MODEL_PRECISION[_CHOICE]...      simt_vit_tiny_bf16_hopper_n2_zero_resume
// DEVICE is cpu, simt or cuda, MODEL a name in models/, PRECISION fp32, fp16 or bf16, so that rows
// can be chosen by the device and the model that a change reaches: FILTER=simt_resnet34. A CHOICE
// is one of choices(), nN for N processes, or pipelineN for N stages.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bv::test {

// The part of a run that a choice may change.
enum class Changes {
  nothing,   // not a bit of its files
  rounding,  // its losses, within a tolerance
  result     // everything: all runs that are compared have it
};

struct Choice {
  std::string_view name, facet, words;  // words: of the command
  Changes changes;
};
std::span<const Choice> choices();

struct Point {
  std::string name;  // of the row
  std::string device, model, precision;
  int processes = 1, stages = 1;
  int epochs = 2, accumulate = 2;
  int micro_batches = 0;              // 0: as the program chooses
  std::vector<const Choice*> chosen;  // in the name's order

  bool has(std::string_view choice) const;
};

Point point_of(const std::string& name);  // throws std::invalid_argument

// The run whose files must be those of the point's: without choices that change no bit. A stage's
// replicas add their gradients in the order of as many processes; shards, in one order for any
// number.
Point base_of(const Point&);
// The run near whose losses the point's must stay: on one process of the cpu, in fp32.
Point reference_of(const Point&);

// An epoch has two updates, for which there must be this many images.
int training_images(const Point&);
// The command, but for --out.
std::string words_of(const Point&);
// The options that a resumed run may have others of.
std::string form_of(const Point&);

}  // namespace bv::test
