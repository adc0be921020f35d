# Format and lint of the sources.
.PHONY: format lint tidy
format:
	clang-format -i $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
lint:
	@tests/lint
# clang-tidy before 16 can't parse all of this C++20. GCC's sanitizer headers serve as well as Clang's.
clang_tidy = $(or $(shell command -v clang-tidy-19),$(shell command -v clang-tidy-18),$(shell clang-tidy --version 2>/dev/null \
  | grep -qE 'version (1[6-9]|[2-9][0-9])' && command -v clang-tidy))
tidy_flags = $(choices) -idirafter$(shell $(CXX) -print-file-name=include) '-D__builtin_clear_padding=static_cast<void>'
# The programs of learn/ are left out: they contain kernel<<<...>>>, which Clang would parse as C++.
TIDY_BASE ?= origin/main
tidied = $(filter-out learn/%.cu,$(filter $(if $(ALL),%,$(shell git diff --name-only --diff-filter=d $(TIDY_BASE) -- '*.cpp' '*.cu')),$(sort $(compiled))))
tidy: | compile_commands.json $(messages:%=%.cc)
	@$(if $(clang_tidy),,echo "tidy: clang-tidy 16 or newer is not installed: make deps-dev" >&2; exit 2;) \
	  $(if $(tidied),printf '%s\n' $(tidied) | xargs -P $(shell nproc) -n 4 $(clang_tidy) --quiet -p . $(tidy_flags:%=--extra-arg=%),echo "tidy: no source has changed since $(TIDY_BASE)")
