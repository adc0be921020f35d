// Helpers shared by the data commands.
#pragma once
#include <string>
#include <vector>

#include "data/dataset_stats/data_check.h"

namespace bv {

// The path without a trailing slash. Throws UserError if the folder is missing.
std::string require_folder(std::string path);
// The same, but also accepts an index of records.
std::string require_data(std::string path);

// The value of --workers; 0: one thread per core.
int decoding_threads(int workers);

// A line per class; with many classes, only the smallest and the largest.
std::string class_table(std::vector<ClassCount> classes, bool has_val);

}  // namespace bv
