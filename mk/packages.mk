# Packages: what is installed, and `make deps`, which installs what is missing.
# One run of the preprocessor finds every header.
headers := stb/stb_image.h nlohmann/json.hpp gtest/gtest.h oneapi/dnnl/dnnl.hpp jpeglib.h \
  webp/demux.h tiffio.h sodium.h google/protobuf/message_lite.h
hash := \#
found := $(shell printf '%s\n' $(foreach h,$(headers),'$(hash)if __has_include(<$(h)>)' '$(h)' '$(hash)endif') \
  '$(hash)ifdef __clang__' clang '$(hash)endif' \
  | $(CXX) -x c++ -std=c++20 -E -P - 2>/dev/null)
have = $(if $(filter $(1),$(found)),1)

CUDA ?= auto
ifneq ($(CUDA),0)
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)),$(wildcard /usr/local/cuda))
NVCC := $(wildcard $(CUDA_HOME)/bin/nvcc)
NCCL := $(if $(NVCC),$(firstword $(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h /usr/local/include/nccl.h)))
CUDNN := $(if $(NVCC),$(firstword $(wildcard $(CUDA_HOME)/include/cudnn.h /usr/include/cudnn.h /usr/include/*/cudnn.h)))
endif
ONEDNN := $(call have,oneapi/dnnl/dnnl.hpp)
SIMT ?= 1
TURBOJPEG ?= $(or $(call have,jpeglib.h),0)
WEBP ?= $(or $(call have,webp/demux.h),0)
TIFF ?= $(or $(call have,tiffio.h),0)
SODIUM ?= $(or $(call have,sodium.h),0)
PROTOC := $(shell command -v protoc 2>/dev/null)
PROTOBUF := $(if $(PROTOC),$(or $(call have,google/protobuf/message_lite.h),0),0)
TENSORBOARD ?= $(PROTOBUF)
RECORDS ?= $(PROTOBUF)

packages := $(if $(shell command -v $(CXX)),,g++) \
  $(if $(call have,stb/stb_image.h),,libstb-dev) \
  $(if $(call have,nlohmann/json.hpp),,nlohmann-json3-dev) \
  $(if $(ONEDNN),,libdnnl-dev)
optional_packages := $(if $(call have,jpeglib.h),,libjpeg-dev) $(if $(call have,webp/demux.h),,libwebp-dev) \
  $(if $(call have,tiffio.h),,libtiff-dev) $(if $(call have,sodium.h),,libsodium-dev) \
  $(if $(call have,google/protobuf/message_lite.h),,libprotobuf-dev) $(if $(PROTOC),,protobuf-compiler) $(if $(call have,gtest/gtest.h),,libgtest-dev) \
  $(if $(shell command -v curl),,curl ca-certificates) $(if $(shell command -v unzip),,unzip)
packages := $(strip $(packages))
optional_packages := $(strip $(optional_packages))

.PHONY: deps deps-dev
deps:
ifeq ($(packages)$(optional_packages),)
	@echo "nothing to install"
else
	@mk/apt_install $(packages) $(optional_packages)
endif

# Debian has no ruff: a pinned version is installed from PyPI into build/dev. Without it, make lint skips it.
dev_packages = $(strip $(foreach tool,ccache clang-format shellcheck chromium groff zsh fish,$(if $(shell command -v $(tool)),,$(tool))) \
  $(if $(clangxx),,$(or $(shell apt-cache show clang-19 >/dev/null 2>&1 && echo clang-19),clang)) $(if $(clang_tidy),,$(or $(shell apt-cache show clang-tidy-19 >/dev/null 2>&1 && echo clang-tidy-19),clang-tidy)) \
  $(if $(shell python3 -c 'import ensurepip, venv' 2>&1),python3-venv))
ruff := ruff==0.17.6
deps-dev: | deps
	$(if $(dev_packages),@mk/apt_install $(dev_packages))
	@mkdir -p build && { python3 -m venv build/dev && build/dev/bin/pip install --quiet --disable-pip-version-check $(ruff); } || \
	  echo "deps-dev: no $(ruff) from PyPI; make lint will skip it" >&2
