// The stack machine that reads a pickle, for code that defines a PickleKind: instructions push
// values onto a stack. Values are referred to by number, since push() may move them in memory.
#pragma once
#include <initializer_list>
#include <unordered_map>

#include "base/python/pickle.h"

namespace bv {

class PickleReader {
 public:
  PickleReader(Pickle& result, const PickleKind& kind)
      : out_(result), kind_(kind), file_(result.file_) {}
  uint64_t run();  // returns the pickle's size

  PickleValue& value(uint32_t id) { return out_.values_[id]; }
  uint32_t push(PickleValue);  // returns its number
  bool is_of_tensor(uint32_t id) const;
  void push_again(uint32_t id) { stack_.push_back(id); }  // pushes an existing value
  bool is_name(uint32_t id, size_t name) const;
  bool is_text(uint32_t id, std::initializer_list<std::string_view> texts) const;
  // The `count` items of a tuple. Refuses any other value: "arguments that differ from numpy's".
  std::vector<uint32_t> arguments(uint32_t id, size_t count, const char* whose);
  std::string_view keep(std::string bytes);                      // for the Pickle's lifetime
  [[noreturn]] void refuse(const std::string& why) const;        // appends the advice
  [[noreturn]] void refuse_here(const std::string& what) const;  // names the byte and the owner
  [[noreturn]] void refuse_size(const std::string& what) const;  // names the byte

 private:
  using Kind = PickleValue::Kind;

  void step(uint64_t op);
  bool step_of_objects(uint64_t op);  // false: not one of their instructions

  // The operand bytes of an instruction.
  std::string_view taken(uint64_t bytes);
  uint64_t number(size_t bytes);  // little-endian
  int64_t long_number(uint64_t bytes);
  std::string_view line();

  void push_text(uint64_t bytes) { push({.kind = Kind::text, .bytes = taken(bytes)}); }
  uint32_t add(PickleValue);  // without pushing it
  void push_long(uint64_t bytes);
  void push_number(int64_t value) { push({.kind = Kind::integer, .number = value}); }
  void push_tuple(std::vector<uint32_t> items);
  void push_name(std::string_view module, std::string_view name);
  uint32_t pop();
  std::vector<uint32_t> pop(size_t count);
  void pop_value_or_mark();
  std::vector<uint32_t> pop_to_mark();
  PickleValue& top();
  void extend(Kind, const std::vector<uint32_t>& items);

  // The memo: values stored by number.
  void put(uint64_t number);
  void get(uint64_t number);

  void push_object(uint32_t module, uint32_t name, bool of_tensor);
  void call();
  void build();
  void load_persistent();

  Pickle& out_;
  const PickleKind& kind_;
  std::span<const uint8_t> file_;
  size_t at_ = 0, next_ = 0;  // offsets of the current instruction and of the next byte to read
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // stack sizes
  std::unordered_map<uint64_t, uint32_t> memo_;
  bool stopped_ = false;
};

}  // namespace bv
