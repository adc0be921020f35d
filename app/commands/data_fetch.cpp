// data fetch SET: downloads a public data set, ready for --data.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

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

namespace fs = std::filesystem;

struct KnownSet {
  std::string_view name, folder;  // folder: the archive's top folder
  std::string_view url, sha256;   // as listed by TensorFlow Datasets; empty: no recorded checksum
  uint64_t bytes;
};
constexpr KnownSet known_sets[] = {
    {"cifar10", "cifar-10-batches-bin", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
     "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170052171},
    {"cifar100", "cifar-100-binary", "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
     "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", 168513733},
    {"flowers", "flower_photos",
     "https://storage.googleapis.com/download.tensorflow.org/example_images/flower_photos.tgz",
     "4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c", 228813984},
    {"seedlings", "NonsegmentedV2",
     "https://vision.eng.au.dk/?download=/data/WeedData/NonsegmentedV2.zip", "",
     uint64_t{1700} * 1000 * 1000},
};

struct FetchOptions {
  std::string set, dir, url, sha256;
};
constexpr OptionRow rows[] = {
    positional(
        "set", "cifar10|cifar100|flowers|seedlings", field<&FetchOptions::set>,
        "CIFAR-10 or CIFAR-100 (60000 images of 32x32, 10 or 100 classes, 160 MiB to fetch), "
        "TensorFlow's flower photos (3670 in 5 classes, 218 MiB), or V2 Plant Seedlings (5539 in "
        "12 classes, 1.7 GB, CC BY-SA 4.0; unverified: nobody has recorded its SHA-256 here)"),
    positional(
        "dir", "[DIR]", field<&FetchOptions::dir>,
        "new folder for it; default: the archive's: cifar-10-batches-bin, flower_photos, ..."),
    {"url", "URL", field<&FetchOptions::url>, "another URL of the archive"},
    {"sha256", "SUM", field<&FetchOptions::sha256>, "checksum of that archive, if it differs"}};

const KnownSet& require_set(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownSet& set : known_sets) {
    if (set.name == name) return set;
    names.emplace_back(set.name);
  }
  throw UserError("data fetch: unknown data set '" + printable(name) +
                  "'; available: " + join(names, ", ") + suggestion(name, names));
}

std::string require_sha256(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'F' ? char(c - 'A' + 'a') : c; });
  if (text.size() != 64 || text.find_first_not_of("0123456789abcdef") != text.npos)
    throw UserError("--sha256 " + printable(text) + ": must be 64 hexadecimal digits");
  return text;
}

std::string mib(uint64_t bytes) { return format_number(double(bytes >> 20)); }

bool is_zip(const std::string& archive) {
  char first[2] = {};
  std::ifstream(archive, std::ios::binary).read(first, sizeof first);
  return first[0] == 'P' && first[1] == 'K';
}

// Moves the contents of `from`, without their top folder, into `folder`, and removes `from`.
void move_without_top(const fs::path& from, const fs::path& folder) {
  const auto entries = [](const fs::path& of) {
    return std::vector<fs::path>(fs::directory_iterator(of), {});
  };
  fs::path top = from;
  if (const std::vector<fs::path> all = entries(from);
      all.size() == 1 && fs::is_directory(fs::symlink_status(all[0])))
    top = all[0];
  for (const fs::path& entry : entries(top)) fs::rename(entry, folder / entry.filename());
  fs::remove_all(from);
}

// The first line after tar's warnings, which precede its errors.
std::string first_error(const std::string& output) {
  const std::vector<std::string> lines = split(output + "\n", '\n');
  const auto found = std::ranges::find_if(
      lines, [](const std::string& line) { return !line.starts_with("tar: Removing leading"); });
  return found == lines.end() ? lines[0] : *found;
}

// Unpacks the archive without its top folder. False after a stop signal.
bool unpack(const std::string& archive, const fs::path& folder) {
  const bool zip = is_zip(archive);
  const fs::path unzipped = folder / ".unzipped";
  const std::vector<std::string> words =
      zip ? std::vector<std::string>{"unzip", "-q", "-o", archive, "-d", unzipped}
          : std::vector<std::string>{
                "tar",  "--extract",          "--file", archive,          "--directory",
                folder, "--strip-components", "1",      "--no-same-owner"};
  const ProgramEnd end = run_to_end(words, [] { return stop_signal() == 0; });
  if (stop_signal()) return false;
  if (end.code != 0)
    throw RunError("can't unpack " + archive + ": " + first_error(end.output) +
                   "; delete it to fetch it again");
  if (zip) move_without_top(unzipped, folder);
  return true;
}

// Describes the data set. Throws RunError if the folder has none.
std::string contents_of(const fs::path& folder, const std::string& url) try {
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
                   .sha256 = o.sha256.empty() ? std::string(set.sha256) : require_sha256(o.sha256),
                   .path = dir + ".download"};
  const std::string of_bytes = o.sha256.empty() ? " of " + mib(set.bytes) : "";
  catch_stop_signals();
  NewFolder folder("DIR", dir);
  std::string unverified;
  {
    ProgressLine progress;
    const auto show = [&](uint64_t bytes) {
      progress.show(archive.url + ": " + mib(bytes) + of_bytes + " MiB");
    };
    const auto sha256 = download(archive, show);
    if (!sha256) return 128 + stop_signal();
    if (archive.sha256.empty())
      unverified =
          "unverified: SHA-256 " + *sha256 + ", no checksum is recorded to compare it with\n";
    if (!unpack(archive.path, folder.place())) return 128 + stop_signal();
  }
  const std::string contents = contents_of(folder.place(), archive.url);
  folder.finish();
  fs::remove(archive.path);
  std::printf("%s%s: %s\ntrain on it: %s MODEL --data %s\n", unverified.c_str(), dir.c_str(),
              contents.c_str(), own_command().c_str(), dir.c_str());
  return 0;
}

}  // namespace

constinit const Command data_fetch_command = {
    .name = "data fetch",
    .usage = "cifar10|cifar100|flowers|seedlings [DIR] [--url URL [--sha256 SUM]]",
    .summary =
        "download a public data set with curl, check it and unpack it; an interrupted download is "
        "resumed",
    .own = rows,
    .run = fetch};

}  // namespace bv
