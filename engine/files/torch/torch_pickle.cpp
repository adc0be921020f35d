#include "engine/files/torch/torch_pickle.h"

#include <algorithm>
#include <iterator>

#include "base/python/pickle_reader.h"
#include "base/text.h"

namespace bv {
namespace {

using Kind = PickleValue::Kind;

enum Known : size_t { ordered_dict, rebuild_tensor, rebuild_parameter, first_storage };
constexpr PickleKind::Name names[] = {{"collections", "OrderedDict"},
                                      {"torch._utils", "_rebuild_tensor_v2"},
                                      {"torch._utils", "_rebuild_parameter"},
                                      {"torch", "FloatStorage"},
                                      {"torch", "HalfStorage"},
                                      {"torch", "BFloat16Storage"},
                                      {"torch", "DoubleStorage"},
                                      {"torch", "LongStorage"},
                                      {"torch", "IntStorage"},
                                      {"torch", "ShortStorage"},
                                      {"torch", "CharStorage"},
                                      {"torch", "ByteStorage"},
                                      {"torch", "BoolStorage"},
                                      {"torch", "ComplexFloatStorage"},
                                      {"torch", "ComplexDoubleStorage"},
                                      {"torch", "QInt8Storage"},
                                      {"torch", "QUInt8Storage"},
                                      {"torch", "QInt32Storage"},
                                      {"torch", "UntypedStorage"},
                                      {"torch.storage", "UntypedStorage"}};
// The types of the names from first_storage on.
constexpr std::string_view converted[] = {"F32", "F16", "BF16", "F64", "I64",
                                          "I32", "I16", "I8",   "U8",  "BOOL"};
// The types of the names after those; no tensor of a model here has them.
constexpr ElementType others[] = {{"complex64", 8, nullptr}, {"complex128", 16, nullptr},
                                  {"qint8", 1, nullptr},     {"quint8", 1, nullptr},
                                  {"qint32", 4, nullptr},    {"untyped", 1, nullptr},
                                  {"untyped", 1, nullptr}};
constexpr ElementType unknown = {"unknown", 0, nullptr};
static_assert(std::size(names) == first_storage + std::size(converted) + std::size(others));
constexpr const char* torchs = "torch.save's";

void require(PickleReader& in, uint32_t id, Kind kind) {
  if (in.value(id).kind != kind)
    in.refuse_here(std::string("arguments that differ from ") + torchs);
}
// Hooks are functions, which are never called here.
void require_no_hooks(PickleReader& in, uint32_t id) {
  require(in, id, Kind::dict);
  if (!in.value(id).items.empty()) in.refuse_here("a tensor with hooks");
}

void call(PickleReader& in, size_t name, uint32_t given) {
  if (name == ordered_dict) {
    in.arguments(given, 0, torchs);
    in.push({.kind = Kind::dict});
    return;
  }
  if (name == rebuild_parameter) {  // (tensor, requires_grad, hooks)
    const std::vector<uint32_t> of = in.arguments(given, 3, torchs);
    require(in, of[0], Kind::tensor);
    require_no_hooks(in, of[2]);
    return in.push_again(of[0]);
  }
  if (name != rebuild_tensor)
    in.refuse_here("a call of " + std::string(names[name].module) + "." +
                   std::string(names[name].name));
  // (storage, offset, sizes, strides, requires_grad, hooks)
  const std::vector<uint32_t> of = in.arguments(given, 6, torchs);
  require(in, of[0], Kind::storage);
  require(in, of[1], Kind::integer);
  require(in, of[2], Kind::tuple);
  require(in, of[3], Kind::tuple);
  require_no_hooks(in, of[5]);
  in.push({.kind = Kind::tensor, .items = {of[0], of[1], of[2], of[3]}});
}

// A state dict has its modules' versions as an attribute, which is ignored.
void build(PickleReader& in, uint32_t object, uint32_t state) {
  if (in.value(object).kind == Kind::object) return in.push_again(object);
  if (in.value(object).kind != Kind::dict || in.value(state).kind != Kind::dict)
    in.refuse_here(std::string("a state for ") + kind_name(in.value(object).kind));
  in.push_again(object);
}

// ("storage", type, key, device, elements); before PyTorch 1.6 also None, as it views no other one.
void persistent(PickleReader& in, uint32_t id) {
  const bool old = in.value(id).items.size() == 6;
  const std::vector<uint32_t> of = in.arguments(id, old ? 6 : 5, torchs);
  if (old) require(in, of[5], Kind::none);
  const PickleValue &type = in.value(of[1]), &key = in.value(of[2]);
  const bool is_type =
      type.kind == Kind::object ||
      (type.kind == Kind::name && static_cast<size_t>(type.number) >= first_storage);
  if (!in.is_text(of[0], {"storage"}) || !is_type)
    in.refuse_here("a persistent id that is not a tensor's storage");
  require(in, of[2], Kind::text);
  require(in, of[4], Kind::integer);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (key.bytes.empty() || key.bytes.size() > 20 || !std::ranges::all_of(key.bytes, is_digit))
    in.refuse_here("a storage named '" + printable(key.bytes, 60) + "'");
  in.push({.kind = Kind::storage, .items = {of[1], of[2], of[4]}});
}

}  // namespace

constinit const PickleKind torch_kind = {
    .names = names,
    .owner = "weights files",
    .advice = "nothing in it is run; if you trust it, save its state_dict alone",
    .call = call,
    .build = build,
    .persistent = persistent,
    .inert_objects = true};

const ElementType& element_type_of(const PickleValue& name) {
  if (name.kind != Kind::name) return unknown;
  const size_t storage = static_cast<size_t>(name.number) - first_storage;
  return storage < std::size(converted) ? *find_element_type(converted[storage])
                                        : others[storage - std::size(converted)];
}

}  // namespace bv
