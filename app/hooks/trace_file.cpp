#include "app/hooks/trace_file.h"

#include <algorithm>
#include <filesystem>

#include "base/files/file_io.h"
#include "comm/processes/collect.h"
#include "engine/trace/chrome_trace.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

std::string name_of(const Setup& s, int rank) {
  const int stages = s.pipeline.shape.stages;
  std::string name = "rank " + std::to_string(rank);
  if (stages > 1) name += ", stage " + std::to_string(rank / s.replicas);
  if (stages > 1 && s.replicas > 1) name += ", replica " + std::to_string(rank % s.replicas);
  return name;
}

std::vector<Span> spans_of(std::span<const std::byte> bytes) {
  std::vector<Span> spans(bytes.size() / sizeof(Span));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(spans)).begin());
  return spans;
}

}  // namespace

void check_trace_file(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw UserError("--trace " + path + ": there is no folder " + folder.string());
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    throw UserError("--trace " + path + " is not a file; name another");
}

void TraceFile::before_train(Run& run) {
  if (run.communicator) run.communicator->barrier();
  run.trace->start();
}

void TraceFile::after_train(Run& run) {
  const std::vector<Span> own = run.trace->spans();
  const auto all = collect(std::as_bytes(std::span(own)), run.backend, run.communicator);
  if (run.rank != 0) return;
  std::vector<RankTrace> ranks;
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank)
    ranks.push_back({name_of(run.setup, rank), spans_of(all[static_cast<size_t>(rank)])});
  write_text_file(run.setup.options.trace, chrome_trace(ranks));
}

}  // namespace bv
