// The images that the model is most wrong about, and what it is trained on.
#include "app/html_report/markup/html.h"
#include "app/html_report/markup/pieces.h"
#include "app/html_report/sections.h"
#include "base/text.h"

namespace bv {
namespace {

std::string picture(const std::string& source, const std::string& description) {
  return "<img alt=\"" + escape_html(description) + "\" src=\"" + source + "\">";
}

}  // namespace

std::string mistakes_section(const RunReport& run) {
  if (!run.facts || !run.facts->evaluated) return "";
  const RunFacts& f = *run.facts;
  if (f.evaluated->mistakes.empty())
    return section("Worst mistakes", note("None: every image was recognised."));
  std::string figures;
  for (const Mistake& m : f.evaluated->mistakes) {
    const std::string predicted = f.classes[static_cast<size_t>(m.predicted)],
                      is = f.classes[static_cast<size_t>(m.label)];
    figures += element(
        "figure", "",
        (m.picture.empty() ? "<div class=\"lost\"></div>"
                           : picture(m.picture, "an image of " + is)) +
            element("figcaption", "",
                    "said " + element("b", "", escape_html(predicted)) + ", " +
                        percent(m.probability) + "<br>is " + element("b", "", escape_html(is)) +
                        "<br>" + element("span", "", escape_html(m.name))));
  }
  return section("Worst mistakes",
                 note("The wrong answers that the model was surest of, after epoch " +
                      std::to_string(f.evaluated->epoch) + ".") +
                     element("div", "class=\"pictures\"", figures));
}

std::string training_images_section(const RunReport& run) {
  if (!run.facts || run.facts->training_pictures.empty()) return "";
  std::string figures;
  for (const std::string& source : run.facts->training_pictures)
    figures += element("figure", "", picture(source, "a training image"));
  return section("What the model sees",
                 note("The first training images after cropping and augmentation, before any "
                      "mixing.") +
                     element("div", "class=\"pictures small\"", figures));
}

}  // namespace bv
