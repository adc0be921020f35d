#include "app/html_report/html_report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "app/html_report/page_template.h"
#include "app/html_report/tables.h"
#include "base/files/file_io.h"
#include "base/text.h"
#include "engine/console/class_report.h"

namespace bv {
namespace {

// The label that distinguishes a run: its folder's name, or the path if several have that name.
std::string label_of(std::span<const RunReport> runs, const RunReport& run) {
  const std::string name = run.name();
  return std::ranges::count(runs, name, &RunReport::name) > 1 ? run.folder : name;
}

// Adds precision, recall and F1 to an evaluation.
void add_scores(Json& evaluation, const Json& classes) {
  std::vector<ConfusedImages> cells;
  for (const Json& cell : evaluation["images"]) cells.push_back({cell[0], cell[1], cell[2]});
  Json& scores = evaluation["scores"] = Json::array();
  for (const ClassScores& s : class_scores(cells, classes.size()))
    scores.push_back({{"class", classes[scores.size()]},
                      {"precision", json_number(s.precision, 4)},
                      {"recall", json_number(s.recall, 4)},
                      {"f1", json_number(s.f1, 4)},
                      {"images", s.support}});
}

// 0 if the member is missing or not an integer.
int64_t count_of(const Json& object, const char* key) {
  const Json value = object.value(key, Json());
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

// " with 3 processes, 4 before" if the numbers differ.
std::string processes_of(const Json& restart) {
  const int64_t now = count_of(restart, "processes"),
                before = count_of(restart, "processes_before");
  if (before == 0 || now == before) return "";
  return " with " + std::to_string(now) + (now == 1 ? " process, " : " processes, ") +
         std::to_string(before) + " before";
}

// A line for each restart.
Json restarts_of(const RunReport& run) {
  Json lines = Json::array();
  for (const Json& restart : run.metrics.restarts()) {
    const int64_t ended_in = count_of(restart, "ended_in_step");
    lines.push_back(
        "Restart " + scalar_text(restart.value("restart", Json())) + " of " +
        scalar_text(restart.value("of", Json())) + ": the run ended " +
        (ended_in > 0 ? "in step " + std::to_string(ended_in) : "before its first step") + ", " +
        scalar_text(restart.value("cause", Json())) + "; it continued after step " +
        scalar_text(restart.value("step", Json())) + processes_of(restart));
  }
  return lines;
}

Json data_of(std::span<const RunReport> runs, const RunReport& run) {
  Json facts = run.facts;
  if (runs.size() > 1 && !facts.is_null())  // evaluations and pictures aren't compared
    for (const char* key : {"evaluated", "best", "training_pictures", "scratch"}) facts.erase(key);
  for (const char* key : {"evaluated", "best"})
    if (!facts.is_null() && facts.contains(key) && !facts[key].is_null())
      add_scores(facts[key], facts["classes"]);
  return {{"label", label_of(runs, run)},   {"state", run.state()},
          {"failed", run.failed()},         {"config", run.config},
          {"epochs", run.metrics.epochs()}, {"curves", run.metrics.curves()},
          {"restarts", restarts_of(run)},   {"report", std::move(facts)}};
}

// Replaces the text between the first `begin` and the next `end`.
void replace_between(std::string& text, std::string_view begin, std::string_view end,
                     const std::string& with) {
  const size_t at = text.find(begin) + begin.size();
  text.replace(at, text.find(end, at) - at, with);
}

// JSON for a <script> element, escaped, since a "</script>" in a name would end the element.
std::string script_data(const Json& data) { return join(split(to_line(data), '<'), "\\u003c"); }

}  // namespace

std::string report_page(std::span<const RunReport> runs) {
  Json data = Json::array();
  for (const RunReport& run : runs) data.push_back(data_of(runs, run));
  const std::string title =
      runs.size() > 1 ? std::to_string(runs.size()) + " runs compared" : runs[0].name();
  std::string page(page_template());
  replace_between(page, "<title>", "</title>", escape_html(title));
  replace_between(page, "<noscript><main>", "</main></noscript>", tables(title, data));
  replace_between(page, "id=\"data\">", "</script>", script_data({{"runs", std::move(data)}}));
  return page;
}

// Every page begins with the first lines of the template.
bool is_page(const std::string& path) {
  const std::string_view begin =
      page_template().substr(0, page_template().find("<meta name=\"viewport\""));
  std::string first(begin.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), static_cast<std::streamsize>(first.size())) && first == begin;
}

// Writes to a name with the process id, then renames: a run and `report` may write concurrently.
void write_page(const std::string& path, const std::string& html) try {
  const std::string own = path + "." + std::to_string(getpid());
  write_text_file(own, html);
  if (rename(own.c_str(), path.c_str()) == 0) return;
  const int code = errno;
  unlink(own.c_str());
  throw WriteError("write", path, code);
} catch (const WriteError& e) {
  throw WriteError("write", path, e.code);  // not the file that is renamed
}

}  // namespace bv
