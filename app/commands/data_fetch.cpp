// data fetch SET: downloads a public data set, ready for --data.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/fetch/download.h"
#include "base/error.h"
#include "base/other_program.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "data/dataset.h"
#include "engine/console/progress_line.h"
#include "engine/files/new_folder.h"

namespace bv {

namespace {

struct KnownSet {
  std::string_view name, folder;  // folder: its top folder in the archive
  std::string_view url, sha256;   // as listed by TensorFlow Datasets
  uint64_t bytes;
};
constexpr KnownSet known_sets[] = {
    {"cifar10", "cifar-10-batches-bin", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
     "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170052171},
    {"flowers", "flower_photos",
     "https://storage.googleapis.com/download.tensorflow.org/example_images/flower_photos.tgz",
     "4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c", 228813984},
};

struct FetchOptions {
  std::string set, dir, url, sha256;
};
constexpr OptionRow rows[] = {
    positional(
        "set", "cifar10|flowers", field<&FetchOptions::set>,
        "CIFAR-10 (60000 images of 32x32, 10 classes, 162 MiB to fetch), or TensorFlow's flower "
        "photos (3670 in 5 classes, 218 MiB)"),
    positional("dir", "[DIR]", field<&FetchOptions::dir>,
               "new folder for it; default: the archive's, cifar-10-batches-bin or flower_photos"),
    {"url", "URL", field<&FetchOptions::url>, "another URL of the archive"},
    {"sha256", "SUM", field<&FetchOptions::sha256>, "checksum of that archive, if it differs"}};

const KnownSet& require_set(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownSet& set : known_sets) {
    if (set.name == name) return set;
    names.emplace_back(set.name);
  }
  throw UserError("data fetch: no set '" + printable(name) + "' is known; there are " +
                  join(names, ", ") + suggestion(name, names));
}

std::string require_sha256(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'F' ? char(c - 'A' + 'a') : c; });
  if (text.size() != 64 || text.find_first_not_of("0123456789abcdef") != text.npos)
    throw UserError("--sha256 " + printable(text) + ": must be 64 hexadecimal digits");
  return text;
}

std::string mib(uint64_t bytes) { return format_number(double(bytes >> 20)); }

// Unpacks the archive without its top folder. False if a stop signal came.
bool unpack(const std::string& archive, const std::filesystem::path& folder) {
  const ProgramEnd end = run_to_end({"tar", "--extract", "--file", archive, "--directory", folder,
                                     "--strip-components", "1", "--no-same-owner"},
                                    [] { return stop_signal() == 0; });
  if (stop_signal()) return false;
  if (end.code != 0)
    throw RunError("can't unpack " + archive + ": " + split(end.output + "\n", '\n')[0]);
  return true;
}

// Describes the data set. Throws RunError if the folder has none.
std::string contents_of(const std::filesystem::path& folder, const std::string& url) try {
  const DataSets sets = open_dataset({.path = folder, .val_fraction = 0});
  return std::to_string(sets.train->size()) +
         (sets.val ? " train, " + std::to_string(sets.val->size()) + " val, " : " images, ") +
         std::to_string(sets.classes.size()) + " classes";
} catch (const DataError& e) {
  throw RunError(url + ": not a data set: " + e.what());
}

int fetch(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<FetchOptions>(line);
  const KnownSet& set = require_set(o.set);
  const std::string dir = o.dir.empty() ? std::string(set.folder) : o.dir;
  Download archive{.url = o.url.empty() ? std::string(set.url) : o.url,
                   .sha256 = require_sha256(o.sha256.empty() ? std::string(set.sha256) : o.sha256),
                   .path = dir + ".download"};
  const std::string of_bytes = o.sha256.empty() ? " of " + mib(set.bytes) : "";
  catch_stop_signals();
  NewFolder folder("DIR", dir);
  {
    ProgressLine progress;
    const auto show = [&](uint64_t bytes) {
      progress.show(archive.url + ": " + mib(bytes) + of_bytes + " MiB");
    };
    if (!download(archive, show) || !unpack(archive.path, folder.place()))
      return 128 + stop_signal();
  }
  const std::string contents = contents_of(folder.place(), archive.url);
  folder.finish();
  std::filesystem::remove(archive.path);
  std::printf("%s: %s\ntrain on it: %s MODEL --data %s\n", dir.c_str(), contents.c_str(),
              own_command().c_str(), dir.c_str());
  return 0;
}

}  // namespace

constinit const Command data_fetch_command = {
    .name = "data fetch",
    .usage = "cifar10|flowers [DIR] [--url URL [--sha256 SUM]]",
    .summary =
        "download a public data set by curl, check it and unpack it; an interrupted download is "
        "resumed",
    .own = rows,
    .takes = {},
    .run = fetch};

}  // namespace bv
