// Python's pickle format, protocols 2 to 5, for files of plain values: dictionaries, lists, tuples,
// text and bytes, numbers, and the values that a PickleKind adds. A pickle is a program that may
// call any Python function. This reader maps the names that a PickleKind lists to its C++ handlers,
// refuses every other name and instruction, or makes inert objects of them, and runs no Python.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

struct PickleValue {
  enum Kind : uint8_t {
    none,
    truth,
    integer,
    real,
    text,
    tuple,
    list,
    dict,
    name,
    dtype,
    array,
    storage,
    tensor,
    object
  };
  Kind kind = none;
  bool complete = false;        // array: its bytes have been read
  bool of_tensor = false;       // tuple, object: made from a tensor or a storage
  int64_t number = 0;           // truth, integer; name: index into PickleKind::names
  std::string_view bytes = {};  // text (or bytes), array
  // tuple, list, storage, tensor; dict: key, value, key, value; object: the module and the name of
  // what made it
  std::vector<uint32_t> items = {};
  std::vector<int64_t> shape = {};  // array
};
const char* kind_name(PickleValue::Kind);

class PickleReader;

// A kind of pickle file: the names that it may use, and the handlers that give them a meaning.
struct PickleKind {
  struct Name {
    std::string_view module, name;
  };
  std::span<const Name> names;
  const char* owner;   // "CIFAR's files": refuse_here() adds ", which CIFAR's files don't have"
  const char* advice;  // for a user whose file is refused
  // Handlers, each of which pushes its result. call: names[name] with `arguments`; build: sets the
  // state of an object; persistent: an object stored outside the pickle (null: refused).
  void (*call)(PickleReader&, size_t name, uint32_t arguments);
  void (*build)(PickleReader&, uint32_t object, uint32_t state);
  void (*persistent)(PickleReader&, uint32_t id) = nullptr;
  // Names that aren't listed, and whatever they are called with, become objects without contents:
  // a file may then have values that its reader never looks at.
  bool inert_objects = false;
};

class Pickle {
 public:
  // `file`: a whole file. With `size`, which receives the size of the pickle, other data may follow
  // the pickle. Throws FileError.
  Pickle(std::vector<uint8_t> file, const PickleKind&, uint64_t* size = nullptr);
  Pickle(Pickle&&) = default;  // values point into buffers, which a move doesn't relocate
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& item(const PickleValue& of, size_t i) const { return values_[of.items[i]]; }
  std::span<const PickleValue> values() const { return values_; }
  // A member of the root, or of `of`; null if that isn't a dict or lacks the key.
  const PickleValue* member(std::string_view key) const { return member(root(), key); }
  const PickleValue* member(const PickleValue& of, std::string_view key) const;
  // "argparse.Namespace", printable.
  std::string name_of_object(const PickleValue&) const;

 private:
  friend class PickleReader;
  std::vector<uint8_t> file_;
  std::deque<std::string> decoded_;  // bytes that the file encodes as text
  std::vector<PickleValue> values_;
  uint32_t root_ = 0;
};

}  // namespace bv
