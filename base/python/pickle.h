// Python's pickle format, protocols 2 to 5, for files of plain values: dictionaries, lists, tuples,
// text and bytes, numbers, and what a kind of files adds to them. A pickle is a program that may
// call any function of Python; here a few names stand for what is built in, and any other name or
// instruction is refused. Nothing is ever run.
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
    tensor
  };
  Kind kind = none;
  bool complete = false;             // an array: it has its bytes
  int64_t number = 0;                // truth, integer; name: its place among PickleKind::names
  std::string_view bytes = {};       // text (or bytes), array
  std::vector<uint32_t> items = {};  // tuple, list; dict: keys and values in turn; storage, tensor
  std::vector<int64_t> shape = {};   // array
};
const char* kind_name(PickleValue::Kind);

class PickleReader;

// A kind of files: the names that they may use, and what using them makes.
struct PickleKind {
  struct Name {
    std::string_view module, name;
  };
  std::span<const Name> names;
  const char* owner;   // "CIFAR's files", which don't have what is refused
  const char* advice;  // for a user who has such a file
  // Each pushes its result. A call of names[name]; a state for an object; an object that is stored
  // elsewhere (null: refused).
  void (*call)(PickleReader&, size_t name, uint32_t arguments);
  void (*build)(PickleReader&, uint32_t object, uint32_t state);
  void (*persistent)(PickleReader&, uint32_t id) = nullptr;
};

class Pickle {
 public:
  // `file`: a whole file; with `size`, which becomes the pickle's, more may follow. Throws
  // FileError.
  Pickle(std::vector<uint8_t> file, const PickleKind&, uint64_t* size = nullptr);
  Pickle(Pickle&&) = default;  // values point to buffers, which stay
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& item(const PickleValue& of, size_t i) const { return values_[of.items[i]]; }
  std::span<const PickleValue> values() const { return values_; }
  // A member of the root, or of a dict; null if it is no dict or lacks the key.
  const PickleValue* member(std::string_view key) const { return member(root(), key); }
  const PickleValue* member(const PickleValue& of, std::string_view key) const;

 private:
  friend class PickleReader;
  std::vector<uint8_t> file_;
  std::deque<std::string> decoded_;  // bytes that the file has as text
  std::vector<PickleValue> values_;
  uint32_t root_ = 0;
};

}  // namespace bv
