#include "data/pickle.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "data/dataset.h"

namespace bv {
namespace {

constexpr size_t max_values = size_t{4} << 20;

// The names that stand for what is built in.
enum class Known : uint8_t { reconstruct, from_buffer, ndarray, dtype, encode };
struct KnownName {
  std::string_view module, name;
  Known known;
};
constexpr KnownName known_names[] = {{"numpy.core.multiarray", "_reconstruct", Known::reconstruct},
                                     {"numpy._core.multiarray", "_reconstruct", Known::reconstruct},
                                     {"numpy.core.numeric", "_frombuffer", Known::from_buffer},
                                     {"numpy._core.numeric", "_frombuffer", Known::from_buffer},
                                     {"numpy", "ndarray", Known::ndarray},
                                     {"numpy", "dtype", Known::dtype},
                                     {"_codecs", "encode", Known::encode}};

const char* kind_name(PickleValue::Kind kind) {
  constexpr const char* names[] = {"None",   "a truth value", "a number", "a text",  "a tuple",
                                   "a list", "a dict",        "a name",   "a dtype", "an array"};
  return names[kind];
}

}  // namespace

// The machine that the format describes: instructions that push values onto a stack.
class PickleReader {
 public:
  PickleReader(Pickle& result, const std::string& path)
      : out_(result), path_(path), file_(result.file_) {}

  void run() {
    if (file_.size() < 2 || file_[0] != 0x80) refuse("isn't a pickle of protocol 2 or later");
    while (!stopped_) {
      at_ = next_;
      step(number(1));
    }
    if (next_ != file_.size())
      refuse("has " + counted(int64_t(file_.size() - next_), "byte") + " after its end");
    if (stack_.size() != 1 || !marks_.empty()) refuse("ends with a stack of other than one value");
    out_.root_ = stack_[0];
  }

 private:
  using Kind = PickleValue::Kind;

  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(path_ + ": " + why + "; take the file as it is distributed");
  }
  [[noreturn]] void refuse_here(const std::string& what) const {
    refuse("at byte " + std::to_string(at_) + ": " + what + ", which CIFAR's files don't have");
  }
  void step(uint64_t op);

  // ---- bytes after an instruction
  std::string_view taken(uint64_t bytes) {
    if (bytes > file_.size() - next_)
      throw DataError(path_ + ": truncated: it ends at byte " + std::to_string(file_.size()) +
                      ", within what begins at " + std::to_string(at_) +
                      "; download or copy it again");
    const std::string_view found(reinterpret_cast<const char*>(file_.data()) + next_, bytes);
    next_ += bytes;
    return found;
  }
  uint64_t number(size_t bytes) {  // little-endian
    uint64_t value = 0;
    const std::string_view found = taken(bytes);
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(found[i])} << (8 * i);
    return value;
  }
  int64_t long_number() {
    const uint64_t bytes = number(1);
    if (bytes > 8) refuse_here("a number of " + std::to_string(bytes) + " bytes");
    uint64_t value = number(bytes);
    if (bytes > 0 && bytes < 8 && value >> (8 * bytes - 1)) value |= ~uint64_t{0} << (8 * bytes);
    return static_cast<int64_t>(value);
  }
  std::string_view line() {
    const size_t begin = next_;
    while (taken(1) != "\n") {
    }
    return {reinterpret_cast<const char*>(file_.data()) + begin, next_ - 1 - begin};
  }

  // ---- the stack
  void push(PickleValue value) {
    if (out_.values_.size() == max_values)
      refuse("has more than " + std::to_string(max_values) + " values");
    stack_.push_back(static_cast<uint32_t>(out_.values_.size()));
    out_.values_.push_back(std::move(value));
  }
  void push_text(uint64_t bytes) { push({.kind = Kind::text, .bytes = taken(bytes)}); }
  void push_number(int64_t value) { push({.kind = Kind::integer, .number = value}); }
  PickleValue& value(uint32_t id) { return out_.values_[id]; }
  uint32_t pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
      refuse_here("an instruction without its operands");
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<uint32_t> pop(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) refuse_here("an instruction without its mark");
    std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()),
                                stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  PickleValue& top(Kind kind) {
    const uint32_t id = pop();
    stack_.push_back(id);
    if (value(id).kind != kind) refuse_here(std::string("items for ") + kind_name(value(id).kind));
    return value(id);
  }
  void extend(Kind kind, const std::vector<uint32_t>& items) {
    std::vector<uint32_t>& all = top(kind).items;
    if (kind == Kind::dict && items.size() % 2 != 0) refuse_here("a key without its value");
    all.insert(all.end(), items.begin(), items.end());
  }
  void push_tuple(std::vector<uint32_t> items) {
    push({.kind = Kind::tuple, .items = std::move(items)});
  }

  // ---- memory, by number
  void put(uint64_t number) {
    const uint32_t id = pop();
    stack_.push_back(id);
    memo_[number] = id;
  }
  // Lists and dicts aren't used twice, so that none can contain itself.
  void get(uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) refuse_here("a use of what was never stored");
    const Kind kind = value(found->second).kind;
    if (kind == Kind::list || kind == Kind::dict)
      refuse_here(std::string(kind_name(kind)) + " that is used twice");
    stack_.push_back(found->second);
  }

  // ---- names, and what calling them would make
  void push_name(std::string_view module, std::string_view name) {
    for (const KnownName& k : known_names)
      if (k.module == module && k.name == name)
        return push({.kind = Kind::name, .number = static_cast<int64_t>(k.known)});
    refuse_here("the name " + printable(std::string(module) + "." + std::string(name), 100));
  }
  bool is(uint32_t id, Known known) {
    return value(id).kind == Kind::name && value(id).number == static_cast<int64_t>(known);
  }
  bool is_text(uint32_t id, std::initializer_list<std::string_view> texts) {
    return value(id).kind == Kind::text && std::ranges::count(texts, value(id).bytes) > 0;
  }
  std::vector<uint32_t> arguments(uint32_t id, size_t count) {
    if (value(id).kind != Kind::tuple || value(id).items.size() != count)
      refuse_here("other arguments than numpy's");
    return value(id).items;
  }
  void call();
  void build();
  void fill(PickleValue& array, uint32_t shape, uint32_t type, uint32_t bytes);
  std::string_view latin1(std::string_view utf8);

  Pickle& out_;
  const std::string& path_;
  std::span<const uint8_t> file_;
  size_t at_ = 0, next_ = 0;  // of the instruction; of what follows
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // stack sizes
  std::unordered_map<uint64_t, uint32_t> memo_;
  bool stopped_ = false;
};

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
      return push({});
    case 0x88:
    case 0x89:
      return push({.kind = Kind::truth, .number = op == 0x88});
    case 'K':
      return push_number(static_cast<int64_t>(number(1)));
    case 'M':
      return push_number(static_cast<int64_t>(number(2)));
    case 'J':
      return push_number(static_cast<int32_t>(number(4)));
    case 0x8a:  // LONG1
      return push_number(long_number());
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
      return push({.kind = Kind::list});
    case 'a':
      return extend(Kind::list, pop(1));
    case 'e':
      return extend(Kind::list, pop_to_mark());
    case '}':
      return push({.kind = Kind::dict});
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
    case 'R':
      return call();
    case 'b':
      return build();
    default: {
      char text[32];
      std::snprintf(text, sizeof text, "instruction 0x%02x", static_cast<unsigned>(op));
      refuse_here(text);
    }
  }
}

void PickleReader::call() {
  const uint32_t given = pop(), callee = pop();
  if (value(callee).kind != Kind::name)
    refuse_here(std::string("a call of ") + kind_name(value(callee).kind));
  switch (static_cast<Known>(value(callee).number)) {
    case Known::reconstruct:  // (ndarray, (0,), "b"); its state follows
      if (!is(arguments(given, 3)[0], Known::ndarray)) refuse_here("an array of another class");
      return push({.kind = Kind::array});
    case Known::from_buffer: {  // (bytes, dtype, shape, "C")
      const std::vector<uint32_t> of = arguments(given, 4);
      if (!is_text(of[3], {"C"})) refuse_here("an array that isn't stored by rows");
      push({.kind = Kind::array});
      return fill(value(stack_.back()), of[2], of[1], of[0]);
    }
    case Known::dtype:  // ("u1", False, True)
      if (!is_text(arguments(given, 3)[0], {"u1", "|u1", "uint8"}))
        refuse_here("an array of other numbers than uint8");
      return push({.kind = Kind::dtype});
    case Known::encode: {  // (text, "latin1"): how protocol 2 writes Python 3's bytes
      const std::vector<uint32_t> of = arguments(given, 2);
      if (value(of[0]).kind != Kind::text || !is_text(of[1], {"latin1", "latin-1"}))
        refuse_here("text in another encoding");
      return push({.kind = Kind::text, .bytes = latin1(value(of[0]).bytes)});
    }
    case Known::ndarray:
      break;
  }
  refuse_here("a call of numpy.ndarray");
}

// Gives an array its elements; a dtype's state has nothing that matters for bytes.
void PickleReader::build() {
  const uint32_t state = pop(), object = pop();
  stack_.push_back(object);
  if (value(object).kind == Kind::dtype && value(state).kind == Kind::tuple) return;
  if (value(object).kind != Kind::array)
    refuse_here(std::string("a state for ") + kind_name(value(object).kind));
  const std::vector<uint32_t> of = arguments(state, 5);  // version, shape, dtype, by columns, bytes
  const PickleValue& columns = value(of[3]);
  if ((columns.kind != Kind::truth && columns.kind != Kind::integer) || columns.number != 0)
    refuse_here("an array that isn't stored by rows");
  fill(value(object), of[1], of[2], of[4]);
}

void PickleReader::fill(PickleValue& array, uint32_t shape, uint32_t type, uint32_t bytes) {
  if (array.complete) refuse_here("an array that is filled twice");
  if (value(shape).kind != Kind::tuple || value(type).kind != Kind::dtype ||
      value(bytes).kind != Kind::text)
    refuse_here("other arguments than numpy's");
  uint64_t count = 1;
  std::string sizes;
  for (const uint32_t id : value(shape).items) {
    const int64_t size = value(id).number;
    if (value(id).kind != Kind::integer || size < 0 || size > INT32_MAX || array.shape.size() == 2)
      refuse_here("an array's side that isn't a size");
    sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
    array.shape.push_back(size);
    count *= static_cast<uint64_t>(size);
  }
  array.bytes = value(bytes).bytes;
  if (count != array.bytes.size())
    refuse("at byte " + std::to_string(at_) + ": an array of " + sizes + " elements has " +
           counted(static_cast<int64_t>(array.bytes.size()), "byte"));
  array.complete = true;
}

std::string_view PickleReader::latin1(std::string_view utf8) {
  std::string& bytes = out_.decoded_.emplace_back();
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<uint8_t>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
      continue;
    }
    const auto next = static_cast<uint8_t>(i + 1 < utf8.size() ? utf8[++i] : 0);
    if ((lead != 0xc2 && lead != 0xc3) || next >> 6 != 2) refuse_here("text in another encoding");
    bytes += static_cast<char>((lead & 3) << 6 | (next & 63));
  }
  return bytes;
}

Pickle::Pickle(const std::string& path, std::vector<uint8_t> file) : file_(std::move(file)) {
  PickleReader(*this, path).run();
}

const PickleValue* Pickle::member(std::string_view key) const {
  const PickleValue& all = root();
  if (all.kind != PickleValue::dict) return nullptr;
  for (size_t i = 0; i + 1 < all.items.size(); i += 2)
    if (const PickleValue& k = item(all, i); k.kind == PickleValue::text && k.bytes == key)
      return &item(all, i + 1);
  return nullptr;
}

}  // namespace bv
