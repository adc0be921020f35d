#include "app/commands/preview_record.h"

#include <algorithm>

#include "app/html_report/tables.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {

namespace {

Json mix_of(const PreviewRecord& seen) {
  if (!seen.mix) return nullptr;
  const Mix& m = *seen.mix;
  Json box;
  if (seen.in_a_box()) box = {m.top, m.left, m.bottom - m.top, m.right - m.left};
  return {{"lambda", json_number(double{m.lambda}, 9)}, {"box", box}, {"partner", seen.partner()}};
}

Json target_of(const PreviewRecord& seen, int classes, double label_smoothing) {
  std::vector<double> target(static_cast<size_t>(classes));
  const double own = seen.mix ? double{seen.mix->lambda} : 1;
  target[static_cast<size_t>(seen.label)] = own;
  if (seen.mixed()) target[static_cast<size_t>(seen.partner_label)] += 1 - own;
  Json smoothed = Json::array();
  for (const double x : target)
    smoothed.push_back(json_number((1 - label_smoothing) * x + label_smoothing / classes, 9));
  return smoothed;
}

std::string short_number(double x) { return format_number(x + 0.0, 3); }

std::vector<std::string> before_caption(const PreviewRecord& s,
                                        const std::vector<std::string>& classes) {
  return {number_text(s.number) + (s.flip ? ", flipped" : ""),
          classes[static_cast<size_t>(s.label)]};
}

std::vector<std::string> after_caption(const PreviewRecord& s) {
  std::vector<std::string> lines;
  for (const DrawnOperation& op : s.ops)
    lines.push_back(std::string(name_of(op.operation)) +
                    (op.magnitude == 0 ? "" : " " + short_number(op.magnitude)));
  if (s.erase) lines.emplace_back("erased");
  if (lines.empty()) lines.emplace_back("unchanged");
  return lines;
}

std::vector<std::string> mixed_caption(const PreviewRecord& s) {
  if (!s.mixed()) return {"not mixed"};
  return {short_number(double{s.mix->lambda}) + " of " + number_text(s.number),
          short_number(1 - double{s.mix->lambda}) + " of " + number_text(s.partner()) +
              (s.in_a_box() ? ", box" : "")};
}

std::string figure(const PreviewRecord& s, const std::string& kind,
                   const std::vector<std::string>& caption) {
  std::string html = "<figure><img loading=\"lazy\" alt=\"" + kind + "\" src=\"" + kind + "/" +
                     number_text(s.number) + ".png\"><figcaption>";
  for (const std::string& line : caption) html += escape_html(line) + "<br>";
  return html + "</figcaption></figure>";
}

}  // namespace

std::string number_text(int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
}

std::string line_of(const PreviewRecord& s, int classes, double label_smoothing) {
  Json ops = Json::array(), erase;
  for (const DrawnOperation& op : s.ops)
    ops.push_back({{"name", name_of(op.operation)}, {"magnitude", json_number(op.magnitude)}});
  if (s.erase)
    erase = json_numbers(
        std::array<double, 4>{s.erase->top, s.erase->left, s.erase->height, s.erase->width});
  return to_line({{"index", s.index},
                  {"path", s.path},
                  {"epoch", s.epoch},
                  {"crop",
                   {{"top", json_number(s.crop.top)},
                    {"left", json_number(s.crop.left)},
                    {"height", json_number(s.crop.height)},
                    {"width", json_number(s.crop.width)}}},
                  {"flip", s.flip},
                  {"ops", ops},
                  {"erase", erase},
                  {"mix", mix_of(s)},
                  {"target", target_of(s, classes, label_smoothing)}}) +
         "\n";
}

std::string figures_of(const PreviewRecord& s, const std::vector<std::string>& classes) {
  std::string html =
      figure(s, "before", before_caption(s, classes)) + figure(s, "after", after_caption(s));
  if (s.mix) html += figure(s, "mixed", mixed_caption(s));
  return "<div>" + html + "</div>\n";
}

}  // namespace bv
