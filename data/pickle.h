// Python's pickle format, protocols 2 to 5, for files of plain values: dictionaries, lists, tuples,
// text and bytes, whole numbers and numpy's arrays of uint8. A pickle is a program that may call
// any function of Python; here five names stand for what is built in, and any other name or
// instruction is refused. Nothing is ever run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

struct PickleValue {
  enum Kind : uint8_t { none, truth, integer, text, tuple, list, dict, name, dtype, array };
  Kind kind = none;
  bool complete = false;             // an array: it has its bytes
  int64_t number = 0;                // truth, integer
  std::string_view bytes = {};       // text (or bytes), array
  std::vector<uint32_t> items = {};  // tuple, list; dict: keys and values in turn
  std::vector<int64_t> shape = {};   // array
};

class Pickle {
 public:
  // `file`: a whole file. Throws DataError, which begins with its path.
  Pickle(const std::string& path, std::vector<uint8_t> file);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& item(const PickleValue& of, size_t i) const { return values_[of.items[i]]; }
  // A member of the root; null if the root is no dict or lacks the key.
  const PickleValue* member(std::string_view key) const;

 private:
  friend class PickleReader;
  std::vector<uint8_t> file_;
  std::deque<std::string> decoded_;  // bytes that the file has as text
  std::vector<PickleValue> values_;
  uint32_t root_ = 0;
};

}  // namespace bv
