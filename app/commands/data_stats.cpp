// data stats PATH: prints the mean and standard deviation of pixels, for --mean and --std.
#include <cstdio>

#include "app/commands/commands.h"
#include "app/commands/data_commands.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/dataset_stats/pixel_statistics.h"
#include "engine/console/progress_line.h"

namespace bv {

namespace {

struct StatsOptions {
  std::string path;
  bool json = false;
  int workers = 0;
  OnBadImage on_bad_image = OnBadImage::fail;
};
constexpr OptionRow rows[] = {
    positional("path", "PATH", field<&StatsOptions::path>, "training data, as for --data"),
    {"json", "", field<&StatsOptions::json>, "one JSON object instead of text"},
    {"workers", "N", field<&StatsOptions::workers>, "decoding threads; 0: one for each core",
     between(0, 1024)},
    {"on_bad_image", "", field<&StatsOptions::on_bad_image>,
     "when an image can't be decoded: end with an error, or leave it out with a line"}};

std::string flags(const ChannelStatistics& s) {
  const auto list = [](const std::array<double, 3>& of) {
    constexpr int digits = 7;
    return format_number(of[0], digits) + "," + format_number(of[1], digits) + "," +
           format_number(of[2], digits);
  };
  return "--mean " + list(s.mean) + " --std " + list(s.deviation) + "\n";
}

Json json(const ChannelStatistics& s) {
  return {{"mean", json_numbers(s.mean)}, {"std", json_numbers(s.deviation)}};
}

int print_statistics(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<StatsOptions>(line);
  const std::string path = require_data(o.path);
  const bool skip = o.on_bad_image == OnBadImage::skip;
  const DataSets sets = open_dataset({.path = path, .val_fraction = 0, .skip_bad_records = skip});
  std::vector<std::string> skipped;
  PixelStatistics s;
  {
    ProgressLine progress;
    const auto show = [&](int64_t done) {
      progress.show(counted_of(done, sets.train->size(), "images"));
    };
    s = pixel_statistics(*sets.train, decoding_threads(o.workers), show, skip ? &skipped : nullptr);
  }
  if (skip) skipped.insert(skipped.begin(), sets.notes.begin(), sets.notes.end());
  for (const std::string& note : skipped) print_error_line(printable(note, note.npos));
  const std::string text =
      o.json ? to_line({{"images", s.images},
                        {"pixels", s.pixels},
                        {"of_each_image", json(s.of_each_image)},
                        {"of_all_pixels", json(s.of_all_pixels)}}) +
                   "\n"
             : path + ": " + std::to_string(s.images) + (sets.val ? " training" : "") +
                   " images, " + std::to_string(s.pixels) +
                   " pixels, neither cropped nor resized\nof each image, averaged (deviation as "
                   "torch.std):\n  " +
                   flags(s.of_each_image) + "of all pixels:\n  " + flags(s.of_all_pixels);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

constinit const Command data_stats_command = {
    .name = "data stats",
    .usage = "PATH [--json] [--on-bad-image skip]",
    .summary =
        "print mean and standard deviation of the training images' pixels, as options to "
        "paste: averaged over images, and over all pixels; images are neither cropped nor "
        "resized, values are in 0-1",
    .own = rows,
    .run = print_statistics};

}  // namespace bv
