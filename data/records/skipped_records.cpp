#include "data/records/skipped_records.h"

#include <vector>

#include "base/text.h"

namespace bv {

void SkippedRecords::add(const SkippedRecords& more) {
  if (count() == 0) first = more.first;
  records += more.records;
  rests += more.rests;
  files += more.files;
}

std::string SkippedRecords::text(const std::string& adjective) const {
  std::vector<std::string> parts;
  if (records > 0) parts.push_back(counted(records, adjective + "record"));
  if (rests > 0)
    parts.push_back(counted(rests, "record") + (rests == 1
                                                    ? " and all after it in this shard"
                                                    : " and all after them in their shards"));
  if (files > 0) parts.push_back(counted(files, "whole file"));
  return join(parts, ", ");
}

std::string SkippedRecords::line() const {
  const bool one = count() == 1;
  return (one && records == 1 ? "a record" : text()) + " can't be read and " +
         (one && rests == 0 ? "is" : "are") + " left out, " + (one ? "" : "the first ") + first;
}

}  // namespace bv
