#include "engine/hooks/report_page.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/file_io.h"
#include "engine/base/text.h"
#include "engine/hooks/report_facts.h"
#include "engine/page/page.h"
#include "engine/page/results.h"

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
    if (!std::exchange(warned_, true))
      run.warn(error_line(e) + "; training goes on, report.html is not up to date");
  }
}

bool ReportPage::reads_predictions(const Run& run, bool averaged) const {
  return run.chooses_best(averaged);
}

void ReportPage::before_train(Run& run) {
  try_to(run, [&] {
    const std::string& folder = run.setup.options.out;
    report_ = {.folder = folder,
               .config = read_run_config(folder),
               .metrics = RunMetrics(std::filesystem::path(folder) / "metrics.jsonl"),
               .facts = facts_of(run)};
    if (!run.setup.checkpoint) {
      report_->facts->training_pictures = training_pictures_of(run);
    } else if (const std::optional<RunFacts> before = read_facts(folder)) {
      report_->facts->training_pictures = before->training_pictures;
      if (before->evaluated && before->evaluated->step <= run.progress.step)
        report_->facts->evaluated = before->evaluated;
    }
  });
}

void ReportPage::after_test_epoch(Run& run, bool averaged, const EvaluationSums&) {
  if (report_ && reads_predictions(run, averaged))
    try_to(run, [&] { report_->facts->evaluated = evaluated_of(run, averaged); });
}

// That of the run's last one is left to after_train.
void ReportPage::after_train_epoch(Run& run, EpochRecord& record) {
  if (report_ && report_->facts->evaluated && record.val_loss)
    report_->facts->evaluated->epoch = record.epoch;
  if (run.progress.step < run.end && !run.stopped_by) write(run, "");
}

void ReportPage::after_train(Run& run) { write(run, run.stopped_by ? stopped : finished); }

void ReportPage::after_error(Run& run, const std::string& line) { write(run, line); }

void ReportPage::write(Run& run, const std::string& ending) {
  if (!report_) return;
  try_to(run, [&] {
    RunFacts& facts = *report_->facts;
    facts.written = now();
    facts.ending = ending;
    facts.seconds.clear();
    if (run.setup.options.profile)
      facts.seconds.assign(run.profile.seconds().begin(), run.profile.seconds().end());
    report_->metrics.read();
    OutputFile file(facts_path(report_->folder));
    const std::string text = to_json(facts);
    file.write(std::as_bytes(std::span(text)));
    file.finish();
    write_page(page_path(report_->folder), run_page(*report_));
  });
}

}  // namespace bv
