// Errors of the machine, not of a file: too many open files, no permission, no memory, a disk or a
// server that fails. They end a command; no file is skipped for them as a bad one.
#pragma once
#include <string>

#include "base/error.h"

namespace bv {

// Whether an errno of a file's call is one of these: all are, except those of a file that isn't
// there or isn't a regular one.
bool is_machine_error(int code);

// Its text has the path, the system's reason and what to do. Not a FileError.
struct MachineError : RunError {
  MachineError(const std::string& path, int error_code);
  const int code;  // errno
};

// Whether there is a file or folder, or a link to one. Throws MachineError if that can't be told.
bool there_is(const std::string& path);

}  // namespace bv
