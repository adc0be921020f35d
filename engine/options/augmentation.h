// What the model sees in training: from the options to the loader's Cropping and Augmentation.
#pragma once
#include <span>
#include <string_view>

#include "data/loader.h"
#include "engine/options/options.h"

namespace bv {

// --augment implies these values of other options, unless they are given themselves. An empty
// value: the option's default.
struct PresetRow {
  std::string_view augment, option, value;
};
std::span<const PresetRow> augment_presets();

// Options that depend on the data get their values. Throws UserError where some don't fit together.
void resolve_augmentation(Options&, DataKind);

// Of resolved options.
Cropping cropping_of(const AugmentOptions&);
Augmentation augmentation_of(const Options&);
Mixing mixing_of(const AugmentOptions&);
std::string augmentation_text(
    const AugmentOptions&);  // "basic, auto-augment ra 2 x 9, erasing 0.25"

}  // namespace bv
