// data unpack PATH DIR: turns records, or CIFAR's files, into class folders.
#include <cstdio>

#include "app/commands/commands.h"
#include "app/datasets/unpack_records.h"
#include "base/error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "engine/console/progress_line.h"
#include "engine/files/new_folder.h"

namespace bv {

namespace {

struct UnpackOptions {
  std::string path, dir;
  OnBadImage on_bad_image = OnBadImage::fail;
};
constexpr OptionRow rows[] = {
    positional("path", "PATH", field<&UnpackOptions::path>,
               "a folder of records or NAME.index, or CIFAR's folder"),
    positional("dir", "DIR", field<&UnpackOptions::dir>,
               "new folder for CLASS/NAME, or for the photos of COCO's objects; if PATH is "
               "split, they go into train/ and val/"),
    {"on_bad_image", "", field<&UnpackOptions::on_bad_image>,
     "what to do with a damaged record: stop, or leave it out"}};

int unpack(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<UnpackOptions>(line);
  catch_stop_signals();
  NewFolder folder("DIR", o.dir);
  std::optional<Unpacked> unpacked;
  {
    ProgressLine progress;
    unpacked = unpack_records(o.path, folder.place(), o.on_bad_image == OnBadImage::skip,
                              [&](int64_t done, int64_t of) {
                                progress.show(counted_of(done, of, "images"));
                                return stop_signal() == 0;
                              });
  }
  if (!unpacked) return 128 + stop_signal();
  folder.finish();
  for (const std::string& warning : unpacked->warnings)
    print_error_line("warning: " + printable(warning, std::string::npos));
  if (unpacked->skipped > 0)
    print_error_line("skipped " + counted(unpacked->skipped, "bad image") +
                     ", the first: " + printable(unpacked->first_skipped, std::string::npos));
  std::printf("%s: %s\n", o.dir.c_str(), counted(unpacked->pictures, "image").c_str());
  return 0;
}

}  // namespace

constinit const Command data_unpack_command = {
    .name = "data unpack",
    .usage = "PATH DIR",
    .summary =
        "write the images in records as files, as they were packed; those of CIFAR as PNG, so "
        "that other programs and data list can read them",
    .own = rows,
    .run = unpack};

}  // namespace bv
