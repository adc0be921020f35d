// Turns options into the settings of data sets, loaders and augmentation.
#pragma once
#include <span>
#include <string_view>

#include "data/loader.h"
#include "engine/options/options.h"

namespace bv {

// --augment implies these values of other options unless they are given. An empty value stands for
// the option's default.
struct PresetRow {
  std::string_view augment, option, value;
};
std::span<const PresetRow> augment_presets();

// Sets the options that depend on the data. Throws UserError if some contradict each other.
void resolve_augmentation(Options&, DataKind);

// The resolved options as the data library's structs.
Cropping cropping_of(const AugmentOptions&);
Augmentation augmentation_of(const Options&);
Mixing mixing_of(const AugmentOptions&);
// Leaves out the class names.
DataOptions data_options(const Options&);
// For evaluation in one process; leaves `warn` and `allocate` unset.
LoaderOptions loader_options(const Options&, DataKind, int batch, int cores);
std::string augmentation_text(
    const AugmentOptions&);  // "basic, auto-augment ra 2 x 9, erasing 0.25"

}  // namespace bv
