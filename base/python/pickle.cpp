#include "base/python/pickle.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/files/file.h"
#include "base/python/pickle_reader.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr size_t max_values = size_t{4} << 20;

}  // namespace

const char* kind_name(PickleValue::Kind kind) {
  constexpr const char* names[] = {"None",     "a truth value", "a number", "a number", "a text",
                                   "a tuple",  "a list",        "a dict",   "a name",   "a dtype",
                                   "an array", "a storage",     "a tensor", "an object"};
  return names[kind];
}

uint64_t PickleReader::run() {
  if (file_.size() < 2 || file_[0] != 0x80) refuse("isn't a pickle of protocol 2 or later");
  while (!stopped_) {
    at_ = next_;
    step(number(1));
  }
  if (stack_.size() != 1 || !marks_.empty()) refuse("doesn't end with one value on its stack");
  out_.root_ = stack_[0];
  return next_;
}

void PickleReader::refuse(const std::string& why) const {
  throw FileError(why + "; " + kind_.advice);
}
void PickleReader::refuse_here(const std::string& what) const {
  refuse_size(what + ", which " + kind_.owner + " don't have");
}
void PickleReader::refuse_size(const std::string& what) const {
  refuse("at byte " + std::to_string(at_) + ": " + what);
}

std::string_view PickleReader::taken(uint64_t bytes) {
  if (bytes > file_.size() - next_)
    throw FileError("truncated: it ends at byte " + std::to_string(file_.size()) +
                    (at_ == file_.size() ? ", without an end mark"
                                         : ", within what begins at " + std::to_string(at_)) +
                    "; download or copy it again");
  const std::string_view found(reinterpret_cast<const char*>(file_.data()) + next_, bytes);
  next_ += bytes;
  return found;
}
uint64_t PickleReader::number(size_t bytes) {
  uint64_t value = 0;
  const std::string_view found = taken(bytes);
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(found[i])} << (8 * i);
  return value;
}
int64_t PickleReader::long_number(uint64_t bytes) {
  uint64_t value = number(bytes);
  if (bytes > 0 && bytes < 8 && value >> (8 * bytes - 1)) value |= ~uint64_t{0} << (8 * bytes);
  return static_cast<int64_t>(value);
}
std::string_view PickleReader::line() {
  const size_t begin = next_;
  while (taken(1) != "\n") {
  }
  return {reinterpret_cast<const char*>(file_.data()) + begin, next_ - 1 - begin};
}

uint32_t PickleReader::add(PickleValue value) {
  if (out_.values_.size() == max_values)
    refuse("has more than " + std::to_string(max_values) + " values");
  out_.values_.push_back(std::move(value));
  return static_cast<uint32_t>(out_.values_.size() - 1);
}
uint32_t PickleReader::push(PickleValue value) {
  stack_.push_back(add(std::move(value)));
  return stack_.back();
}
void PickleReader::push_tuple(std::vector<uint32_t> items) {
  const bool of_tensor = std::ranges::any_of(items, [&](uint32_t id) { return is_of_tensor(id); });
  push({.kind = Kind::tuple, .of_tensor = of_tensor, .items = std::move(items)});
}
uint32_t PickleReader::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
    refuse_here("an instruction without its operands");
  const uint32_t top = stack_.back();
  stack_.pop_back();
  return top;
}
std::vector<uint32_t> PickleReader::pop(size_t count) {
  std::vector<uint32_t> items(count);
  for (size_t i = count; i-- > 0;) items[i] = pop();
  return items;
}
std::vector<uint32_t> PickleReader::pop_to_mark() {
  if (marks_.empty()) refuse_here("an instruction without its mark");
  std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}
PickleValue& PickleReader::top() {
  const uint32_t id = pop();
  stack_.push_back(id);
  return value(id);
}
void PickleReader::extend(Kind kind, const std::vector<uint32_t>& items) {
  PickleValue& of = top();
  if (of.kind == Kind::object) return;
  if (of.kind != kind) refuse_here(std::string("items for ") + kind_name(of.kind));
  std::vector<uint32_t>& all = of.items;
  if (kind == Kind::dict && items.size() % 2 != 0) refuse_here("a key without its value");
  all.insert(all.end(), items.begin(), items.end());
}

void PickleReader::put(uint64_t number) {
  const uint32_t id = pop();
  stack_.push_back(id);
  memo_[number] = id;
}
// Refuses a second use of a list or dict, so that none can contain itself. Beside inert objects it
// may; who reads such a file follows no more than a few levels.
void PickleReader::get(uint64_t number) {
  const auto found = memo_.find(number);
  if (found == memo_.end()) refuse_here("a reference to a value that was never stored");
  const Kind kind = value(found->second).kind;
  if (!kind_.inert_objects && (kind == Kind::list || kind == Kind::dict))
    refuse_here(std::string(kind_name(kind)) + " that is used twice");
  stack_.push_back(found->second);
}

void PickleReader::push_name(std::string_view module, std::string_view name) {
  for (size_t i = 0; i < kind_.names.size(); ++i)
    if (kind_.names[i].module == module && kind_.names[i].name == name) {
      push({.kind = Kind::name, .number = static_cast<int64_t>(i)});
      return;
    }
  if (!kind_.inert_objects)
    refuse_here("the name " + printable(std::string(module) + "." + std::string(name), 100));
  const uint32_t first = add({.kind = Kind::text, .bytes = module});
  push_object(first, add({.kind = Kind::text, .bytes = name}), false);
}
bool PickleReader::is_name(uint32_t id, size_t name) const {
  const PickleValue& value = out_.values_[id];
  return value.kind == Kind::name && value.number == static_cast<int64_t>(name);
}
bool PickleReader::is_text(uint32_t id, std::initializer_list<std::string_view> texts) const {
  const PickleValue& value = out_.values_[id];
  return value.kind == Kind::text && std::ranges::count(texts, value.bytes) > 0;
}
std::vector<uint32_t> PickleReader::arguments(uint32_t id, size_t count, const char* whose) {
  if (value(id).kind != Kind::tuple || value(id).items.size() != count)
    refuse_here(std::string("arguments that differ from ") + whose);
  return value(id).items;
}
std::string_view PickleReader::keep(std::string bytes) {
  return out_.decoded_.emplace_back(std::move(bytes));
}

void PickleReader::call() {
  const uint32_t given = pop(), callee = pop();
  const PickleValue& called = value(callee);
  if (called.kind == Kind::name)
    return kind_.call(*this, static_cast<size_t>(called.number), given);
  if (called.kind != Kind::object) refuse_here(std::string("a call of ") + kind_name(called.kind));
  push_object(called.items[0], called.items[1], is_of_tensor(given));
}
void PickleReader::build() {
  const uint32_t state = pop(), object = pop();
  kind_.build(*this, object, state);
}
void PickleReader::load_persistent() {
  if (!kind_.persistent) refuse_here("an object that is stored elsewhere");
  kind_.persistent(*this, pop());
}

void PickleReader::step(uint64_t op) {
  switch (op) {
    case 0x80:  // PROTO
      if (const uint64_t protocol = number(1); protocol < 2 || protocol > 5)
        refuse_here("protocol " + std::to_string(protocol));
      return;
    case 0x95:  // FRAME
      taken(8);
      return;
    case '.':
      stopped_ = true;
      return;
    case '(':
      return marks_.push_back(stack_.size());
    case 'N':
      push({});
      return;
    case 0x88:
    case 0x89:
      push({.kind = Kind::truth, .number = op == 0x88});
      return;
    case 'K':
      return push_number(static_cast<int64_t>(number(1)));
    case 'M':
      return push_number(static_cast<int64_t>(number(2)));
    case 'J':
      return push_number(static_cast<int32_t>(number(4)));
    case 0x8a:  // LONG1
      return push_long(number(1));
    case 'G':  // BINFLOAT; its value is dropped, since no tensor or pixel depends on one
      taken(8);
      push({.kind = Kind::real});
      return;
    case 'U':   // SHORT_BINSTRING, Python 2's
    case 'C':   // SHORT_BINBYTES
    case 0x8c:  // SHORT_BINUNICODE
      return push_text(number(1));
    case 'T':  // BINSTRING, Python 2's
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      return push_text(number(4));
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      return push_text(number(8));
    case ')':
      return push_tuple({});
    case 0x85:
    case 0x86:
    case 0x87:
      return push_tuple(pop(op - 0x84));
    case 't':
      return push_tuple(pop_to_mark());
    case ']':
      push({.kind = Kind::list});
      return;
    case 'a':
      return extend(Kind::list, pop(1));
    case 'e':
      return extend(Kind::list, pop_to_mark());
    case '}':
      push({.kind = Kind::dict});
      return;
    case 's':
      return extend(Kind::dict, pop(2));
    case 'u':
      return extend(Kind::dict, pop_to_mark());
    case 'q':
      return put(number(1));
    case 'r':
      return put(number(4));
    case 0x94:  // MEMOIZE
      return put(memo_.size());
    case 'h':
      return get(number(1));
    case 'j':
      return get(number(4));
    case 'c': {
      const std::string_view module = line();
      return push_name(module, line());
    }
    case 0x93: {  // STACK_GLOBAL
      const uint32_t name = pop(), module = pop();
      if (value(name).kind != Kind::text || value(module).kind != Kind::text)
        refuse_here("a name that isn't text");
      return push_name(value(module).bytes, value(name).bytes);
    }
    case 'Q':  // BINPERSID
      return load_persistent();
    case 'R':
      return call();
    case 'b':
      return build();
    default: {
      if (kind_.inert_objects && step_of_objects(op)) return;
      char text[32];
      std::snprintf(text, sizeof text, "instruction 0x%02x", static_cast<unsigned>(op));
      refuse_here(text);
    }
  }
}

Pickle::Pickle(std::vector<uint8_t> file, const PickleKind& kind, uint64_t* size)
    : file_(std::move(file)) {
  PickleReader reader(*this, kind);
  const uint64_t end = reader.run();
  if (size)
    *size = end;
  else if (end != file_.size())
    reader.refuse("has " + counted(int64_t(file_.size() - end), "byte") + " after its end");
}

const PickleValue* Pickle::member(const PickleValue& all, std::string_view key) const {
  if (all.kind != PickleValue::dict) return nullptr;
  for (size_t i = 0; i + 1 < all.items.size(); i += 2)
    if (const PickleValue& k = item(all, i); k.kind == PickleValue::text && k.bytes == key)
      return &item(all, i + 1);
  return nullptr;
}

}  // namespace bv
