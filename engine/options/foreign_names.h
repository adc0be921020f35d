// Names of options in timm, torchvision's reference scripts and other programs.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace bv {

// Advice for a user who typed `flag`, an option of one of these programs ("--batch-size"): ": use
// --batch". Empty if the option is unknown.
std::string advice_for_foreign(std::string_view flag);

// The same for a command: ": use eval RUN".
std::string advice_for_foreign_command(std::string_view command);

// The same for a value of an option: " (use cuda)" for --device gpu, " (use ra, ...)" for timm's
// --auto-augment rand-m9-mstd0.5.
std::string advice_for_foreign_value(std::string_view option, std::string_view value);

// The unit of an option's number, like "seconds"; empty if it has none.
std::string unit_of(std::string_view option);
// The number meant by text with a unit, thousands or a decimal comma: 600 for --timeout 10min, 0.2
// for 20%, 224 for 224x224.
std::optional<double> number_meant(std::string_view option, std::string_view text, bool whole);

}  // namespace bv
