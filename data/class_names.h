// Names of classes: files of them, one per line in label order, and names that look alike.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bv {

// Throws DataError for an empty line, a repeated name, a name that isn't printable UTF-8, or fewer
// than two names. Empty lines at the end are ignored.
std::vector<std::string> read_class_names(const std::string& file);

// Names that differ only in their Unicode form mean the same class.
bool same_classes(std::span<const std::string> a, std::span<const std::string> b);
class ClassPositions {
 public:
  explicit ClassPositions(std::span<const std::string> names);
  std::optional<size_t> of(const std::string& name) const;

 private:
  std::map<std::string, size_t> at_;  // by canonical name
};

// Refuses a list that has a class in two Unicode forms. `where` has them: "photos".
void refuse_two_forms(std::span<const std::string> names, const std::string& where);

// A line for each two neighbours of the same or nearly the same name:
// "'Cat' and 'cat' differ only in upper and lower case".
std::vector<std::string> alike_names(std::span<const std::string> names);
// "; 'cat ' differs from it only in a blank at the end", of the first of these that looks like the
// name; empty if there is none.
std::string lookalike_of(const std::string& name, std::span<const std::string> names);

}  // namespace bv
