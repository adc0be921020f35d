// A run's page, or one that compares several: a single HTML file that needs nothing else, without
// network, in light and dark.
#pragma once
#include <span>
#include <string>

#include "app/html_report/run_report.h"

namespace bv {

std::string run_page(const RunReport&);
std::string comparison_page(std::span<const RunReport>);

// Whether a file is a page of this program, which may be replaced.
bool is_page(const std::string& path);
// Appears whole or not at all. Throws WriteError.
void write_page(const std::string& path, const std::string& html);

}  // namespace bv
