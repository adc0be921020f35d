// The page of a run, or one that compares several runs: page.html with their data, as a single
// self-contained file.
#pragma once
#include <span>
#include <string>

#include "app/html_report/run_report.h"

namespace bv {

std::string report_page(std::span<const RunReport>);

// Whether a file is a page that this program wrote, so that it may be replaced.
bool is_page(const std::string& path);
// Writes the file completely or not at all. Throws WriteError.
void write_page(const std::string& path, const std::string& html);

}  // namespace bv
