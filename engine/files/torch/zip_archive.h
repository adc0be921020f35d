// The members of a zip archive that are stored, not compressed, as torch.save writes them. Nothing
// is unpacked: members are read in place. Every offset and size is checked before use.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/element_types.h"

namespace bv {

struct ZipMember {
  uint64_t begin = 0, bytes = 0;  // of its contents in the file
  uint32_t crc = 0;
};

class ZipArchive {
 public:
  // Throws FileError.
  ZipArchive(ReadBytes read, uint64_t file_bytes);

  const std::map<std::string, ZipMember, std::less<>>& members() const { return members_; }
  const ZipMember* find(std::string_view name) const;  // null if there is none
  // Throws FileError if the member's checksum doesn't match.
  void check(const std::string& name) const;
  // Reads a whole member of at most `limit` bytes and checks it.
  std::vector<uint8_t> contents(const std::string& name, uint64_t limit) const;
  const ReadBytes& read() const { return read_; }

 private:
  struct Directory {
    uint64_t begin, bytes, entries;
  };
  Directory find_directory(uint64_t file_bytes) const;
  void add_member(std::string_view head, std::string_view name, std::string_view extra,
                  uint64_t directory);

  ReadBytes read_;
  std::map<std::string, ZipMember, std::less<>> members_;
};

}  // namespace bv
