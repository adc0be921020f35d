// Marks communicators whose calls, with those of groups, run one after another in the order in which
// they were called, whatever their streams. The others' go on beside each other.
#pragma once
namespace bv {

class InCallOrder {
 public:
  virtual ~InCallOrder() = default;
};

}  // namespace bv
