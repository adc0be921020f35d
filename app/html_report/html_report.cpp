#include "app/html_report/html_report.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <span>

#include "app/html_report/markup/html.h"
#include "app/html_report/markup/style.h"
#include "app/html_report/sections.h"
#include "base/file_io.h"

namespace bv {
namespace {

// Every page begins with it, and is recognised by it.
constexpr std::string_view first_words =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"generator\" content=\"barevision\">\n";

std::string page(const std::string& title, const std::string& body) {
  return std::string(first_words) +
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n" +
         element("title", "", escape_html(title)) + "\n" + element("style", "", page_style) +
         "\n</head>\n<body>\n<main>\n" + body + "</main>\n" + element("script", "", page_script) +
         "\n</body>\n</html>\n";
}

// Side by side where there is room.
std::string beside(const std::string& sections) {
  return sections.empty() ? "" : element("div", "class=\"halves\"", sections) + "\n";
}

}  // namespace

std::string run_page(const RunReport& run) {
  return page(run.name() + ": " + run.option("model"),
              head_section(run) + curves_section({&run, 1}) + beside(classes_section(run)) +
                  mistakes_section(run) + training_images_section(run) +
                  beside(time_section(run) + memory_section(run)) + scratch_section(run) +
                  epochs_section(run) + configuration_section(run));
}

std::string comparison_page(std::span<const RunReport> runs) {
  return page(std::to_string(runs.size()) + " runs compared",
              comparison_head(runs) + curves_section(runs) + differences_section(runs));
}

bool is_page(const std::string& path) {
  std::string begin(first_words.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == first_words;
}

// Under a name of this process's own: a run and the command may write its page at the same time.
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
