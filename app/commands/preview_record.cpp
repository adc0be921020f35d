#include "app/commands/preview_record.h"

#include <algorithm>

#include "base/json.h"
#include "base/json_list.h"
#include "base/text.h"

namespace bv {

namespace {

std::string number(double x) { return json_number(x + 0.0); }  // no -0

std::string list(const std::vector<double>& numbers) { return json_list(numbers, number, ", "); }

std::string ops_text(const std::vector<DrawnOperation>& ops) {
  const auto op_text = [](const DrawnOperation& op) {
    return "{\"name\": " + quote_json(name_of(op.operation)) +
           ", \"magnitude\": " + number(op.magnitude) + "}";
  };
  return json_list(ops, op_text, ", ");
}

std::string mix_text(const PreviewRecord& seen) {
  if (!seen.mix) return "null";
  const Mix& m = *seen.mix;
  const std::string box = seen.in_a_box()
                              ? list({double(m.top), double(m.left), double(m.bottom - m.top),
                                      double(m.right - m.left)})
                              : "null";
  return "{\"lambda\": " + json_number(double{m.lambda}, 9) + ", \"box\": " + box +
         ", \"partner\": " + std::to_string(seen.partner()) + "}";
}

std::string target_text(const PreviewRecord& seen, int classes, double label_smoothing) {
  std::vector<double> target(static_cast<size_t>(classes));
  const double own = seen.mix ? double{seen.mix->lambda} : 1;
  target[static_cast<size_t>(seen.label)] = own;
  if (seen.mixed()) target[static_cast<size_t>(seen.partner_label)] += 1 - own;
  const auto smoothed = [&](double x) {
    return json_number((1 - label_smoothing) * x + label_smoothing / classes, 9);
  };
  return json_list(target, smoothed, ", ");
}

std::string short_number(double x) { return format_number(x + 0.0, 3); }

}  // namespace

std::string number_text(int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
}

std::string line_of(const PreviewRecord& s, int classes, double label_smoothing) {
  const std::string crop =
      "{\"top\": " + number(s.crop.top) + ", \"left\": " + number(s.crop.left) +
      ", \"height\": " + number(s.crop.height) + ", \"width\": " + number(s.crop.width) + "}";
  const std::string erase =
      s.erase ? list({s.erase->top, s.erase->left, s.erase->height, s.erase->width}) : "null";
  return "{\"index\": " + std::to_string(s.index) + ", \"path\": " + quote_json(s.path) +
         ", \"epoch\": " + std::to_string(s.epoch) + ", \"crop\": " + crop +
         ", \"flip\": " + (s.flip ? "true" : "false") + ", \"ops\": " + ops_text(s.ops) +
         ", \"erase\": " + erase + ", \"mix\": " + mix_text(s) +
         ", \"target\": " + target_text(s, classes, label_smoothing) + "}\n";
}

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

}  // namespace bv
