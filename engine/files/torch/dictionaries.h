// The dictionaries of tensors in a file of torch.save. Trainers save several (the model, its moving
// average, another network) under keys of their own.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/names/weight_names.h"
#include "engine/files/torch/torch_pickle.h"

namespace bv {

struct Dictionary {
  const PickleValue* value = nullptr;
  std::vector<std::string_view> keys;  // that lead to it; none: the outermost
  size_t tensors = 0;
  size_t names = 0, shapes = 0;  // of the model's; set if there was a choice

  std::string key() const;  // "state_dict", "ema.module"
};

struct ChosenDictionary {
  Dictionary taken;
  std::vector<std::string> also;   // keys of others that fit the model as well
  std::vector<std::string> found;  // all that there are, if several: "generator (96 tensors)"
};

// Chooses the dictionary with this key or, if none has it, the one that has most of the model's
// tensors. Looks two levels below the outermost, and deeper only if that finds none. Throws
// FileError if there is none.
ChosenDictionary choose_dictionary(const Pickle&, const std::string& key, const ListParameters&);

// Whether a value is a tensor, or would be one in Python: made from a storage by an unknown name.
bool stands_for_tensor(const PickleValue&);

}  // namespace bv
