#include "engine/trace/chrome_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr double shortest_idle = 1e-5;  // seconds

const char* name_of(Work work) {
  constexpr std::array names = {"forward",    "backward",   "exchange",       "update",
                                "evaluation", "all-reduce", "reduce-scatter", "all-gather"};
  return names.at(static_cast<size_t>(work));
}

Json named(std::string_view kind, int rank, int track, const std::string& name) {
  return {{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

Json event(int rank, int track, std::string_view name, double begin, double end) {
  const auto microseconds = [](double seconds) { return std::round(seconds * 1e9) / 1e3; };
  return {{"ph", "X"},
          {"name", name},
          {"pid", rank},
          {"tid", track},
          {"ts", json_number(microseconds(begin))},
          {"dur", json_number(microseconds(end) - microseconds(begin))}};
}

Json event(int rank, const Span& span) {
  Json event = bv::event(rank, span.track, name_of(span.work), span.begin, span.end);
  Json& args = event["args"] = {{"update", span.update}};
  if (span.chunk >= 0) args["chunk"] = span.chunk;
  if (span.micro >= 0) args["micro-batch"] = span.micro;
  return event;
}

}  // namespace

std::string chrome_trace(std::span<const RankTrace> ranks) {
  std::vector<std::string> events;  // a line each
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const RankTrace& own = ranks[static_cast<size_t>(rank)];
    events.push_back(to_line(named("process_name", rank, 0, own.name)));
    std::set<int> tracks = {0};
    for (const Span& span : own.spans) tracks.insert(span.track);
    for (const int track : tracks)
      events.push_back(
          to_line(named("thread_name", rank, track,
                        track == 0 ? "compute" : "gradients " + std::to_string(track))));
    std::vector<Span> computing;
    for (const Span& span : own.spans) {
      events.push_back(to_line(event(rank, span)));
      if (span.track == 0) computing.push_back(span);
    }
    std::ranges::sort(computing, {}, &Span::begin);
    double until = computing.empty() ? 0 : computing[0].begin;
    for (const Span& span : computing) {
      if (span.begin - until >= shortest_idle)
        events.push_back(to_line(event(rank, 0, "idle", until, span.begin)));
      until = std::max(until, span.end);
    }
  }
  return "{\"traceEvents\":[" + join(events, ",\n") + "],\"displayTimeUnit\":\"ms\"}\n";
}

}  // namespace bv
