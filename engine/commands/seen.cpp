#include "engine/commands/seen.h"

#include <algorithm>

#include "engine/base/json.h"
#include "engine/base/text.h"

namespace bv {

namespace {

std::string number(double x) { return json_number(x + 0.0); }  // no -0

std::string list(const std::vector<std::string>& items) { return "[" + join(items, ", ") + "]"; }

std::string ops_text(const std::vector<DrawnOperation>& ops) {
  std::vector<std::string> items;
  for (const DrawnOperation& op : ops)
    items.push_back("{\"name\": " + quote_json(name_of(op.operation)) +
                    ", \"magnitude\": " + number(op.magnitude) + "}");
  return list(items);
}

std::string mix_text(const Seen& seen) {
  if (!seen.mix) return "null";
  const Mix& m = *seen.mix;
  const std::string box = seen.in_a_box()
                              ? list({number(m.top), number(m.left), number(m.bottom - m.top),
                                      number(m.right - m.left)})
                              : "null";
  return "{\"lambda\": " + json_number(double{m.lambda}, 9) + ", \"box\": " + box +
         ", \"partner\": " + std::to_string(seen.partner()) + "}";
}

std::string target_text(const Seen& seen, int classes, double label_smoothing) {
  std::vector<double> target(static_cast<size_t>(classes));
  const double own = seen.mix ? double{seen.mix->lambda} : 1;
  target[static_cast<size_t>(seen.label)] = own;
  if (seen.mixed()) target[static_cast<size_t>(seen.partner_label)] += 1 - own;
  std::vector<std::string> items;
  for (const double x : target)
    items.push_back(json_number((1 - label_smoothing) * x + label_smoothing / classes, 9));
  return list(items);
}

std::string short_number(double x) { return format_number(x + 0.0, 3); }

}  // namespace

std::string number_text(int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
}

std::string line_of(const Seen& s, int classes, double label_smoothing) {
  const std::string crop =
      "{\"top\": " + number(s.crop.top) + ", \"left\": " + number(s.crop.left) +
      ", \"height\": " + number(s.crop.height) + ", \"width\": " + number(s.crop.width) + "}";
  const std::string erase = s.erase ? list({number(s.erase->top), number(s.erase->left),
                                            number(s.erase->height), number(s.erase->width)})
                                    : "null";
  return "{\"index\": " + std::to_string(s.index) + ", \"path\": " + quote_json(s.path) +
         ", \"epoch\": " + std::to_string(s.epoch) + ", \"crop\": " + crop +
         ", \"flip\": " + (s.flip ? "true" : "false") + ", \"ops\": " + ops_text(s.ops) +
         ", \"erase\": " + erase + ", \"mix\": " + mix_text(s) +
         ", \"target\": " + target_text(s, classes, label_smoothing) + "}\n";
}

std::vector<std::string> before_caption(const Seen& s, const std::vector<std::string>& classes) {
  return {number_text(s.number) + (s.flip ? ", flipped" : ""),
          classes[static_cast<size_t>(s.label)]};
}

std::vector<std::string> after_caption(const Seen& s) {
  std::vector<std::string> lines;
  for (const DrawnOperation& op : s.ops)
    lines.push_back(std::string(name_of(op.operation)) +
                    (op.magnitude == 0 ? "" : " " + short_number(op.magnitude)));
  if (s.erase) lines.emplace_back("erased");
  if (lines.empty()) lines.emplace_back("unchanged");
  return lines;
}

std::vector<std::string> mixed_caption(const Seen& s) {
  if (!s.mixed()) return {"not mixed"};
  return {short_number(double{s.mix->lambda}) + " of " + number_text(s.number),
          short_number(1 - double{s.mix->lambda}) + " of " + number_text(s.partner()) +
              (s.in_a_box() ? ", box" : "")};
}

}  // namespace bv
