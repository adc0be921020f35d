#include "data/dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/files/file.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "base/unicode/canonical.h"
#include "data/class_names.h"
#include "data/decode/decode.h"
#include "data/sources.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Advice on downloading CIFAR, if the name of a missing folder refers to it.
std::string way_to_cifar(const std::string& path) {
  const std::string name = lower_case(path);
  const auto has = [&](const char* part) { return name.find(part) != name.npos; };
  if (has("cifar100") || has("cifar-100"))
    return "; ./launcher data fetch cifar100 downloads CIFAR-100";
  return has("cifar") ? "; ./launcher data fetch cifar10 downloads CIFAR-10" : "";
}

std::string missing(const std::string& path) {
  const std::string link = link_without_target(path);
  return link.empty() ? "no such folder" + way_to_cifar(path) : link;
}

}  // namespace

std::string refusal_of_file(const std::string& path) try {
  const std::string name = lower_case(fs::path(path).filename().string());
  const auto has = [&](const char* part) { return name.find(part) != name.npos; };
  const RegularFile file(path);
  FileView view(file);
  if (is_git_lfs_pointer(view.at(0, stranger_bytes))) return "is " + std::string(git_lfs_pointer);
  for (const char* archive : {".tar", ".tgz", ".zip"})
    if (has(archive)) return "is an archive; unpack it and give its folder";
  if (has(".index"))
    return "is not an index of records: it doesn't begin with '# barevision index'";
  return "is a file; give the folder of class folders or of CIFAR's .bin files";
} catch (const FileError& e) {
  return e.what();
}

namespace {

void warn_of_alike_names(DataSets& sets) {
  const std::vector<std::string> pairs = alike_names(sets.classes);
  if (pairs.empty()) return;
  sets.notes.push_back(
      "warning: the classes " + pairs[0] +
      (pairs.size() > 1 ? ", and " + counted(int64_t(pairs.size()) - 1, "more pair") + " likewise"
                        : "") +
      "; if they are one class, move the images of one into the other");
}

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string absolute_path(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

DataKind data_kind(std::string path) {
  path = without_slash(std::move(path));
  if (path.empty()) return DataKind::builtin;
  if (path == "synthetic") return DataKind::synthetic;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw DataError("--data " + path + ": " + missing(path));
  if (!fs::exists(status))
    throw DataError("--data " + path + ": can't be read: " + error.message());
  if (is_records(path)) return DataKind::photos;
  if (!fs::is_directory(status)) throw DataError("--data " + path + ": " + refusal_of_file(path));
  return cifar_folder(path).empty() ? DataKind::photos : DataKind::cifar;
}

DataSets open_dataset(const DataOptions& given) {
  DataOptions options = given;
  options.path = without_slash(options.path);
  options.val = without_slash(options.val);
  if (options.val_fraction < 0 || options.val_fraction >= 1)
    throw DataError("--val-fraction " + std::to_string(options.val_fraction) +
                    ": must be at least 0 and below 1");
  if (parse_number(options.val) && !there_is(options.val))
    throw DataError("--val " + options.val + ": no such folder; a fraction is --val-fraction " +
                    options.val);
  const DataKind kind = data_kind(options.path);
  if (!options.val.empty() && kind != DataKind::photos)
    throw DataError("--val " + options.val + ": needs --data with class folders or records");
  const bool records = kind == DataKind::photos && is_records(options.path);
  if (!options.class_names.empty() && !records)
    throw DataError("--class-names " + options.class_names +
                    ": is for records whose labels have no names; " +
                    (options.path.empty() ? "the built-in data" : options.path) +
                    " has its own; leave the option out");
  if (kind == DataKind::builtin) return open_builtin(options);
  if (kind == DataKind::synthetic) return open_synthetic(options);
  if (kind == DataKind::cifar) return open_cifar(options);
  if (!records) refuse_compressed_records(options.path);
  DataSets sets = records ? open_records(options) : open_folder(options);
  warn_of_alike_names(sets);
  return sets;
}

namespace {

// The classes, whatever the form of their names.
std::vector<std::string> sorted(std::vector<std::string> names) {
  for (std::string& name : names) name = canonical(name);
  std::ranges::sort(names);
  return names;
}

void add_status(Fingerprint& print, const std::string& path) {
  struct stat status {};  // zeros if the file is gone
  if (stat(path.c_str(), &status) != 0 && is_machine_error(errno)) throw MachineError(path, errno);
  for (const int64_t number :
       {int64_t{status.st_size}, int64_t{status.st_mtim.tv_sec}, int64_t{status.st_mtim.tv_nsec}})
    print.add(number);
}

void add_first_bytes(Fingerprint& print, const std::string& path) try {
  const RegularFile file(path);
  std::string bytes(std::min<uint64_t>(file.size(), 4096), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  print.add(bytes);
} catch (const FileError& e) {
  print.add(e.what());
}

}  // namespace

uint64_t contents_fingerprint(const DataSets& sets) {
  constexpr int64_t max_opened = 2000;  // per part; in a larger part, every n-th file is opened
  Fingerprint print("contents", {});
  int64_t files = 0;
  for (const Dataset* part : {sets.train.get(), sets.val.get()}) {
    if (!part) continue;
    files += part->files();
    const int64_t step = part->files() / max_opened + 1;
    for (int64_t i = 0; i < part->files(); ++i) {
      add_status(print, part->file(i));
      if (i % step == 0) add_first_bytes(print, part->file(i));
    }
  }
  return files > 0 ? print.value() : 0;
}

int class_count_option(const DataOptions& options) {
  if (options.classes.size() != 1) return 0;
  const std::string& text = options.classes[0];
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (number && count < 2) throw DataError("--classes " + text + ": at least two are needed");
  return number ? count : 0;
}

ClassList order_classes(const std::vector<std::string>& found, const DataOptions& options) {
  const std::string where = options.path.empty() ? "the built-in data" : options.path;
  const size_t number = class_count_option(options);
  if (number > 0 && number != found.size())
    throw DataError("--classes " + options.classes[0] + ": " + where + " has " +
                    std::to_string(found.size()) + " classes");
  ClassList list{.names = found, .labels = std::vector<int>(found.size())};
  if (number == 0 && !options.classes.empty())
    list.names = options.classes;
  else if (sorted(options.class_order) == sorted(found))
    list.names = options.class_order;
  const ClassPositions known(found);
  for (const std::string& name : list.names)
    if (!known.of(name))
      throw DataError("--classes: " + where + " has no class '" + name + "'" +
                      lookalike_of(name, found));
  const ClassPositions labels(list.names);
  for (size_t i = 0; i < list.names.size(); ++i)
    if (labels.of(list.names[i]) != i)
      throw DataError("--classes names '" + list.names[i] + "' twice");
  for (size_t i = 0; i < found.size(); ++i) {
    const auto at = labels.of(found[i]);
    if (!at) throw DataError("--classes leaves out '" + found[i] + "', a class of " + where);
    list.labels[i] = static_cast<int>(*at);
  }
  return list;
}

namespace {

std::string counts(const DataSets& sets, const BadImages& without) {
  const auto left = [](const std::unique_ptr<Dataset>& part, const std::vector<int64_t>& bad) {
    return std::to_string(part ? part->size() - static_cast<int64_t>(bad.size()) : 0);
  };
  return left(sets.train, without.train) + " train, " + left(sets.val, without.val) + " val";
}

}  // namespace

std::string describe(const std::string& what, const DataSets& sets, const std::string& split) {
  return what + ", " + counts(sets, {}) + split + ", " + std::to_string(sets.classes.size()) +
         " classes";
}

std::string description_without(const BadImages& bad, const DataSets& sets) {
  const std::string all = counts(sets, {});
  std::string text = sets.description;
  if (const size_t at = text.rfind(all); at != text.npos)
    text.replace(at, all.size(), counts(sets, bad));
  return text;
}

void Fingerprint::add(std::string_view item) {
  const auto step = [this](uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001B3u; };
  for (const char c : item) step(static_cast<uint8_t>(c));
  step(0);
}

}  // namespace bv
