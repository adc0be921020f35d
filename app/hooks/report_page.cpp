#include "app/hooks/report_page.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <span>
#include <utility>

#include "app/html_report/html_report.h"
#include "app/html_report/repeat.h"
#include "app/html_report/report_facts.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"

namespace bv {
namespace {

std::string now() {
  const std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime_r(&time, &utc));
  return text;
}

}  // namespace

template <class F>
void ReportPage::try_to(Run& run, F work) {
  try {
    work();
  } catch (const std::exception& e) {
    warn(run, error_line(e));
  }
}

void ReportPage::warn(Run& run, const std::string& line) {
  if (!line.empty() && !std::exchange(warned_, true))
    run.warn(line + "; training continues, report.html is not up to date");
}

bool ReportPage::reads_predictions(const Run& run, bool averaged) const {
  return run.chooses_best(averaged);
}

void ReportPage::before_train(Run& run) {
  try_to(run, [&] {
    const std::string& folder = run.setup.options.out;
    auto page = std::make_shared<Page>(
        RunReport{.folder = folder,
                  .config = read_run_config(folder),
                  .metrics = RunMetrics(std::filesystem::path(folder) / "metrics.jsonl"),
                  .facts = {}});
    page->report.metrics.read();
    facts_ = facts_of(run);
    facts_["restarts"] = page->report.metrics.restarts();
    if (!run.setup.checkpoint) {
      facts_["training_pictures"] = training_pictures_of(run);
    } else if (Json before = read_facts(folder); !before.is_null()) {
      facts_["training_pictures"] = before["training_pictures"];
      const int64_t step = run.progress.step;
      facts_["command"] =
          continued_command(before["command"], run.setup.options,
                            step < before["steps_end"] ? " --steps " + std::to_string(step) : "");
      for (const char* key : {"evaluated", "best"})
        if (const Json e = before.value(key, Json());
            !e.is_null() && e["step"] <= run.progress.step)
          facts_[key] = e;
    }
    page_ = std::move(page);
  });
}

void ReportPage::after_test_epoch(Run& run, bool averaged, const EvaluationSums&) {
  if (page_ && reads_predictions(run, averaged))
    try_to(run, [&] { facts_["evaluated"] = evaluated_of(run, averaged); });
}

// after_train writes the page of the run's last epoch.
void ReportPage::after_train_epoch(Run& run, EpochRecord& record) {
  if (Json& last = facts_["evaluated"]; !last.is_null() && record.val_loss) {
    last["epoch"] = record.epoch;
    if (record.best) facts_["best"] = last;
  }
  if (run.progress.step < run.end && !run.stopped_by) write(run, "");
}

void ReportPage::after_train(Run& run) {
  write(run, run.stopped_by ? stopped : finished);
  run.background.wait();
  warn(run, jobs_.failure());
}

void ReportPage::after_error(Run& run, const std::string& line) { write(run, line); }

void ReportPage::write(Run& run, const std::string& ending) {
  warn(run, jobs_.failure());
  if (!page_) return;
  facts_["written"] = now();
  facts_["ending"] = ending;
  facts_["data"] = description_without(run.setup.bad_images, run.setup.data);
  if (run.setup.options.profile) {
    Json& seconds = facts_["seconds"] = Json::array();
    for (const auto& [kind, time] : run.profile.seconds())
      seconds.push_back({kind, json_number(time, 9)});
  }
  {
    const std::lock_guard lock(page_->mutex);
    page_->newest = facts_;
  }
  jobs_.post(run.background, [page = page_] { page->write(); });
}

void ReportPage::Page::write() {
  {
    const std::lock_guard lock(mutex);
    if (newest.is_null()) return;
    report.facts = std::exchange(newest, {});
  }
  report.metrics.read();
  write_text_file(facts_path(report.folder), to_line(report.facts) + "\n");
  write_page(page_path(report.folder), report_page({&report, 1}));
}

}  // namespace bv
