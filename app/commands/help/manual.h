// The manual page, generated from the tables of commands and options.
#pragma once
#include <span>
#include <string>

#include "engine/options/command_line.h"

namespace bv {

std::string manual_page(std::span<const Command> all);  // in roff, for man -l

}  // namespace bv
