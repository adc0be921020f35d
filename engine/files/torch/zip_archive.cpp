// PKWARE's APPNOTE.TXT: each member has a local header before its contents and a header in the
// central directory, which the end record follows. Sizes above 4 GiB have records of their own
// (zip64).
#include "engine/files/torch/zip_archive.h"

#include <algorithm>

#include "base/files/checksum.h"
#include "base/files/file.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr std::string_view end_mark = "PK\5\6", zip64_end_mark = "PK\6\6",
                           zip64_place_mark = "PK\6\7", directory_mark = "PK\1\2",
                           local_mark = "PK\3\4";
constexpr uint64_t end_bytes = 22, zip64_end_bytes = 56, zip64_place_bytes = 20,
                   directory_head = 46, local_head = 30;
constexpr uint64_t max_comment = 0xffff, max_directory = 64 << 20;

uint64_t number(std::string_view text, size_t at, size_t bytes) {  // little-endian
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i)
    value |= uint64_t{static_cast<uint8_t>(text[at + i])} << (8 * i);
  return value;
}

[[noreturn]] void damaged(const std::string& what) {
  throw FileError("a damaged or incomplete zip archive: " + what + "; get the file again");
}

std::string read_text(const ReadBytes& read, uint64_t at, uint64_t bytes) {
  std::string text(bytes, '\0');
  read(at, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string in_quotes(std::string_view name) { return "'" + printable(name) + "'"; }

// Refuses names that lead out of a folder: they aren't used as paths, but torch.save writes none.
void check_name(std::string_view name) {
  bool odd = name.empty() || name.front() == '/' || name.find('\\') != name.npos ||
             name.find('\0') != name.npos;
  for (const std::string& part : split(name, '/')) odd |= part == "..";
  if (odd)
    throw FileError("a zip archive with the member " + in_quotes(name) + ", which is refused");
}

}  // namespace

ZipArchive::ZipArchive(ReadBytes read, uint64_t file_bytes) : read_(std::move(read)) {
  const Directory directory = find_directory(file_bytes);
  const std::string all = read_text(read_, directory.begin, directory.bytes);
  std::string_view rest = all;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (rest.size() < directory_head || !rest.starts_with(directory_mark))
      damaged("member " + std::to_string(i) + " of its directory is cut off");
    const uint64_t name = number(rest, 28, 2), extra = number(rest, 30, 2),
                   comment = number(rest, 32, 2);
    if (rest.size() - directory_head < name + extra + comment)
      damaged("member " + std::to_string(i) + " of its directory is cut off");
    add_member(rest.substr(0, directory_head), rest.substr(directory_head, name),
               rest.substr(directory_head + name, extra), directory.begin);
    rest.remove_prefix(directory_head + name + extra + comment);
  }
  // Members that share bytes could take more memory than the file has bytes.
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const auto& [name, member] : members_)
    places.emplace_back(member.begin, member.begin + member.bytes);
  std::ranges::sort(places);
  for (size_t i = 1; i < places.size(); ++i)
    if (places[i].first < places[i - 1].second) damaged("two members overlap");
}

ZipArchive::Directory ZipArchive::find_directory(uint64_t file_bytes) const {
  const uint64_t tail = std::min(file_bytes, end_bytes + max_comment);
  const std::string text = read_text(read_, file_bytes - tail, tail);
  size_t at = tail < end_bytes ? text.npos : text.rfind(end_mark, tail - end_bytes);
  // A comment may look like the record itself.
  while (at != text.npos && number(text, at + 20, 2) != tail - at - end_bytes)
    at = at == 0 ? text.npos : text.rfind(end_mark, at - 1);
  if (at == text.npos) damaged("it has no end record");
  const uint64_t end = file_bytes - tail + at;
  Directory directory{.begin = number(text, at + 16, 4),
                      .bytes = number(text, at + 12, 4),
                      .entries = number(text, at + 10, 2)};
  if (directory.begin == 0xffffffff || directory.bytes == 0xffffffff ||
      directory.entries == 0xffff) {
    if (end < zip64_place_bytes) damaged("it has no zip64 record");
    const std::string place = read_text(read_, end - zip64_place_bytes, zip64_place_bytes);
    const uint64_t record = number(place, 8, 8);
    if (!place.starts_with(zip64_place_mark) || end < zip64_end_bytes ||
        record > end - zip64_end_bytes)
      damaged("it has no zip64 record");
    const std::string zip64 = read_text(read_, record, zip64_end_bytes);
    if (!zip64.starts_with(zip64_end_mark)) damaged("it has no zip64 record");
    directory = {.begin = number(zip64, 48, 8),
                 .bytes = number(zip64, 40, 8),
                 .entries = number(zip64, 32, 8)};
  }
  if (directory.begin > end || directory.bytes > end - directory.begin ||
      directory.bytes > max_directory || directory.entries > directory.bytes / directory_head)
    damaged("its directory of " + std::to_string(directory.entries) +
            " members isn't where its end record says");
  return directory;
}

void ZipArchive::add_member(std::string_view head, std::string_view name, std::string_view extra,
                            uint64_t directory) {
  constexpr uint64_t encrypted = 1;
  check_name(name);
  const std::string which = "the member " + in_quotes(name);
  const uint64_t flags = number(head, 8, 2), method = number(head, 10, 2);
  uint64_t stored = number(head, 20, 4), bytes = number(head, 24, 4), at = number(head, 42, 4);
  for (std::string_view field = extra; field.size() >= 4;) {
    const uint64_t size = std::min<uint64_t>(number(field, 2, 2), field.size() - 4);
    if (number(field, 0, 2) == 1) {  // zip64: values that don't fit in 32 bits
      std::string_view wide = field.substr(4, size);
      for (uint64_t* const value : {&bytes, &stored, &at}) {
        if (*value != 0xffffffff || wide.size() < 8) continue;
        *value = number(wide, 0, 8);
        wide.remove_prefix(8);
      }
    }
    field.remove_prefix(4 + size);
  }
  if (method != 0 || (flags & encrypted) || stored != bytes)
    throw FileError("a zip archive in which " + which + " is compressed or encrypted; torch.save " +
                    "does neither");
  if (directory < local_head || at > directory - local_head)
    damaged(which + " begins beyond the directory");
  const std::string local = read_text(read_, at, local_head);
  const uint64_t name_bytes = number(local, 26, 2),
                 before = local_head + name_bytes + number(local, 28, 2);
  if (!local.starts_with(local_mark) || number(local, 8, 2) != 0 || name_bytes != name.size() ||
      before > directory - at || read_text(read_, at + local_head, name_bytes) != name)
    damaged(which + " isn't where the directory says");
  if (bytes > directory - at - before) damaged(which + " reaches into the directory");
  const ZipMember member{
      .begin = at + before, .bytes = bytes, .crc = static_cast<uint32_t>(number(head, 16, 4))};
  if (!members_.emplace(name, member).second) damaged(which + " occurs twice");
}

const ZipMember* ZipArchive::find(std::string_view name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

void ZipArchive::check(const std::string& name) const {
  const ZipMember& member = members_.at(name);
  std::vector<std::byte> chunk(std::min<uint64_t>(member.bytes, 1 << 20));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < member.bytes; at += chunk.size()) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(chunk.size(), member.bytes - at));
    read_(member.begin + at, part);
    crc = crc32(part, crc);
  }
  if (crc != member.crc) damaged("the checksum of " + in_quotes(name) + " differs");
}

std::vector<uint8_t> ZipArchive::contents(const std::string& name, uint64_t limit) const {
  const ZipMember& member = members_.at(name);
  if (member.bytes > limit)
    throw FileError(in_quotes(name) + " has " + std::to_string(member.bytes) +
                    " bytes, more than " + std::to_string(limit));
  check(name);
  std::vector<uint8_t> bytes(member.bytes);
  read_(member.begin, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace bv
