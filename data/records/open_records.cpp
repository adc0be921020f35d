// TFRecords as a data set, listed by NAME.index or found by scanning the files.
#include <algorithm>
#include <memory>
#include <numeric>

#include "base/unicode/canonical.h"
#include "data/class_names.h"
#include "data/decode/decode_image.h"
#include "data/held_out.h"
#include "data/records/record_parts.h"
#include "data/sources.h"

namespace bv {
namespace {

class RecordDataset : public Dataset {
 public:
  // `rows`: rows of the index, in the data set's order; `labels`: one for each class of the index.
  RecordDataset(std::shared_ptr<const Records> records, std::vector<uint32_t> rows,
                std::vector<int> labels)
      : records_(std::move(records)), rows_(std::move(rows)), labels_(std::move(labels)) {}

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  int label(int64_t index) const override { return labels_[row(index).label]; }
  std::string name(int64_t index) const override {
    const IndexRow& r = row(index);
    return records_->files.path(r.file) + ": record " + std::to_string(r.number) + " at byte " +
           std::to_string(r.offset) + " (" + std::string(records_->index.name(r)) + ")";
  }
  int64_t files() const override { return static_cast<int64_t>(records_->files.size()); }
  std::string file(int64_t number) const override {
    return records_->files.path(static_cast<size_t>(number));
  }

  Image image(int64_t index, int at_least) const override {
    const auto whole = [&](int height, int width) {
      return whole_image(height, width,
                         at_least > 0 ? double(std::min(height, width)) / at_least : 1);
    };
    return view(index, whole).pixels;
  }
  View view(int64_t index, const RequestFn& choose) const override {
    const std::string picture = records_->picture(row(index)).image;
    const std::span bytes(reinterpret_cast<const uint8_t*>(picture.data()), picture.size());
    const RecordIndex& listed = records_->index;
    return decode_view(bytes, choose, listed.boxes.empty() ? Region{} : listed.boxes[rows_[index]]);
  }

  void will_need(std::span<const uint32_t> indices) const override {
    std::vector<IndexRow> rows;
    for (const uint32_t index : indices) rows.push_back(row(index));
    records_->files.will_need(std::move(rows));
  }

 private:
  const IndexRow& row(int64_t index) const { return records_->index.rows[rows_[index]]; }

  std::shared_ptr<const Records> records_;
  std::vector<uint32_t> rows_;
  std::vector<int> labels_;
};

void check_same_classes(const Records& train, const Records& val) {
  const auto &a = train.index.classes, &b = val.index.classes;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    if (i >= a.size() || i >= b.size() || canonical(a[i]) != canonical(b[i]))
      throw DataError(train.path + " and " + val.path + " have different classes: class " +
                      std::to_string(i) + " is '" + (i < a.size() ? a[i] : "") + "' in one, '" +
                      (i < b.size() ? b[i] : "") + "' in the other");
}

// The names of the classes, in label order.
std::vector<std::string> names_of(const Records& train, const Records& val,
                                  const DataOptions& options) {
  const std::string& file = options.class_names;
  if (file.empty()) {
    check_same_classes(train, val);
    return train.index.classes;
  }
  std::vector<std::string> names =
      options.label_names.empty() ? read_class_names(file) : options.label_names;
  const auto has_them = [&](const Records& part) {
    return same_classes(part.index.classes, names);
  };
  if (!has_them(train) && !has_them(val) && train.index.classes[0] != val.index.classes[0])
    check_same_classes(train, val);                    // one counts labels from 0, the other from 1
  const bool both = has_them(train) && has_them(val);  // then the file is redundant
  for (const Records* part : {&train, &val})
    if (both || !has_them(*part))
      check_class_names(part->index, names, "--class-names " + file, part->folder);
  return names;
}

// Holds out the same images as for the original folder. All objects of an image are in one part.
std::vector<bool> hold_out(const RecordIndex& index, const DataOptions& options) {
  const bool objects = !index.boxes.empty();
  std::vector<bool> in_val(index.rows.size());
  const size_t groups = objects ? 1 : index.classes.size();
  std::vector<std::vector<uint32_t>> rows(groups);  // with objects, the first row of each image
  for (uint32_t i = 0; i < index.rows.size(); ++i)
    if (!objects || i == 0 || index.name(index.rows[i]) != index.name(index.rows[i - 1]))
      rows[objects ? 0 : index.rows[i].label].push_back(i);
  for (size_t g = 0; g < groups; ++g) {
    const std::string name = objects ? "" : index.classes[g], folder = name + "/";
    std::vector<std::string> names;
    for (const uint32_t i : rows[g]) {
      std::string_view file = index.name(index.rows[i]);
      if (!objects && file.starts_with(folder)) file.remove_prefix(folder.size());
      names.emplace_back(file);
    }
    const std::vector<bool> held = held_out(name, names, options.val_fraction, options.split_seed);
    for (size_t k = 0; k < held.size(); ++k) in_val[rows[g][k]] = held[k];
  }
  for (uint32_t i = 1; objects && i < in_val.size(); ++i)
    if (index.name(index.rows[i]) == index.name(index.rows[i - 1])) in_val[i] = in_val[i - 1];
  return in_val;
}

std::vector<uint32_t> rows_where(const std::vector<bool>& chosen, bool value) {
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < chosen.size(); ++i)
    if (chosen[i] == value) rows.push_back(i);
  return rows;
}

void add_to(Fingerprint& print, const Records& records, const std::vector<uint32_t>& rows,
            const std::vector<int>& labels) {
  const RecordIndex& index = records.index;
  print.add(static_cast<int64_t>(rows.size()));
  for (const uint32_t i : rows) {
    print.add(index.name(index.rows[i]));
    print.add(labels[index.rows[i].label]);
    if (index.boxes.empty()) continue;
    const Region& b = index.boxes[i];
    for (const int number : {b.left, b.top, b.width, b.height}) print.add(number);
  }
}

RecordParts find_noted(const std::string& path, const DataOptions& options) {
  RecordParts parts = find_record_parts(path, options.skip_bad_records);
  if (parts.skipped.count() > 0) parts.notes.push_back("warning: " + parts.skipped.line());
  for (const std::string& line : parts.lost) parts.notes.push_back("warning: " + line);
  return parts;
}

}  // namespace

std::vector<std::unique_ptr<Dataset>> open_recorded(const std::string& path,
                                                    std::vector<std::string>& problems,
                                                    std::vector<std::string>& notes) {
  std::vector<std::unique_ptr<Dataset>> all;
  const RecordParts parts = find_record_parts(path, true);
  if (parts.skipped.count() > 0) problems.push_back(parts.skipped.line());
  for (const std::string& line : parts.lost) notes.push_back("warning: " + line);
  for (const std::shared_ptr<const Records>& part : parts.all) {
    std::vector<int> labels(part->index.classes.size());
    std::iota(labels.begin(), labels.end(), 0);
    const std::vector<bool> none(part->index.rows.size());
    all.push_back(std::make_unique<RecordDataset>(part, rows_where(none, false), labels));
  }
  return all;
}

DataSets open_records(const DataOptions& options) {
  RecordParts parts = find_noted(options.path, options);
  if (!options.val.empty()) {
    if (!is_records(options.val))
      throw DataError("--val " + options.val + ": not records, but --data " + options.path + " is");
    RecordParts val = find_noted(options.val, options);
    if (parts.all.size() + val.all.size() != 2)
      throw DataError("--val " + options.val + ": --data and --val must each be one set of " +
                      "records; name an index");
    parts.all.push_back(std::move(val.all[0]));
    parts.notes.insert(parts.notes.end(), val.notes.begin(), val.notes.end());
    parts.lost.insert(parts.lost.end(), val.lost.begin(), val.lost.end());
  }
  const bool split = parts.all.size() == 1;
  const std::shared_ptr<const Records>&first = parts.all.front(), &last = parts.all.back();
  const std::vector<std::string> names = names_of(*first, *last, options);
  refuse_two_forms(names, first->path);
  if (names.size() < 2)
    throw DataError(first->path + ": has one class, '" + names[0] + "'; at least two are needed");
  const RecordIndex* const both[] = {&first->index, &last->index};
  if (const std::string empty = empty_classes(names, both); !empty.empty())
    parts.notes.push_back("warning: " + empty);
  ClassList classes = order_classes(names, options);
  const std::vector<bool> in_val =
      split ? hold_out(first->index, options) : std::vector<bool>(first->index.rows.size());
  std::vector<uint32_t> train = rows_where(in_val, false), val = rows_where(in_val, true);
  if (!split) val = rows_where(std::vector<bool>(last->index.rows.size()), false);

  Fingerprint print("records", classes.names);
  add_to(print, *first, train, classes.labels);
  add_to(print, *last, val, classes.labels);
  DataSets sets{.kind = DataKind::photos,
                .classes = std::move(classes.names),
                .fingerprint = print.value(),
                .notes = std::move(parts.notes),
                .lost = std::move(parts.lost),
                .held_out = split,
                .records = true};
  sets.train = std::make_unique<RecordDataset>(first, std::move(train), classes.labels);
  if (!val.empty())
    sets.val = std::make_unique<RecordDataset>(last, std::move(val), classes.labels);
  sets.description = describe(options.path, sets, split ? " (split by --val-fraction)" : "");
  return sets;
}

}  // namespace bv
