// report RUN...: writes a page of a run, or one that compares several.
#include <filesystem>
#include <iostream>
#include <set>

#include "app/commands/commands.h"
#include "app/html_report/html_report.h"
#include "base/files/file_io.h"
#include "base/text.h"

namespace bv {

namespace {

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out;
};
constexpr OptionRow rows[] = {
    positional("files", "RUN...", field<&ReportOptions::folders>,
               "a run's folder; several are compared"),
    {"out", "FILE", field<&ReportOptions::out>,
     "where to write the page, replacing an older one; default: RUN/report.html, for several "
     "runs report.html in this folder"}};

// Refuses to replace anything but an older page.
void refuse_others(const std::string& file) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error))
    throw UserError(file + " can't be written: there is no folder " + folder.string());
  if (std::filesystem::exists(std::filesystem::symlink_status(file, error)) && !is_page(file))
    throw UserError(file + " exists and is not a page of this program; name another file (--out)");
}

int report(const CommandLine& line, const std::vector<std::string>&) {
  const auto [folders, out] = own_options<ReportOptions>(line);
  std::vector<RunReport> runs;
  std::set<std::filesystem::path> different;
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!different.insert(std::filesystem::weakly_canonical(folder, error)).second)
      throw UserError(folder + " is given twice; name each run once");
    runs.push_back(load_run(folder));
  }
  std::string file = out;
  if (file.empty()) file = runs.size() == 1 ? page_path(folders[0]) : "report.html";
  if (std::filesystem::path(file).extension().empty()) file += ".html";
  refuse_others(file);
  try {
    write_page(file, report_page(runs));
  } catch (const WriteError& e) {
    if (e.disk_full()) throw;
    throw UserError(std::string(e.what()) + "; --out FILE writes the page elsewhere");
  }
  std::cout << "report: " << printable(file, file.npos) << "\n";
  return 0;
}

}  // namespace

constinit const Command report_command = {
    .name = "report",
    .usage = "RUN... [--out FILE]",
    .summary =
        "write a run's curves, classes, worst mistakes and memory plan as a page for a browser; "
        "with several runs, one that compares them",
    .own = rows,
    .run = report};

}  // namespace bv
