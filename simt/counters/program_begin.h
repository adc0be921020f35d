// The address at which the program was loaded. A code address minus this one is an address in the
// program's file, as addr2line expects.
#pragma once
#include <link.h>

#include <cstdint>

namespace simt {

inline uintptr_t program_begin() {
  static const uintptr_t begin = [] {
    uintptr_t address = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* to) {
          *static_cast<uintptr_t*>(to) = info->dlpi_addr;
          return 1;  // the first one is the program
        },
        &address);
    return address;
  }();
  return begin;
}

}  // namespace simt
