#include "app/html_report/facts.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "base/json_list.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr int version = 1;

std::string number(double x) { return json_number(x, 9); }
std::string number(int64_t x) { return std::to_string(x); }
std::string number(int x) { return std::to_string(x); }

template <class... T>
std::string numbers(T... values) {
  std::string text;
  ((text += (text.empty() ? "" : ",") + number(values)), ...);
  return text;
}

std::string pair_list(const std::vector<std::pair<std::string, double>>& pairs) {
  return json_list(pairs, [](const auto& pair) {
    return "[" + quote_json(pair.first) + "," + number(pair.second) + "]";
  });
}

std::string to_json(const Evaluated& e) {
  return "{\"step\":" + number(e.step) + ",\"epoch\":" + number(e.epoch) +
         ",\"averaged\":" + (e.averaged ? "true" : "false") + ",\n\"images\":" +
         json_list(e.images,
                   [](const Confusion& c) {
                     return "[" + numbers(c.label, c.predicted, c.images) + "]";
                   }) +
         ",\n\"mistakes\":" +
         json_list(e.mistakes,
                   [](const Mistake& m) {
                     return "[" + quote_json(m.name) + "," +
                            numbers(m.label, m.predicted, m.probability) + "," +
                            quote_json(m.picture) + "]";
                   }) +
         "}";
}

// A value of report.json. Throws UserError where it is of another kind.
class Reader {
 public:
  Reader(const JsonValue& value, const std::string& path) : value_(&value), path_(&path) {}
  Reader operator[](std::string_view key) const {
    expect(JsonValue::Kind::object);
    if (const JsonValue* member = value_->find(key)) return {*member, *path_};
    fail("'" + std::string(key) + "' is missing");
  }
  Reader operator[](size_t i) const {
    expect(JsonValue::Kind::list);
    if (i >= value_->items.size()) fail("a list is too short");
    return {value_->items[i], *path_};
  }
  bool is_null() const { return value_->kind == JsonValue::Kind::null; }
  bool yes() const {
    expect(JsonValue::Kind::boolean);
    return value_->text == "true";
  }
  std::string text() const {
    expect(JsonValue::Kind::text);
    return value_->text;
  }
  double number() const {
    expect(JsonValue::Kind::number);
    return *parse_number(value_->text);
  }
  int64_t whole(int64_t end = INT64_MAX) const {  // 0 to end - 1
    expect(JsonValue::Kind::number);
    const auto n = parse_integer(value_->text);
    if (!n || *n < 0 || *n >= end) fail("a number is out of range");
    return *n;
  }
  int index(size_t end) const { return static_cast<int>(whole(static_cast<int64_t>(end))); }
  template <class F>
  auto list(F item_of) const {
    expect(JsonValue::Kind::list);
    std::vector<decltype(item_of(*this))> items;
    for (const JsonValue& item : value_->items) items.push_back(item_of(Reader(item, *path_)));
    return items;
  }
  auto pairs() const {
    return list([](const Reader& r) { return std::pair{r[0].text(), r[1].number()}; });
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(*path_ + ": " + what + "; remove it for a page without its part");
  }

 private:
  void expect(JsonValue::Kind kind) const {
    if (value_->kind != kind)
      fail(std::string(name_of(kind)) + " is expected, there is " +
           std::string(name_of(value_->kind)));
  }
  const JsonValue* value_;
  const std::string* path_;
};

std::string text_of(const Reader& r) { return r.text(); }

Evaluated evaluated_from(const Reader& r, size_t classes) {
  return {.step = r["step"].whole(),
          .epoch = r["epoch"].whole(),
          .averaged = r["averaged"].yes(),
          .images = r["images"].list([&](const Reader& c) {
            return Confusion{c[0].index(classes), c[1].index(classes), c[2].whole(INT32_MAX)};
          }),
          .mistakes = r["mistakes"].list([&](const Reader& m) {
            return Mistake{m[0].text(), m[1].index(classes), m[2].index(classes), m[3].number(),
                           m[4].text()};
          })};
}

}  // namespace

std::string to_json(const RunFacts& f) {
  std::string text = "{\"version\":" + number(version);
  for (const auto& [key, value] : {std::pair<const char*, const std::string&>{"model", f.model},
                                   {"data", f.data},
                                   {"device", f.device},
                                   {"command", f.command},
                                   {"written", f.written},
                                   {"ending", f.ending}})
    text += ",\n" + quote_json(key) + ":" + quote_json(value);
  for (const auto& [key, value] : {std::pair{"parameters", f.parameters},
                                   {"processes", f.processes},
                                   {"updates_per_epoch", f.updates_per_epoch},
                                   {"steps_end", f.steps_end},
                                   {"forward_nodes", int64_t{f.forward_nodes}}})
    text += ",\n" + quote_json(key) + ":" + number(value);
  return text + ",\n\"classes\":" + json_list(f.classes, quote_json) +
         ",\n\"memory\":" + pair_list(f.memory) + ",\n\"seconds\":" + pair_list(f.seconds) +
         ",\n\"scratch\":" +
         json_list(f.scratch,
                   [](const ScratchTensor& t) {
                     return "[" + quote_json(t.name) + "," +
                            numbers(t.offset, t.bytes, t.first, t.last) + "]";
                   }) +
         ",\n\"evaluated\":" + (f.evaluated ? to_json(*f.evaluated) : "null") +
         ",\n\"training_pictures\":" + json_list(f.training_pictures, quote_json) + "}\n";
}

RunFacts facts_from_json(const std::string& text, const std::string& path) {
  const JsonValue value = parse_json_object(text, path);
  const Reader r(value, path);
  if (r["version"].whole() != version) r.fail("its version is not " + number(version));
  RunFacts f{.model = r["model"].text(),
             .data = r["data"].text(),
             .device = r["device"].text(),
             .command = r["command"].text(),
             .written = r["written"].text(),
             .ending = r["ending"].text(),
             .parameters = r["parameters"].whole(),
             .processes = r["processes"].whole(),
             .updates_per_epoch = r["updates_per_epoch"].whole(),
             .steps_end = r["steps_end"].whole(),
             .classes = r["classes"].list(text_of),
             .memory = r["memory"].pairs(),
             .seconds = r["seconds"].pairs(),
             .forward_nodes = r["forward_nodes"].index(INT32_MAX),
             .scratch = r["scratch"].list([](const Reader& t) {
               return ScratchTensor{t[0].text(), t[1].whole(), t[2].whole(), t[3].index(INT32_MAX),
                                    t[4].index(INT32_MAX)};
             }),
             .training_pictures = r["training_pictures"].list(text_of)};
  if (const Reader e = r["evaluated"]; !e.is_null())
    f.evaluated = evaluated_from(e, f.classes.size());
  // They become attributes of the page.
  const auto is_picture = [](const std::string& s) {
    return s.empty() ||
           (s.starts_with("data:image/png;base64,") && s.find_first_of("\"'<>& ") == s.npos);
  };
  bool good = std::ranges::all_of(f.training_pictures, is_picture);
  if (f.evaluated)
    for (const Mistake& m : f.evaluated->mistakes) good = good && is_picture(m.picture);
  if (!good) r.fail("a picture is not a data: URI");
  return f;
}

}  // namespace bv
