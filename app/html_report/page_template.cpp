#include "app/html_report/page_template.h"

// The assembler embeds the file; mk/compile.mk makes this object depend on it.
asm(R"(
  .section .rodata
page_begin:
  .incbin "app/html_report/page.html"
page_end:
  .byte 0
  .text
)");

extern "C" const char page_begin[], page_end[];

namespace bv {

std::string_view page_template() { return {page_begin, page_end}; }

}  // namespace bv
