// Objects of classes that a reader of pickles doesn't know: only the names of what made them are
// kept. Their arguments, items and states are read and dropped.
#include <utility>

#include "base/python/pickle_reader.h"
#include "base/text.h"

namespace bv {

void PickleReader::push_object(uint32_t module, uint32_t name, bool of_tensor) {
  push({.kind = Kind::object, .of_tensor = of_tensor, .items = {module, name}});
}

bool PickleReader::is_of_tensor(uint32_t id) const {
  const PickleValue& value = out_.values_[id];
  return value.of_tensor || value.kind == Kind::tensor || value.kind == Kind::storage;
}

// The state of a random number generator has numbers of more than 64 bits.
void PickleReader::push_long(uint64_t bytes) {
  if (bytes <= 8) return push_number(long_number(bytes));
  if (!kind_.inert_objects) refuse_here("a number of " + std::to_string(bytes) + " bytes");
  taken(bytes);
  push({.kind = Kind::real});
}

void PickleReader::pop_value_or_mark() {
  if (!marks_.empty() && marks_.back() == stack_.size())
    marks_.pop_back();
  else
    pop();
}

bool PickleReader::step_of_objects(uint64_t op) {
  switch (op) {
    case 0x81:  // NEWOBJ: a class and the arguments of its __new__
      call();
      return true;
    case 0x92:  // NEWOBJ_EX, with named arguments
      pop();
      call();
      return true;
    case 'i': {  // INST: a class by name, its arguments after a mark
      std::vector<uint32_t> given = pop_to_mark();
      const std::string_view module = line();
      push_name(module, line());
      push_tuple(std::move(given));
      call();
      return true;
    }
    case 'o': {  // OBJ: a class and its arguments after a mark
      std::vector<uint32_t> given = pop_to_mark();
      if (given.empty()) refuse_here("an object without a class");
      push_again(given[0]);
      given.erase(given.begin());
      push_tuple(std::move(given));
      call();
      return true;
    }
    case 0x8f:  // EMPTY_SET
      push({.kind = Kind::list});
      return true;
    case 0x90:  // ADDITEMS, to a set
      extend(Kind::list, pop_to_mark());
      return true;
    case 0x91:  // FROZENSET
      push_tuple(pop_to_mark());
      return true;
    case 0x8b:  // LONG4
      push_long(number(4));
      return true;
    case '0':
      pop_value_or_mark();
      return true;
    case '1':  // POP_MARK
      pop_to_mark();
      return true;
    default:
      return false;
  }
}

std::string Pickle::name_of_object(const PickleValue& object) const {
  return printable(std::string(item(object, 0).bytes) + "." + std::string(item(object, 1).bytes),
                   100);
}

}  // namespace bv
