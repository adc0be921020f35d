#include "app/datasets/pack_records.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <new>
#include <set>
#include <span>
#include <vector>

#include "app/datasets/in_order.h"
#include "app/datasets/write_jpeg.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/file_io.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "data/decode/decode.h"
#include "data/image/resize.h"
#include "data/records/record_index.h"
#include "data/records/tfrecord.h"
#include "data/sources.h"
#include "engine/files/partial_folder.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

// The list's lines for one picture: one, or one per object in it.
struct Job {
  size_t first, count;
};

constexpr const char* advice = " (--on-bad-image skip leaves such images out)";

struct Record {
  std::string bytes, refusal, advice = {};
  std::vector<Region> boxes = {};  // the boxes of its objects
};

std::vector<Job> jobs_of(const ImageList& list, const std::string& path) {
  std::vector<Job> jobs;
  std::set<std::string_view> seen;
  for (size_t i = 0; i < list.images.size(); ++i) {
    const std::string& picture = list.images[i].path;
    if (list.objects && i > 0 && list.images[i - 1].path == picture) {
      ++jobs.back().count;
      continue;
    }
    if (!seen.insert(picture).second)
      throw DataError(path + ": lists " + printable(picture) + " twice" +
                      (list.objects ? "; an image's objects must be on adjacent lines" : ""));
    jobs.push_back({i, 1});
  }
  return jobs;
}

Image resized(const Image& image, int shorter) {
  const double scale = double(shorter) / std::min(image.height, image.width);
  const auto scaled = [&](int side) {
    return std::max(1, static_cast<int>(std::floor(side * scale)));
  };
  const bool upright = image.height > image.width;
  Image out = black_image(upright ? scaled(image.height) : shorter,
                          upright ? shorter : scaled(image.width));
  Resizer().run(image, {.height = double(image.height), .width = double(image.width)}, out.height,
                out.width, out.pixels.data());
  return out;
}

Region scaled(const Region& box, double down, double right, int height, int width) {
  Region out{.top = static_cast<int>(box.top * down), .left = static_cast<int>(box.left * right)};
  out.width = std::min(width, static_cast<int>(std::ceil((box.left + box.width) * right)));
  out.height = std::min(height, static_cast<int>(std::ceil((box.top + box.height) * down)));
  out.width = std::max(1, out.width - out.left);
  out.height = std::max(1, out.height - out.top);
  return out;
}

class RecordBuilder {
 public:
  RecordBuilder(const ImageList& list, const PackOptions& options)
      : list_(list), options_(options) {}

  Record run(const Job& job) const try {
    const std::vector<uint8_t> file = read_file(path(job), max_image_bytes);
    FileView view(file);
    HeaderSize size = check_header(view);
    PictureExample picture{.image = std::string(file.begin(), file.end()),
                           .format = std::string(name_of(format_of(file)))};
    if (size.height == 0) size = size_of(decode_image(file, 0));
    Record record;
    for (size_t i = job.first; list_.objects && i < job.first + job.count; ++i)
      record.boxes.push_back(list_.images[i].box);
    for (const Region& box : record.boxes)
      if (box.left + box.width > size.width || box.top + box.height > size.height)
        throw BadImage("a box ends outside the image of " + std::to_string(size.width) + "x" +
                       std::to_string(size.height) + " pixels");
    if (options_.resize && *options_.resize < std::min(size.height, size.width))
      resize(file, picture, size, record.boxes);
    picture.height = size.height;
    picture.width = size.width;
    label(job, record.boxes, picture);
    record.bytes = framed_record(write_example(picture));
    return record;
  } catch (const BadImage& e) {
    return {.bytes = "", .refusal = path(job) + ": " + e.what(), .advice = advice_for(e, advice)};
  } catch (const FileError& e) {
    return {.bytes = "", .refusal = path(job) + ": " + e.what(), .advice = advice};
  } catch (const std::bad_alloc&) {
    throw MachineError(path(job), ENOMEM);
  }

 private:
  static HeaderSize size_of(const Image& image) { return {image.height, image.width}; }
  std::string path(const Job& job) const {
    return list_.folder + "/" + list_.images[job.first].path;
  }

  void resize(const std::vector<uint8_t>& file, PictureExample& picture, HeaderSize& size,
              std::vector<Region>& boxes) const {
    const Image whole = decode_image(file, 0), small = resized(whole, *options_.resize);
    for (Region& box : boxes)
      box = scaled(box, double(small.height) / whole.height, double(small.width) / whole.width,
                   small.height, small.width);
    picture.image = encode_jpeg(small, options_.quality);
    picture.format = name_of(Format::jpeg);
    size = size_of(small);
  }

  // Labels in records begin with 1, since 0 is TF-Slim's background class.
  void label(const Job& job, const std::vector<Region>& boxes, PictureExample& picture) const {
    const auto class_of = [&](size_t i) { return list_.images[i].label; };
    if (!list_.objects) {
      picture.label = class_of(job.first) + 1;
      picture.text = list_.classes[class_of(job.first)];
    }
    for (size_t k = 0; k < boxes.size(); ++k) {
      const int number = class_of(job.first + k);
      picture.objects.push_back(
          {.box = boxes[k], .label = number + 1, .text = list_.classes[number]});
    }
  }

  const ImageList& list_;
  const PackOptions& options_;
};

uint64_t bytes_of(const ImageList& list, const std::vector<Job>& jobs) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const Job& job : jobs) {
    const uint64_t size = fs::file_size(list.folder + "/" + list.images[job.first].path, error);
    if (!error) bytes += size;
  }
  return bytes;
}

std::string shard_stem(const std::string& name, int64_t shard, int64_t shards) {
  char numbers[48];
  std::snprintf(numbers, sizeof numbers, "-%05lld-of-%05lld", static_cast<long long>(shard),
                static_cast<long long>(shards));
  return name + numbers;
}

// A hidden folder in OUT, removed at the end. OUT itself is removed if it was created and stays
// empty.
class Workplace {
 public:
  Workplace(const std::string& out, const std::string& name) : out_(out) {
    try {
      made_ = fs::create_directories(out_);
      place_.emplace(out_ / ("." + name));
    } catch (const fs::filesystem_error& e) {
      remove_out();
      throw UserError("OUT " + out + ": can't be written to: " + e.code().message());
    }
  }
  ~Workplace() {
    std::error_code ignored;
    place_.reset();
    for (const fs::path& path : moved_) fs::remove(path, ignored);
    remove_out();
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  std::string operator/(const std::string& name) const { return place_->path() / name; }

  // Moves the files to OUT, in this order.
  void move_out(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      std::error_code error;
      if (!fs::exists(place_->path() / name)) continue;
      fs::rename(place_->path() / name, out_ / name, error);
      if (error) throw WriteError("write", out_ / name, error.value());
      moved_.push_back(out_ / name);
    }
    moved_.clear();
    sync_folder(out_);
  }

 private:
  void remove_out() const {
    std::error_code ignored;
    if (made_) fs::remove(out_, ignored);  // if empty
  }

  const fs::path out_;
  bool made_ = false;
  std::optional<PartialFolder> place_;
  std::vector<fs::path> moved_;
};

class Packer {
 public:
  Packer(const ImageList& list, const std::string& list_path, const PackOptions& options)
      : list_(list), options_(options), builder_(list, options), jobs_(jobs_of(list, list_path)) {
    const uint64_t shard_bytes = uint64_t(options.shard_mb) << 20;
    const uint64_t by_size = options.shards ? 0 : (bytes_of(list, jobs_) - 1) / shard_bytes + 1;
    const auto pictures = static_cast<int64_t>(jobs_.size());
    packed_.shards = options.shards
                         ? *options.shards
                         : std::clamp<int64_t>(static_cast<int64_t>(by_size), 1, pictures);
    if (packed_.shards > pictures)
      throw UserError("--shards " + std::to_string(packed_.shards) + ": " + list_path + " has " +
                      counted(pictures, "image") + ", and no shard may be empty");
    index_.classes = list.classes;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (int64_t s = 0; s < packed_.shards; ++s)
      for (const char* extension : {".tfrecord", ".idx"})
        names.push_back(shard_stem(options_.name, s, packed_.shards) + extension);
    names.push_back(options_.name + ".index");
    return names;
  }

  std::optional<Packed> run(const Workplace& place,
                            const std::function<bool(int64_t, int64_t)>& go_on) {
    const auto pictures = static_cast<int64_t>(jobs_.size());
    const auto build = [&](int64_t i) { return builder_.run(jobs_[static_cast<size_t>(i)]); };
    const auto write = [&](int64_t i, Record&& record) {
      if (i == end_of_shard()) begin_shard(place);
      add(i, record);
      if (i + 1 == end_of_shard()) end_shard();
      return go_on(i + 1, pictures);
    };
    if (!in_order<Record>(pictures, options_.workers, build, write)) return {};
    const std::vector<std::string> idx = idx_texts(index_);
    for (int64_t s = 0; s < packed_.shards; ++s)
      write_text_file(place / (shard_stem(options_.name, s, packed_.shards) + ".idx"),
                      idx[static_cast<size_t>(s)]);
    write_text_file(place / (options_.name + ".index"), index_text(index_));
    packed_.images = static_cast<int64_t>(index_.rows.size());
    const RecordIndex* const all[] = {&index_};
    packed_.empty_classes = empty_classes(index_.classes, all);
    return packed_;
  }

 private:
  // The index of the first picture after the shards begun so far.
  int64_t end_of_shard() const {
    const auto begun = static_cast<int64_t>(index_.files.size());
    return begun * static_cast<int64_t>(jobs_.size()) / packed_.shards;
  }

  void begin_shard(const Workplace& place) {
    const auto shard = static_cast<int64_t>(index_.files.size());
    index_.files.push_back(shard_stem(options_.name, shard, packed_.shards) + ".tfrecord");
    file_.emplace(place / index_.files.back());
    offset_ = number_ = 0;
  }

  void add(int64_t i, const Record& record) {
    if (skipped(record)) return;
    list_rows(jobs_[static_cast<size_t>(i)], record);
    file_->write(std::as_bytes(std::span(record.bytes)));
    offset_ += record.bytes.size();
    ++number_;
  }

  void end_shard() {
    if (number_ == 0)
      throw DataError(
          index_.files.back() +
          " would be empty, as all its images are bad; the first: " + packed_.first_skipped);
    file_->finish();
    packed_.records += number_;
    packed_.bytes += offset_;
  }

  bool skipped(const Record& record) {
    if (record.refusal.empty()) return false;
    if (!options_.skip_bad) throw DataError(record.refusal + record.advice);
    if (packed_.skipped++ == 0) packed_.first_skipped = record.refusal;
    return true;
  }

  void list_rows(const Job& job, const Record& record) {
    for (size_t k = 0; k < job.count; ++k) {
      const ListedImage& image = list_.images[job.first + k];
      index_.add({.offset = offset_,
                  .size = static_cast<uint32_t>(record.bytes.size()),
                  .file = static_cast<uint32_t>(index_.files.size() - 1),
                  .label = static_cast<uint32_t>(image.label),
                  .number = number_},
                 image.path);
      if (list_.objects) index_.boxes.push_back(record.boxes[k]);
    }
  }

  const ImageList& list_;
  const PackOptions& options_;
  const RecordBuilder builder_;
  const std::vector<Job> jobs_;
  RecordIndex index_;
  Packed packed_;
  std::optional<OutputFile> file_;  // the current shard, and the offset of its next record
  uint64_t offset_ = 0;
  uint32_t number_ = 0;
};

}  // namespace

std::optional<Packed> pack_records(const ImageList& list, const std::string& list_path,
                                   const std::string& out, const PackOptions& options,
                                   const std::function<bool(int64_t, int64_t)>& go_on) {
  if (!have_records) throw UserError(without_records());
  Packer packer(list, list_path, options);
  const std::vector<std::string> names = packer.names();
  for (const std::string& name : names) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(fs::path(out) / name, error)))
      throw UserError(out + "/" + name + " exists; give another --name, or remove it");
  }
  Workplace place(out, options.name);
  const std::optional<Packed> packed = packer.run(place, go_on);
  if (packed) place.move_out(names);
  return packed;
}

}  // namespace bv
