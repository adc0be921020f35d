// Options that take one of a few words: their types, each with the one table of its words, which
// the command line, files, --help, completion and messages share.
#pragma once
#include <algorithm>
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
#include "data/image/resize.h"
#include "kernels/devices/devices.h"
#include "kernels/types.h"

namespace bv {

template <class T>
struct Word {
  std::string_view text;
  T value;
};
// In the order that --help lists them in; a type without words is no choice.
template <class T>
inline constexpr std::nullptr_t words = nullptr;
template <class T>
concept Choice = !std::is_same_v<decltype(words<T>), const std::nullptr_t>;

// For an enum whose values are in the words' order.
template <class E, class... Text>
constexpr std::array<Word<E>, sizeof...(Text)> in_order(Text... texts) {
  int value = 0;
  return {Word<E>{texts, static_cast<E>(value++)}...};
}
// "auto": resolved once the machine is known.
template <class E, size_t n>
constexpr std::array<Word<std::optional<E>>, n + 1> or_auto(const std::array<Word<E>, n>& table) {
  std::array<Word<std::optional<E>>, n + 1> all{{{"auto", std::nullopt}}};
  for (size_t i = 0; i < n; ++i) all[i + 1] = {table[i].text, table[i].value};
  return all;
}

template <Choice T>
std::string word_of(const T& value) {
  return std::string(std::ranges::find(words<T>, value, &Word<T>::value)->text);
}
template <Choice T>
std::vector<std::string> texts_of() {
  std::vector<std::string> texts;
  for (const Word<T>& word : words<T>) texts.emplace_back(word.text);
  return texts;
}

template <>
inline constexpr auto words<DeviceKind> = std::to_array<Word<DeviceKind>>(
    {{"cpu", DeviceKind::cpu}, {"simt", DeviceKind::simt}, {"cuda", DeviceKind::cuda}});
template <>
inline constexpr auto words<std::optional<DeviceKind>> = or_auto(words<DeviceKind>);
template <>
inline constexpr auto words<DType> = std::to_array<Word<DType>>({{"fp32", DType::fp32},
                                                                 {"fp16", DType::fp16},
                                                                 {"bf16", DType::bf16}});
template <>
inline constexpr auto words<std::optional<DType>> = or_auto(words<DType>);
template <>
inline constexpr auto words<AllReduce> =
    std::to_array<Word<AllReduce>>({{"flat", AllReduce::flat}, {"2d", AllReduce::two_level}});
template <>
inline constexpr auto words<std::optional<AllReduce>> = or_auto(words<AllReduce>);
template <>
inline constexpr auto words<OptimizerKind> = std::to_array<Word<OptimizerKind>>(
    {{"sgd", OptimizerKind::sgd}, {"adam", OptimizerKind::adam}, {"adamw", OptimizerKind::adamw}});
template <>
inline constexpr auto words<Policy> = std::to_array<Word<Policy>>({{"none", Policy::none},
                                                                   {"ra", Policy::ra},
                                                                   {"ra-dali", Policy::ra_dali},
                                                                   {"ta_wide", Policy::ta_wide},
                                                                   {"cifar10", Policy::cifar10},
                                                                   {"imagenet", Policy::imagenet}});
template <>
inline constexpr auto words<MixMode> = std::to_array<Word<MixMode>>({{"batch", MixMode::batch},
                                                                     {"pair", MixMode::pair},
                                                                     {"elem", MixMode::elem}});
template <>
inline constexpr auto words<TrainCrop> =
    std::to_array<Word<TrainCrop>>({{"random-resized", TrainCrop::random_resized},
                                    {"padded", TrainCrop::padded},
                                    {"pad-if-needed", TrainCrop::pad_if_needed},
                                    {"none", TrainCrop::none}});
template <>
inline constexpr auto words<CropMode> = std::to_array<Word<CropMode>>({{"center", CropMode::center},
                                                                       {"squash", CropMode::squash},
                                                                       {"border", CropMode::border},
                                                                       {"pad", CropMode::pad}});
template <>
inline constexpr auto words<Interpolation> = std::to_array<Word<Interpolation>>(
    {{"bilinear", Interpolation::bilinear}, {"bicubic", Interpolation::bicubic}});

enum class Augment : uint8_t { none, basic, strong };
template <>
inline constexpr auto words<Augment> = in_order<Augment>("none", "basic", "strong");

enum class OnBadImage : uint8_t { fail, skip };
template <>
inline constexpr auto words<OnBadImage> = in_order<OnBadImage>("fail", "skip");

enum class BestBy : uint8_t { top1, loss };
template <>
inline constexpr auto words<BestBy> = in_order<BestBy>("top1", "loss");

enum class Decay : uint8_t { weights, all };
template <>
inline constexpr auto words<Decay> = in_order<Decay>("weights", "all");

enum class Curve : uint8_t { constant, cosine, step, multistep, poly };
template <>
inline constexpr auto words<Curve> = in_order<Curve>("constant", "cosine", "step", "multistep",
                                                     "poly");

enum class ScheduleBy : uint8_t { step, epoch };
template <>
inline constexpr auto words<ScheduleBy> = in_order<ScheduleBy>("step", "epoch");

enum class AmpPolicy : uint8_t { none, span, hold, windows };
template <>
inline constexpr auto words<AmpPolicy> = in_order<AmpPolicy>("none", "0", "1", "2");

enum class ConvKernels : uint8_t { own, cudnn };
template <>
inline constexpr auto words<ConvKernels> = in_order<ConvKernels>("own", "cudnn");

enum class Recompute : uint8_t { none, blocks };
template <>
inline constexpr auto words<Recompute> = in_order<Recompute>("none", "blocks");

enum class Switch : uint8_t { on, off };
template <>
inline constexpr auto words<Switch> = in_order<Switch>("on", "off");

}  // namespace bv
