// Files of records of which nothing is read, though they may have been meant.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/records/indexed_record.h"
#include "data/records/scan_records.h"

namespace bv {

// "records are empty or missing: 1 of 3 shards of train, the first train-00001-of-00003", if the
// indexes list no record of them and they aren't among `others`; else empty.
std::string missing_records(std::span<const RecordIndex* const>,
                            std::vector<std::string> others = {});

// Lines about missing files, and about those of `found` that no index lists; `listed`: only if they
// belong to a set that an index lists.
enum class Sets { all, listed };
std::vector<std::string> lost_records(std::span<const std::shared_ptr<const Records>> parts,
                                      std::span<const RecordSet> found, Sets);

}  // namespace bv
