#include "data/numpy_pickle.h"

#include <utility>

#include "base/files/file.h"
#include "base/python/pickle_reader.h"
#include "base/text.h"
#include "data/dataset.h"

namespace bv {
namespace {

using Kind = PickleValue::Kind;

// The names that this reader implements; some moved to another module in NumPy 2.
enum class Known : uint8_t { reconstruct, from_buffer, ndarray, dtype, encode };
constexpr PickleKind::Name names[] = {{"numpy.core.multiarray", "_reconstruct"},
                                      {"numpy._core.multiarray", "_reconstruct"},
                                      {"numpy.core.numeric", "_frombuffer"},
                                      {"numpy._core.numeric", "_frombuffer"},
                                      {"numpy", "ndarray"},
                                      {"numpy", "dtype"},
                                      {"_codecs", "encode"}};
constexpr Known known[] = {Known::reconstruct, Known::reconstruct, Known::from_buffer,
                           Known::from_buffer, Known::ndarray,     Known::dtype,
                           Known::encode};
constexpr size_t ndarray_name = 4;

constexpr const char* numpys = "numpy's";

void fill(PickleReader& in, PickleValue& array, uint32_t shape, uint32_t type, uint32_t bytes) {
  if (array.complete) in.refuse_here("an array that is filled twice");
  if (in.value(shape).kind != Kind::tuple || in.value(type).kind != Kind::dtype ||
      in.value(bytes).kind != Kind::text)
    in.refuse_here(std::string("arguments that differ from ") + numpys);
  uint64_t count = 1;
  std::string sizes;
  for (const uint32_t id : in.value(shape).items) {
    const int64_t size = in.value(id).number;
    if (in.value(id).kind != Kind::integer || size < 0 || size > INT32_MAX ||
        array.shape.size() == 2)
      in.refuse_here("an array dimension that isn't a size");
    sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
    array.shape.push_back(size);
    count *= static_cast<uint64_t>(size);
  }
  array.bytes = in.value(bytes).bytes;
  if (count != array.bytes.size())
    in.refuse_size("an array of " + sizes + " elements has " +
                   counted(static_cast<int64_t>(array.bytes.size()), "byte"));
  array.complete = true;
}

std::string_view latin1(PickleReader& in, std::string_view utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<uint8_t>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
      continue;
    }
    const auto next = static_cast<uint8_t>(i + 1 < utf8.size() ? utf8[++i] : 0);
    if ((lead != 0xc2 && lead != 0xc3) || next >> 6 != 2)
      in.refuse_here("text in another encoding");
    bytes += static_cast<char>((lead & 3) << 6 | (next & 63));
  }
  return in.keep(std::move(bytes));
}

void call(PickleReader& in, size_t name, uint32_t given) {
  switch (known[name]) {
    case Known::reconstruct:  // (ndarray, (0,), "b"); its state follows
      if (!in.is_name(in.arguments(given, 3, numpys)[0], ndarray_name))
        in.refuse_here("an array of another class");
      in.push({.kind = Kind::array});
      return;
    case Known::from_buffer: {  // (bytes, dtype, shape, "C")
      const std::vector<uint32_t> of = in.arguments(given, 4, numpys);
      if (!in.is_text(of[3], {"C"})) in.refuse_here("an array that isn't stored by rows");
      const uint32_t array = in.push({.kind = Kind::array});
      return fill(in, in.value(array), of[2], of[1], of[0]);
    }
    case Known::dtype:  // ("u1", False, True)
      if (!in.is_text(in.arguments(given, 3, numpys)[0], {"u1", "|u1", "uint8"}))
        in.refuse_here("an array of a type other than uint8");
      in.push({.kind = Kind::dtype});
      return;
    case Known::encode: {  // (text, "latin1"): how protocol 2 writes Python 3's bytes
      const std::vector<uint32_t> of = in.arguments(given, 2, numpys);
      if (in.value(of[0]).kind != Kind::text || !in.is_text(of[1], {"latin1", "latin-1"}))
        in.refuse_here("text in another encoding");
      in.push({.kind = Kind::text, .bytes = latin1(in, in.value(of[0]).bytes)});
      return;
    }
    case Known::ndarray:
      break;
  }
  in.refuse_here("a call of numpy.ndarray");
}

// Sets an array's elements; a dtype's state is ignored, since it is irrelevant for bytes.
void build(PickleReader& in, uint32_t object, uint32_t state) {
  in.push_again(object);
  if (in.value(object).kind == Kind::dtype && in.value(state).kind == Kind::tuple) return;
  if (in.value(object).kind != Kind::array)
    in.refuse_here(std::string("a state for ") + kind_name(in.value(object).kind));
  // version, shape, dtype, whether column-major, bytes
  const std::vector<uint32_t> of = in.arguments(state, 5, numpys);
  const PickleValue& columns = in.value(of[3]);
  if ((columns.kind != Kind::truth && columns.kind != Kind::integer) || columns.number != 0)
    in.refuse_here("an array that isn't stored by rows");
  fill(in, in.value(object), of[1], of[2], of[4]);
}

constexpr PickleKind numpy_kind = {.names = names,
                                   .owner = "CIFAR's files",
                                   .advice = "use the file as it is distributed",
                                   .call = call,
                                   .build = build};

}  // namespace

Pickle read_numpy_pickle(const std::string& path, uint64_t limit) try {
  return Pickle(read_file(path, limit), numpy_kind);
} catch (const FileError& e) {
  throw DataError(path + ": " + e.what());
}

}  // namespace bv
