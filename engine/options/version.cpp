#include "engine/options/version.h"

#include <oneapi/dnnl/dnnl.h>

#include "kernels/devices/cuda_build.h"
#include "kernels/devices/devices.h"

#ifndef BAREVISION_COMMIT  // defined by the Makefile
#define BAREVISION_COMMIT "unknown"
#endif

namespace bv {

namespace {

std::string number(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

std::string compiler() {
#ifdef __clang__
  return __VERSION__;
#else
  return "g++ " __VERSION__;
#endif
}

std::string or_none(bool built, const std::string& name) { return built ? name : "no " + name; }

std::string image_libraries() {
  std::string text = BAREVISION_TURBOJPEG ? "libjpeg-turbo" : "stb_image for JPEG";
  text += BAREVISION_WEBP ? ", libwebp" : ", no WebP";
  return text + (BAREVISION_TIFF ? ", libtiff" : ", no TIFF") + ", stb_image";
}

}  // namespace

std::string version_text() {
  return "barevision " BAREVISION_VERSION " (" BAREVISION_COMMIT
         ")\n"
         "compiler   " +
         compiler() + "\ncpu        oneDNN " +
         number(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH) +
         ", AVX2 and AVX-512\ngpu        " + cuda_build() + "\nstand-in   " +
         (is_built(DeviceKind::simt) ? "yes (--device simt)" : "no") + "\nimages     " +
         image_libraries() + "\nrecords    " + or_none(BAREVISION_RECORDS, "TFRecord") +
         "\nlogs       metrics.jsonl, " + or_none(BAREVISION_TENSORBOARD, "TensorBoard") + "\n";
}

}  // namespace bv
