// The parts of a page, as HTML. One that has nothing to show is empty.
#pragma once
#include <span>
#include <string>

#include "app/html_report/run_report.h"

namespace bv {

// Of one run.
std::string head_section(const RunReport&);
std::string epochs_section(const RunReport&);
std::string classes_section(const RunReport&);  // with the confusion matrix
std::string mistakes_section(const RunReport&);
std::string training_images_section(const RunReport&);
std::string time_section(const RunReport&);
std::string memory_section(const RunReport&);
std::string scratch_section(const RunReport&);  // what its memory holds over a step
std::string configuration_section(const RunReport&);

// What tells runs apart: the folder's name, or its path where several have the same.
std::string run_label(std::span<const RunReport>, size_t which);

// Of one or several.
std::string curves_section(std::span<const RunReport>);

// Of several.
std::string comparison_head(std::span<const RunReport>);
std::string differences_section(std::span<const RunReport>);

}  // namespace bv
