// Files of torch.save with several dictionaries of tensors: which one is read.
#include <gtest/gtest.h>

#include "engine/files/torch/torch_file.h"
#include "tests/engine/weights/torch_archive.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

using Names = std::vector<std::string>;

std::string tensor(int64_t elements) {
  return TorchTensor{.elements = 2, .sizes = {elements}, .strides = {1}}.value();
}
// A dictionary of tensors with these names and this many elements each.
std::string tensors(const Names& names, int64_t elements = 1) {
  std::string text = "}(";
  for (const std::string& name : names) text += pickled(name) + tensor(elements);
  return text + "u";
}
using Entries = std::vector<std::pair<std::string, std::string>>;
std::string dictionary(const Entries& entries) {
  std::string text = "}(";
  for (const auto& [key, value] : entries) text += pickled(key) + value;
  return text + "u";
}

const std::vector<ParameterShape> model = {{"a", {1}}, {"b", {1}}, {"c", {1}}};
const std::string whole = tensors({"a", "b", "c"}), one = tensors({"loss"});

TensorFile read(const Entries& entries, const std::string& key = "", bool known = true) {
  const std::string file = torch_file("\x80\2" + dictionary(entries) + ".", {of_floats({1, 2})});
  return parse_torch_file(
      std::as_bytes(std::span(file)), "w.pth",
      {.key = key, .model = [known] { return known ? model : std::vector<ParameterShape>(); }});
}
std::string taken(const Entries& entries, const std::string& key = "", bool known = true) {
  return read(entries, key, known).taken;
}

TEST(Dictionaries, AreFoundUnderAnyName) {
  for (const char* name : {"state_dict", "model", "model_state_dict", "net", "weights", "params",
                           "module", "generator", "anything"}) {
    EXPECT_EQ(taken({{"epoch", "K\3"}, {name, whole}}), name);
    EXPECT_EQ(taken({{"loss", tensor(1)}, {name, whole}}), name);
    EXPECT_EQ(taken({{"outer", dictionary({{name, whole}})}}), std::string("outer.") + name);
    EXPECT_EQ(taken({{name, whole}, {"more", one}}, "", false), name);
  }
  EXPECT_EQ(read({{"x", dictionary({{"y", dictionary({{"z", whole}})}})}, {"k", one}}).taken, "k");
  EXPECT_EQ(taken({{"x", dictionary({{"y", dictionary({{"z", whole}})}})}, {"k", "K\1"}}), "x.y.z");
}

TEST(Dictionaries, OfTheModelComeBeforeOthers) {
  const std::string wide = tensors({"a", "b", "c", "d", "e"}, 2),
                    other = tensors({"x", "y", "z", "q"});
  EXPECT_EQ(taken({{"discriminator", other}, {"generator", whole}}), "generator");
  EXPECT_EQ(taken({{"teacher", wide}, {"student", whole}}), "student");
  EXPECT_EQ(taken({{"state_dict", other}, {"g", tensors({"m.a", "m.b", "m.c"})}}), "g");
  const TensorFile file = read({{"discriminator", other}, {"generator", whole}});
  EXPECT_TRUE(file.also.empty());
  EXPECT_EQ(file.found, (Names{"discriminator (4 tensors)", "generator (3 tensors)"}));
  EXPECT_EQ(taken({{"d", other}, {"g", whole}}, "d"), "d");
}

TEST(Dictionaries, ThatFitAsWellAreNamed) {
  const std::string average = tensors({"n_averaged", "module.a", "module.b", "module.c"});
  for (const auto& [name, other] : {std::pair{"state_dict", "state_dict_ema"},
                                    {"model", "model_ema"},
                                    {"model_state_dict", "ema"},
                                    {"net", "params_ema"}})
    for (const Entries& entries :
         {Entries{{name, whole}, {other, average}}, Entries{{other, average}, {name, whole}}}) {
      const TensorFile file = read(entries);
      EXPECT_EQ(file.taken, name);
      EXPECT_EQ(file.also, Names{other});
      EXPECT_EQ(taken(entries, other), other);
      EXPECT_EQ(taken(entries, "", false), name);
    }
  EXPECT_EQ(taken({{"model", whole}, {"state_dict", whole}}), "state_dict");
}

// Each of 300,000 entries is the dictionary itself.
TEST(Dictionaries, AreVisitedOnce) {
  std::string pickle = "\x80\2}q\1(" + pickled("k") + "q\2N";
  for (int i = 0; i < 300000; ++i) pickle += "h\2h\1";
  const std::string file = torch_file(pickle + "u.", {});
  EXPECT_EQ(error_of([&] { parse_torch_file(std::as_bytes(std::span(file)), "w"); }),
            "w: no state dict: it has no named tensors");
}

}  // namespace
}  // namespace bv::test
