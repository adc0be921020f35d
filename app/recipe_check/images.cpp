// Checks of the images' contents: data check's findings, in its words.
#include <algorithm>

#include "app/recipe_check/checks.h"
#include "app/recipe_check/recipe_check.h"
#include "base/text.h"

namespace bv {

namespace {

constexpr int64_t max_looked_at = 4096;
constexpr int least_side = 32;       // as data check
constexpr int64_t much_larger = 10;  // classes' numbers of images
constexpr size_t max_named = 5;

int min_side(const Setup& s) { return std::min(least_side, *s.options.image_size); }

// "a, b, c, d, e, and 3 more"
template <class Item, class Show>
std::string some(const std::vector<Item>& items, const Show& show) {
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), max_named); ++i)
    text += (i ? ", " : "") + show(items[i]);
  return text + (items.size() > max_named
                     ? ", and " + std::to_string(items.size() - max_named) + " more"
                     : "");
}

std::string shown(const FileRemark& remark) { return remark.path + ": " + remark.what; }

class ImageFindings {
 public:
  ImageFindings(const Setup& s, const DataCheck& found) : setup_(s), found_(found) {}

  Findings all() {
    if (setup_.options.on_bad_image == OnBadImage::fail)
      add("damaged", found_.damaged, "use --on-bad-image skip, which leaves them out");
    add("decoded with a warning", found_.flawed, "look at them, or leave them out");
    add("with a side below " + std::to_string(min_side(setup_)) + " pixels", found_.tiny,
        "use larger ones, or leave them out");
    add_equal("equal images in different classes", &EqualImages::in_several_classes,
              "use each in one class");
    add_equal("images of val that are in train too", &EqualImages::in_both_parts,
              "use them in one of the two");
    add_balance();
    return std::move(findings_);
  }

 private:
  void add(const std::string& what, std::vector<FileRemark> remarks, const char* advice) {
    if (remarks.empty()) return;
    std::ranges::sort(remarks, {}, &FileRemark::path);
    findings_.push_back({.what = what + ": " + std::to_string(remarks.size()) + " of " +
                                 counted(found_.looked_at, "image") +
                                 (found_.looked_at < found_.images
                                      ? " looked at, of " + std::to_string(found_.images)
                                      : ""),
                         .why = some(remarks, shown),
                         .advice = advice});
  }

  void add_equal(const char* what, bool EqualImages::*kind, const char* advice) {
    std::vector<EqualImages> groups;
    std::ranges::copy_if(found_.equal, std::back_inserter(groups),
                         [&](const EqualImages& equal) { return equal.*kind; });
    if (groups.empty()) return;
    const auto count = kind == &EqualImages::in_both_parts ? found_.val_in_train
                                                           : static_cast<int64_t>(groups.size());
    findings_.push_back(
        {.what = what + (": " + std::to_string(count)),
         .why = some(groups, [](const EqualImages& e) { return join(e.paths, " = "); }),
         .advice = advice});
  }

  // A part that --val-fraction holds out belongs to the same images.
  int64_t images_of(const ClassCount& c) const {
    return c.train + (setup_.data.held_out ? c.val : 0);
  }

  void add_balance() {
    if (found_.classes.size() < 2) return;
    const auto [least, most] = std::ranges::minmax(
        found_.classes, {}, [this](const ClassCount& c) { return images_of(c); });
    const int64_t few = images_of(least), many = images_of(most);
    if (many < much_larger * few) return;
    findings_.push_back(
        {.what = "the largest class has " + std::to_string(many) +
                 (found_.has_val && !setup_.data.held_out ? " training images" : " images") +
                 ", the smallest " + std::to_string(few),
         .why = "a model can ignore '" + least.name + "' and lose little",
         .advice = "use more images of '" + least.name + "', or fewer of '" + most.name + "'"});
  }

  const Setup& setup_;
  const DataCheck& found_;
  Findings findings_;
};

}  // namespace

DataCheck look_at_images(const Setup& s, int threads,
                         const std::function<void(int64_t, int64_t)>& progress) {
  if (s.data.kind != DataKind::photos) return {};
  return check_data(s.data, max_looked_at, min_side(s), threads, progress);
}

std::vector<Finding> lint_images(const Setup& s, const DataCheck& found) {
  return ImageFindings(s, found).all();
}

}  // namespace bv
