// Options whose values are words: their enum types, and one list of words per type, shared by the
// command line, files, --help, completion and messages.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "data/augment/augment.h"
#include "data/augment/mixing.h"
#include "data/augment/policy.h"
#include "data/built_in_set.h"
#include "data/image/resize.h"
#include "kernels/devices/devices.h"
#include "kernels/types.h"

namespace bv {

enum class Augment : uint8_t { none, basic, strong };
enum class OnBadImage : uint8_t { fail, skip };
enum class BestBy : uint8_t { top1, loss };
enum class LeftOver : uint8_t { next, drop };
enum class Decay : uint8_t { weights, all };
enum class Curve : uint8_t { constant, cosine, step, multistep, poly };
enum class ScheduleBy : uint8_t { step, epoch };
enum class AmpPolicy : uint8_t { none, span, hold, windows };
enum class ConvKernels : uint8_t { own, cudnn };
enum class KernelChoice : uint8_t { automatic, plain, hopper };
enum class Recompute : uint8_t { none, blocks };
enum class Switch : uint8_t { on, off };

template <class... Text>
constexpr std::array<std::string_view, sizeof...(Text)> word_list(Text... texts) {
  return {texts...};
}
// The words of each type, in the order of its enumerators.
constexpr auto words(Augment) { return word_list("none", "basic", "strong"); }
constexpr auto words(OnBadImage) { return word_list("fail", "skip"); }
constexpr auto words(BuiltIn) { return word_list("shapes", "mosaics"); }
constexpr auto words(LeftOver) { return word_list("next", "drop"); }
constexpr auto words(BestBy) { return word_list("top1", "loss"); }
constexpr auto words(Decay) { return word_list("weights", "all"); }
constexpr auto words(Curve) { return word_list("constant", "cosine", "step", "multistep", "poly"); }
constexpr auto words(ScheduleBy) { return word_list("step", "epoch"); }
constexpr auto words(AmpPolicy) { return word_list("none", "0", "1", "2"); }
constexpr auto words(ConvKernels) { return word_list("own", "cudnn"); }
constexpr auto words(KernelChoice) { return word_list("auto", "plain", "hopper"); }
constexpr auto words(Recompute) { return word_list("none", "blocks"); }
constexpr auto words(Switch) { return word_list("on", "off"); }
constexpr auto words(DeviceKind) { return word_list("cpu", "simt", "cuda"); }
constexpr auto words(DType) { return word_list("fp32", "fp16", "bf16"); }
constexpr auto words(AllReduce) { return word_list("flat", "2d"); }
constexpr auto words(OptimizerKind) { return word_list("sgd", "adam", "adamw"); }
constexpr auto words(Policy) {
  return word_list("none", "ra", "ra-dali", "ta_wide", "cifar10", "imagenet");
}
constexpr auto words(MixMode) { return word_list("batch", "pair", "elem"); }
constexpr auto words(TrainCrop) {
  return word_list("random-resized", "padded", "pad-if-needed", "none");
}
constexpr auto words(CropMode) { return word_list("center", "squash", "border", "pad"); }
constexpr auto words(Interpolation) { return word_list("bilinear", "bicubic"); }

template <class E>
concept WithWords = requires {
  words(E{});
};

// The word that means "not resolved yet"; empty: the type has none.
template <WithWords E>
constexpr std::string_view unset_word(E) {
  return "auto";
}
constexpr std::string_view unset_word(TrainCrop) { return ""; }

template <WithWords E>
std::string word_of(E value) {
  return std::string(words(value)[static_cast<size_t>(value)]);
}
template <WithWords E>
std::string word_of(std::optional<E> value) {
  return value ? word_of(*value) : std::string(unset_word(E{}));
}

}  // namespace bv
