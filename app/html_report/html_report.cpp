#include "app/html_report/html_report.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string_view>

#include "base/file_io.h"

// The assembler takes the file in; make knows that this object depends on it.
asm(R"(
  .section .rodata
page_begin:
  .incbin "app/html_report/page.html"
page_end:
  .byte 0
  .text
)");

extern "C" const char page_begin[], page_end[];

namespace bv {
namespace {

std::string_view page_template() { return {page_begin, page_end}; }

Json data_of(const RunReport& run, bool compared) {
  Json facts = run.facts;
  if (compared && !facts.is_null())  // evaluations and pictures aren't compared
    for (const char* key : {"evaluated", "best", "training_pictures", "scratch"}) facts.erase(key);
  return {{"folder", run.folder},           {"last_step", run.metrics.last_step()},
          {"config", run.config},           {"epochs", run.metrics.epochs()},
          {"curves", run.metrics.curves()}, {"report", std::move(facts)}};
}

}  // namespace

std::string report_page(std::span<const RunReport> runs) {
  Json data = {{"version", BAREVISION_VERSION}, {"runs", Json::array()}};
  for (const RunReport& run : runs) data["runs"].push_back(data_of(run, runs.size() > 1));
  std::string text;  // a "</script>" in a name would end the script
  for (const char c : to_line(data)) text += c == '<' ? "\\u003c" : std::string(1, c);
  constexpr std::string_view place = "DATA OF THE RUNS";
  std::string page(page_template());
  return page.replace(page.find(place), place.size(), text);
}

// Every page begins with the first lines of the template.
bool is_page(const std::string& path) {
  const std::string_view begin = page_template().substr(0, page_template().find("<title>"));
  std::string first(begin.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), static_cast<std::streamsize>(first.size())) && first == begin;
}

// Writes under a name with the process id: a run and `report` may write the page at the same time.
void write_page(const std::string& path, const std::string& html) {
  const std::string own = path + "." + std::to_string(getpid());
  OutputFile file(own);
  file.write(std::as_bytes(std::span(html)));
  file.finish();
  if (rename(own.c_str(), path.c_str()) == 0) return;
  const int code = errno;
  unlink(own.c_str());
  throw WriteError("write", path, code);
}

}  // namespace bv
