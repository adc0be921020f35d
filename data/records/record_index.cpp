#include "data/records/record_index.h"

#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/files/file.h"
#include "data/records/tfrecord.h"
#include "data/sources.h"

namespace bv {
namespace {

constexpr std::string_view title = "# barevision index ", version = "1";
constexpr std::string_view class_title = "# class ";
constexpr uint64_t max_index_bytes = uint64_t{16} << 30;
constexpr uint64_t max_offset = uint64_t{1} << 62;
constexpr int max_side = 1 << 15;  // of an image

// Takes the text up to the next `separator` from `rest`, and drops the separator.
std::string_view next_part(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

// A number that is too large is the largest, so that what is said of it is that.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size()) return {};
  if (error == std::errc::result_out_of_range && !text.starts_with('-'))
    return std::numeric_limits<Number>::max();
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::string shown(std::string_view text) { return std::string(text.substr(0, 100)); }

class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  RecordIndex run(std::string_view text) {
    read_title(next_line(text));
    index_.rows.reserve(text.size() / 48);
    while (!text.empty()) {
      const std::string_view line = next_line(text);
      line.starts_with('#') ? read_class(line) : read_row(line);
    }
    if (index_.classes.empty()) fail("names no classes");
    if (index_.rows.empty()) fail("lists no images");
    if (!index_.boxes.empty() && index_.boxes.size() != index_.rows.size())
      fail("some lines have a box and some have none");
    index_.rows.shrink_to_fit();
    return std::move(index_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_ + ": " + what); }
  [[noreturn]] void fail_line(const std::string& what) const {
    fail("line " + std::to_string(line_) + ": " + what);
  }

  std::string_view next_line(std::string_view& text) {
    ++line_;
    std::string_view line = next_part(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  void read_title(std::string_view line) const {
    if (!line.starts_with(title))
      fail("not an index of records: it doesn't begin with '# barevision'");
    if (line.substr(title.size()) != version)
      fail("an index of version " + shown(line.substr(title.size())) +
           "; this program reads version " + std::string(version));
  }

  void read_class(std::string_view line) {
    if (!line.starts_with(class_title)) return;  // a remark
    line.remove_prefix(class_title.size());
    if (number_of<size_t>(next_part(line, ' ')) != index_.classes.size() || line.empty())
      fail_line("expected '# class " + std::to_string(index_.classes.size()) + " NAME'");
    if (!seen_classes_.insert(std::string(line)).second)
      fail_line("names the class '" + shown(line) + "' twice");
    index_.classes.emplace_back(line);
  }

  void read_row(std::string_view line) {
    const std::string_view label_text = next_part(line, '\t'), file = next_part(line, '\t');
    const auto label = number_of<uint32_t>(label_text);
    const auto offset = number_of<uint64_t>(next_part(line, '\t'));
    const std::string_view size_text = next_part(line, '\t');
    const auto size = number_of<uint32_t>(size_text);
    const std::string_view name = next_part(line, '\t');
    if (!label || file.empty() || !offset || !size || name.empty())
      fail_line("expected label, file, offset, size and name, with tabs between them");
    if (*label >= index_.classes.size())
      fail_line("label " + shown(label_text) + " is not one of the " +
                std::to_string(index_.classes.size()) + " classes");
    if (*size < record_overhead || *size > max_image_bytes * 2)
      fail_line("a record can't have " + shown(size_text) + " bytes");
    const uint32_t number = file_number(file);
    auto& [begin, end, records] = last_records_[number];
    const bool again = records > 0 && *offset == begin && *offset + *size == end;
    if (!again && *offset < end)
      fail_line("its record begins at " + std::to_string(*offset) + ", the one before ends at " +
                std::to_string(end));
    if (again && line.empty()) fail_line("lists a record again");
    if (*offset > max_offset) fail_line("the offset is too large");
    if (!again) begin = *offset, end = *offset + *size, ++records;
    if (!line.empty()) index_.boxes.push_back(box_of(line));
    index_.add({.offset = *offset,
                .size = *size,
                .file = number,
                .label = *label,
                .number = static_cast<uint32_t>(records - 1)},
               name);
  }

  Region box_of(std::string_view text) const {
    std::optional<int> numbers[4];
    for (auto& number : numbers) number = number_of<int>(next_part(text, ','));
    const auto [left, top, width, height] = numbers;
    const auto within = [](std::optional<int> begin, std::optional<int> length) {
      return begin && length && *begin >= 0 && *length > 0 && *begin < max_side &&
             *length <= max_side - *begin;
    };
    if (!text.empty() || !within(left, width) || !within(top, height))
      fail_line("expected left,top,width,height of a box in pixels");
    return {.top = *top, .left = *left, .height = *height, .width = *width};
  }

  uint32_t file_number(std::string_view file) {
    if (!index_.files.empty() && index_.files[last_] == file) return last_;
    const auto [at, added] = numbers_.try_emplace(std::string(file), index_.files.size());
    if (added) {
      const std::filesystem::path path(file);
      for (const auto& part : path)
        if (path.is_absolute() || part == "..")
          fail_line("the file " + shown(file) + " is not in the index's folder");
      index_.files.emplace_back(file);
      last_records_.emplace_back();
    }
    return last_ = at->second;
  }

  const std::string& path_;
  RecordIndex index_;
  size_t line_ = 0;
  uint32_t last_ = 0;  // file
  std::map<std::string, uint32_t> numbers_;
  struct Last {
    uint64_t begin = 0, end = 0, records = 0;
  };
  std::vector<Last> last_records_;  // last record of each file so far
  std::set<std::string> seen_classes_;
};

}  // namespace

std::vector<uint64_t> RecordIndex::ends() const {
  std::vector<uint64_t> ends(files.size());
  for (const IndexRow& row : rows) ends[row.file] = row.offset + row.size;
  return ends;
}

void RecordIndex::add(IndexRow row, std::string_view name_of_row) {
  row.name_at = names.size();
  row.name_size = static_cast<uint32_t>(name_of_row.size());
  names += name_of_row;
  rows.push_back(row);
}

RecordIndex parse_index(std::string_view text, const std::string& path) {
  return Parser(path).run(text);
}

RecordIndex read_index(const std::string& path) try {
  const std::vector<uint8_t> bytes = read_file(path, max_index_bytes);
  return parse_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
} catch (const FileError& e) {
  throw DataError(path + ": " + e.what());
}

void check_class_names(const RecordIndex& index, const std::vector<std::string>& names,
                       const std::string& option, const std::string& folder) {
  const bool from_one = index.classes[0] == "1";  // the labels of other programs
  for (size_t i = 0; i < index.classes.size(); ++i)
    if (index.classes[i] != std::to_string(i + from_one))
      throw DataError(option + ": the records of " + folder + " name their classes: class " +
                      std::to_string(i) + " is '" + shown(index.classes[i]) +
                      "'; leave the option out");
  for (const IndexRow& row : index.rows)
    if (row.label >= names.size())
      throw DataError(option + ": has " + std::to_string(names.size()) + " names, but in " +
                      folder + "/" + index.files[row.file] + " record " +
                      std::to_string(row.number) + " at byte " + std::to_string(row.offset) +
                      " has the label " + index.classes[row.label] + ", counted from " +
                      index.classes[0] + "; name each label's class, one per line");
}

std::string empty_classes(const std::vector<std::string>& classes,
                          std::span<const RecordIndex* const> parts) {
  std::vector<bool> used(classes.size());
  for (const RecordIndex* part : parts)
    for (const IndexRow& row : part->rows) used[row.label] = true;
  constexpr int named = 5;
  std::string names;
  int empty = 0;
  for (size_t i = 0; i < classes.size(); ++i)
    if (!used[i] && ++empty <= named) names += (empty > 1 ? ", " : "") + shown(classes[i]);
  if (empty == 0) return "";
  return std::to_string(empty) + " of " + std::to_string(classes.size()) + " classes " +
         (empty == 1 ? "has" : "have") + " no image: " + names + (empty > named ? ", ..." : "");
}

std::string index_text(const RecordIndex& index) {
  std::string text = std::string(title) + std::string(version) + "\n";
  for (size_t i = 0; i < index.classes.size(); ++i)
    text += std::string(class_title) + std::to_string(i) + " " + index.classes[i] + "\n";
  for (size_t i = 0; i < index.rows.size(); ++i) {
    const IndexRow& row = index.rows[i];
    text += std::to_string(row.label) + "\t" + index.files[row.file] + "\t" +
            std::to_string(row.offset) + "\t" + std::to_string(row.size) + "\t";
    text += index.name(row);
    if (!index.boxes.empty()) {
      const Region& b = index.boxes[i];
      text += "\t" + std::to_string(b.left) + "," + std::to_string(b.top) + "," +
              std::to_string(b.width) + "," + std::to_string(b.height);
    }
    text += "\n";
  }
  return text;
}

std::vector<std::string> idx_texts(const RecordIndex& index) {
  std::vector<std::string> texts(index.files.size());
  std::vector<int64_t> last(index.files.size(), -1);  // record
  for (const IndexRow& row : index.rows) {
    if (last[row.file] == row.number) continue;
    last[row.file] = row.number;
    texts[row.file] += std::to_string(row.offset) + " " + std::to_string(row.size) + "\n";
  }
  return texts;
}

bool is_index(const std::string& path) try {
  const RegularFile file(path);
  std::string start(std::min<uint64_t>(file.size(), title.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  return start == title;
} catch (const FileError&) {
  return false;
}

}  // namespace bv
