// Files in the place of an image, told by their first bytes.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "data/decode/decode.h"

namespace bv {
namespace {

struct Kind {
  size_t at;
  std::string_view bytes, name;
};
using namespace std::string_view_literals;
constexpr Kind images[] = {
    {4, "ftypheic"sv, "a HEIC image"},      {4, "ftypheix"sv, "a HEIC image"},
    {4, "ftypmif1"sv, "a HEIF image"},      {4, "ftypavif"sv, "an AVIF image"},
    {4, "jP  \r\n"sv, "a JPEG 2000 image"}, {4, "JXL \r\n"sv, "a JPEG XL image"},
    {0, "\xFF\x0A"sv, "a JPEG XL image"},   {0, "v/1\x01"sv, "an OpenEXR image"},
    {0, "8BPS"sv, "a Photoshop image"},     {0, "P7\n"sv, "a PAM image"},
    {0, "PF\n"sv, "a PFM image"},           {0, "Pf\n"sv, "a PFM image"},
    {128, "DICM"sv, "a DICOM image"}};
constexpr Kind others[] = {{0, "%PDF-"sv, "a PDF document"},
                           {0, "\x1F\x8B"sv, "a gzip file"},
                           {0, "PK\3\4"sv, "a zip archive"},
                           {4, "ftyp"sv, "a video"}};

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), stranger_bytes)};
}

bool is(std::string_view start, const Kind& kind) {
  return start.size() >= kind.at && start.substr(kind.at).starts_with(kind.bytes);
}

// Empty if it isn't text.
std::string first_line(std::string_view start) {
  const auto is_control = [](unsigned char c) {
    return (c < ' ' && c != '\n' && c != '\r' && c != '\t') || c == 0x7F;
  };
  constexpr size_t any_bytes = 4, shown = 40;
  if (start.size() < any_bytes || std::ranges::any_of(start, is_control)) return "";
  const std::string_view line = start.substr(0, std::min(start.find_first_of("\r\n"), shown));
  const std::string text = printable(line);
  return text.find('?') == text.npos || line.find('?') != line.npos ? text : "";
}

}  // namespace

std::string advice_for(const BadImage& bad, const std::string& advice) {
  return dynamic_cast<const MendableImage*>(&bad) ? "" : advice;
}

bool is_git_lfs_pointer(std::span<const uint8_t> start) {
  return text_of(start).starts_with("version https://git-lfs.github.com/");
}

std::string name_of_stranger(std::span<const uint8_t> bytes) {
  std::string_view start = text_of(bytes);
  for (const Kind& kind : images)
    if (is(start, kind)) return std::string(kind.name) + ", which isn't read: convert it";
  for (const Kind& kind : others)
    if (is(start, kind)) return std::string(kind.name);
  if (!start.empty() && std::ranges::all_of(start, [](char c) { return c == 0; }))
    return "it begins with zeros, as after an unfinished copy or a full disk; copy it again";
  if (start.starts_with("\xEF\xBB\xBF")) start.remove_prefix(3);
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
  std::string lower(start.substr(0, 16));
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  if (lower.starts_with("<!doctype html") || lower.starts_with("<html"))
    return "an HTML page, as a server sends in place of a missing file; download it again";
  if (start.starts_with('<') && start.find("<svg") != start.npos)
    return "an SVG drawing, which isn't read: convert it";
  const std::string line = first_line(start);
  return line.empty() ? "" : "text that begins with '" + line + "'";
}

}  // namespace bv
