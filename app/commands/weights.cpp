// weights list, weights fetch NAME: list and download public weights that fit the models here.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/fetch/fetch_weights.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "engine/options/help.h"
#include "engine/options/model_config.h"
#include "engine/weights/weights_cache.h"

namespace bv {

namespace {

namespace fs = std::filesystem;

struct ListOptions {
  std::string model, cache;
};
constexpr OptionRow list_rows[] = {
    positional("model", "[MODEL]", field<&ListOptions::model>, "only those of this model"),
    {"cache", "DIR", field<&ListOptions::cache>, "the folder of weights fetch"}};

struct FetchOptions {
  std::string name, cache, mirror;
};
constexpr OptionRow fetch_rows[] = {
    positional("name", "NAME", field<&FetchOptions::name>,
               "timm/MODEL.TAG or torchvision/MODEL-HASH, as in the list"),
    {"cache", "DIR", field<&FetchOptions::cache>,
     "folder to save it in, which BAREVISION_CACHE sets for all commands; default: "
     "barevision/weights in $XDG_CACHE_HOME or ~/.cache"},
    {"mirror", "URL", field<&FetchOptions::mirror>,
     "in place of https://huggingface.co and https://download.pytorch.org; default: "
     "$BAREVISION_MIRROR"}};

fs::path cache_of(const std::string& given) {
  return given.empty() ? weights_cache() : fs::path(given);
}

std::string column(const std::string& text, size_t width, bool right = false) {
  const std::string space(std::max(width, text.size()) - text.size(), ' ');
  return right ? space + text : text + space;
}

std::string state_of(const PublicWeights& w, const fs::path& cache) {
  std::error_code error;
  const bool here = fs::exists(cache / w.file, error);
  return std::string(w.verified() ? "" : "unverified") + (here && !w.verified() ? ", " : "") +
         (here ? "here" : "");
}

// One line per entry, so that tools like grep find one by its name.
std::string table(const std::string& model, const std::vector<PublicWeights>& all,
                  const fs::path& cache) {
  size_t longest = 0;
  for (const PublicWeights& w : all) longest = std::max(longest, w.name.size());
  std::string text;
  for (const PublicWeights& w : all)
    if (w.info.model == model)
      text += "  " + column(w.name, longest) + column(std::to_string(*w.info.image_size), 8, true) +
              column(w.outputs ? std::to_string(w.outputs) : "none", 9, true) +
              column(std::to_string(w.mib), 6, true) + "  " + column(w.licence, 14) +
              state_of(w, cache) + "\n";
  return text.empty() ? ""
                      : column(model, longest + 2) + "  pixels  classes   MiB  licence\n" + text;
}

int list(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<ListOptions>(line);
  if (!o.model.empty()) load_model_config(o.model);  // throws if there is none
  const std::vector<PublicWeights> all = public_weights();
  const fs::path cache = cache_of(o.cache);
  for (const std::string& model : known_models())
    if (o.model.empty() || model == o.model) std::fputs(table(model, all, cache).c_str(), stdout);
  const std::string how =
      "./launcher weights fetch NAME downloads one into " + cache.string() +
      ", from https://huggingface.co/NAME or https://download.pytorch.org; --weights NAME trains "
      "from it. unverified: nobody has recorded the file's whole SHA-256 in models/weights";
  std::printf("%s\n", wrap(as_called(how), 0, 0, text_width()).c_str());
  return 0;
}

std::string about_checksum(const PublicWeights& w, const std::string& sha256) {
  if (w.verified()) return "SHA-256: " + sha256 + ", as recorded";
  return "unverified: SHA-256 " + sha256 +
         (w.sha256.empty() ? ", no checksum is recorded to compare it with"
                           : ", of which only the first digits are recorded, " + w.sha256);
}

int fetch(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<FetchOptions>(line);
  const PublicWeights w = find_public_weights(o.name);
  const fs::path cache = cache_of(o.cache);
  const char* const own = std::getenv("BAREVISION_CACHE");
  const bool by_default = o.cache.empty() && !(own && *own);
  if (by_default) refuse_foreign_cache(cache);
  const char* const mirror = std::getenv("BAREVISION_MIRROR");
  std::printf("%s: %s of %d pixels, about %d MiB%s; licence: %s; source: %s\n", w.name.c_str(),
              w.info.model->c_str(), *w.info.image_size, w.mib, w.verified() ? "" : ", unverified",
              w.licence.c_str(), w.page.c_str());
  std::fflush(stdout);
  catch_stop_signals();
  const auto fetched = fetch_weights(w, cache, o.mirror.empty() && mirror ? mirror : o.mirror);
  if (!fetched) return 128 + stop_signal();
  std::printf("%s\n%s: %s, %s\ntrain from it: %s%s %s --data PATH --weights %s\n",
              about_checksum(w, fetched->sha256).c_str(),
              fetched->downloaded ? "saved" : "already there", fetched->path.c_str(),
              counted(static_cast<int64_t>(fetched->tensors), "tensor").c_str(),
              o.cache.empty() ? "" : ("BAREVISION_CACHE=" + shell_word(o.cache) + " ").c_str(),
              own_command().c_str(), w.info.model->c_str(), w.name.c_str());
  return 0;
}

}  // namespace

constinit const Command weights_list_command = {
    .name = "weights list",
    .usage = "[MODEL] [--cache DIR]",
    .summary =
        "list the public weights that fit the models here: names for --weights, sizes, "
        "licences",
    .own = list_rows,
    .run = list};

constinit const Command weights_fetch_command = {
    .name = "weights fetch",
    .usage = "NAME [--cache DIR] [--mirror URL]",
    .summary =
        "download public weights with curl into a cache folder, where --weights NAME finds "
        "them; an interrupted download is resumed",
    .own = fetch_rows,
    .run = fetch};

}  // namespace bv
