// data pack LIST OUT: packs pictures into TFRecords for this program, TensorFlow and DALI.
#include <chrono>
#include <cstdio>

#include "app/commands/commands.h"
#include "app/commands/data_commands.h"
#include "app/datasets/pack_records.h"
#include "base/error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "engine/console/progress_line.h"

namespace bv {

namespace {

struct DataPackOptions {
  std::string list, out, name;
  std::optional<int> shards, resize;
  int shard_mb = PackOptions{}.shard_mb, quality = PackOptions{}.quality;
  OnBadImage on_bad_image = OnBadImage::fail;
  int workers = 0;
};
constexpr OptionRow rows[] = {
    positional("list", "LIST", field<&DataPackOptions::list>,
               "a file written by data list, or lines of path and label"),
    positional("out", "OUT", field<&DataPackOptions::out>,
               "folder for the records, to which others may be added"),
    {"name", "N", field<&DataPackOptions::name>,
     "names the files N-00000-of-00003.tfrecord, N-00000-of-00003.idx (offsets, for DALI) and "
     "N.index; "
     "train and val, or train and validation, are a split"},
    {"shards", "K", field<&DataPackOptions::shards>, "number of .tfrecord files",
     between(1, 99999)},
    {"shard_mb", "X", field<&DataPackOptions::shard_mb>,
     "instead of --shards: size of a shard in MiB, by the listed files' sizes", between(1, 1e6)},
    {"resize", "S", field<&DataPackOptions::resize>,
     "scale images whose shorter side is longer than S pixels to that, and store them as JPEG; "
     "default: every file is stored as it is",
     between(1, 32768)},
    {"quality", "Q", field<&DataPackOptions::quality>, "quality of these JPEGs, 1 to 100",
     between(1, 100)},
    {"on_bad_image", "", field<&DataPackOptions::on_bad_image>,
     "on a file that is not an image: stop, or leave it out"},
    {"workers", "N", field<&DataPackOptions::workers>,
     "threads; 0: one for each core; the files are the same for any number", between(0, 1024)}};

std::string require_name(const std::string& name) {
  if (name.empty()) throw UserError("data pack needs --name N, as in N-00000-of-00001.tfrecord");
  if (name.find('/') != name.npos || name.starts_with('.') || printable(name) != name)
    throw UserError("--name " + printable(name) + ": can't be the beginning of a file's name");
  return name;
}

int pack(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<DataPackOptions>(line);
  if (o.shards && line.own.contains("shard_mb"))
    throw UserError("give --shards or --shard-mb, not both");
  if (!o.resize && line.own.contains("quality"))
    throw UserError("--quality needs --resize; other images are stored as they are");
  const PackOptions options{.name = require_name(o.name),
                            .shards = o.shards,
                            .shard_mb = o.shard_mb,
                            .resize = o.resize,
                            .quality = o.quality,
                            .workers = decoding_threads(o.workers),
                            .skip_bad = o.on_bad_image == OnBadImage::skip};
  const ImageList list = read_list(o.list);
  catch_stop_signals();
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Packed> packed;
  {
    ProgressLine progress;
    packed = pack_records(list, o.list, o.out, options, [&](int64_t done, int64_t of) {
      progress.show(counted_of(done, of, "images"));
      return stop_signal() == 0;
    });
  }
  if (!packed) return 128 + stop_signal();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (packed->skipped > 0)
    print_error_line("skipped " + counted(packed->skipped, "bad image") +
                     ", the first: " + printable(packed->first_skipped, std::string::npos));
  if (!packed->empty_classes.empty())
    print_error_line("warning: " + printable(packed->empty_classes, std::string::npos));
  const std::string objects = list.objects ? " with " + counted(packed->images, "object") : "";
  std::printf("%s/%s: %s%s, %zu classes, %s, %.1f MB; %.1f s, %.0f MB/s\n", o.out.c_str(),
              (options.name + ".index").c_str(), counted(packed->records, "image").c_str(),
              objects.c_str(), list.classes.size(), counted(packed->shards, "shard").c_str(),
              double(packed->bytes) / 1e6, seconds.count(),
              double(packed->bytes) / 1e6 / seconds.count());
  return 0;
}

}  // namespace

constinit const Command data_pack_command = {
    .name = "data pack",
    .usage = "LIST OUT --name N [--shards K|--shard-mb X] [--resize S [--quality Q]]",
    .summary =
        "store listed images as TFRecords of tf.train.Example, a few large files that --data, "
        "TensorFlow and DALI read; they appear whole or not at all",
    .own = rows,
    .run = pack};

}  // namespace bv
