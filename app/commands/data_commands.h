// Helpers shared by the data commands.
#pragma once
#include <string>
#include <vector>

#include "data/dataset_stats/data_check.h"

namespace bv {

// Without a last slash. Throws UserError if the folder is missing.
std::string require_folder(std::string path);
// The same, but an index of records is taken as well.
std::string require_data(std::string path);

// --workers N, by default one for each core.
int decoding_threads(int workers);

// A line a class, of many the smallest and the largest.
std::string class_table(std::vector<ClassCount> classes, bool has_val);

}  // namespace bv
