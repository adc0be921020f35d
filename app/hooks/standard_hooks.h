// The hooks that every run has.
#pragma once
#include "engine/run/run.h"

namespace bv {

// The hooks of this process in any order: Run::attach sorts them.
HookList standard_hooks(const Run&);

}  // namespace bv
