#include "engine/weights/foreign_file.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"

namespace bv {
namespace {

bool is_text(std::string_view bytes) {
  return std::ranges::none_of(bytes, [](char c) {
    return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\r' && c != '\t';
  });
}

std::string_view without_space(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text;
}

std::string about_text(std::string_view first) {
  const std::string_view text = without_space(first);
  if (text.starts_with("version https://git-lfs"))
    return "a Git LFS pointer, not the file itself; git lfs pull in its repository gets it";
  if (text.starts_with('<'))
    return "a web page, not weights; download the file itself (huggingface.co: /resolve/ in place "
           "of /blob/ in the address)";
  if (text.starts_with('{') || text.starts_with('['))
    return "JSON text, not weights; give the .safetensors or .pth file";
  return "a text file, not weights (.safetensors, or what torch.save writes)";
}

// Pickles that torch.save didn't write, or not with its default protocol.
bool is_pickle(std::string_view first) {
  return first.size() > 2 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5;
}

// The suggested command also reads training checkpoints, whose entries include the weights.
std::string about_pickle(const std::string& path) {
  const std::string target = std::filesystem::path(path).replace_extension("safetensors");
  return "a Python pickle that torch.save didn't write in its default way; if you trust it, "
         "convert "
         "it: python -c 'import sys, torch, safetensors.torch as s; w = torch.load(sys.argv[1], "
         "\"cpu\", weights_only=False); w = w.get(\"state_dict\", w.get(\"model\", w)); "
         "s.save_file(w, sys.argv[2])' " +
         shell_word(path) + " " + shell_word(target);
}

}  // namespace

std::string about_foreign_file(std::string_view first, const std::string& path) {
  if (first.empty()) return "an empty file";
  if (first.starts_with("\xff\xd8\xff") || first.starts_with("\x89PNG"))
    return "an image, not weights (a .safetensors file)";
  if (is_pickle(first)) return about_pickle(path);
  if (first.starts_with("\x1f\x8b")) return "compressed by gzip; gunzip it first";
  if (first.starts_with("\x89HDF"))
    return "an HDF5 file, as Keras writes; .safetensors and what torch.save writes can be read";
  if (first.substr(std::min<size_t>(first.size(), 257)).starts_with("ustar"))
    return "a tar archive; unpack it and give the file inside";
  return is_text(first) ? about_text(first) : "";
}

bool begins_like_json(std::string_view first) {
  return is_text(first) && without_space(first).starts_with('{');
}

}  // namespace bv
