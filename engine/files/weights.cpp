#include "engine/files/weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "engine/files/checkpoint_read.h"
#include "engine/options/weights_name.h"

namespace bv {
namespace {

// One kind of misfit (missing, extra, ...), as part of a one-line message.
class Listing {
 public:
  void add(const std::string& item) {
    if (count_ < max) text_ += (count_ ? ", " : "") + item;
    ++count_;
  }
  std::string text(const std::string& kind) const {
    return count_ == 0 ? "" : "; " + kind + ": " + items();
  }
  std::string items() const {
    return text_ + (count_ > max ? " and " + std::to_string(count_ - max) + " more" : "");
  }
  size_t count() const { return count_; }

 private:
  static constexpr size_t max = 5;
  size_t count_ = 0;
  std::string text_;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t n : shape) text += (text.size() > 1 ? "x" : "") + std::to_string(n);
  return text + "]";
}

// G of a position embedding [1, prefix + G*G, C]; 0 for any other shape.
int grid_of(const std::vector<int64_t>& shape, int prefix) {
  if (shape.size() != 3 || shape[0] != 1 || shape[1] <= prefix || shape[2] < 1) return 0;
  const auto grid = int64_t(std::lround(std::sqrt(double(shape[1] - prefix))));
  return grid <= 1 << 14 && grid * grid == shape[1] - prefix ? int(grid) : 0;
}

// Resizing is bicubic (Keys 1981, a = -0.5) and separable, as PyTorch's interpolate(mode="bicubic",
// antialias=True, align_corners=False). Output i is centred at scale * (i + 0.5) of the input,
// scale = from/to, and is the mean of the inputs around it, weighted by the cubic kernel. When the
// grid shrinks, the kernel is stretched by scale, so that every input counts. Weights outside the
// grid are dropped and the others normalised to sum to one.
struct Taps {
  int first = 0;
  std::vector<double> weights;
};

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

Taps taps_of(int i, int from, int to) {
  const double scale = double(from) / to, stretch = std::max(scale, 1.0);
  const double centre = scale * (i + 0.5), reach = 2 * stretch;
  Taps taps{.first = std::max(int(centre - reach + 0.5), 0)};
  const int last = std::min(int(centre + reach + 0.5), from);
  double sum = 0;
  for (int j = taps.first; j < last; ++j) {
    taps.weights.push_back(cubic((j - centre + 0.5) / stretch));
    sum += taps.weights.back();
  }
  for (double& w : taps.weights) w /= sum;
  return taps;
}

// Resizes the middle dimension of [outer, from, inner].
std::vector<double> resize_middle(const std::vector<double>& inp, size_t outer, int from, int to,
                                  size_t inner) {
  std::vector<double> out(outer * size_t(to) * inner);
  for (int i = 0; i < to; ++i) {
    const Taps taps = taps_of(i, from, to);
    for (size_t o = 0; o < outer; ++o) {
      double* const row = &out[(o * size_t(to) + size_t(i)) * inner];
      for (size_t j = 0; j < taps.weights.size(); ++j) {
        const double* const source = &inp[(o * size_t(from) + size_t(taps.first) + j) * inner];
        for (size_t c = 0; c < inner; ++c) row[c] += taps.weights[j] * source[c];
      }
    }
  }
  return out;
}

// From [1, prefix + from*from, C] to [1, prefix + to*to, C].
HostTensor resize_position(const HostTensor& old, int prefix, int from, int to) {
  const auto C = size_t(old.shape[2]);
  const auto grid = old.data.begin() + prefix * ptrdiff_t(C);  // the tokens before it are copied
  const auto wide = resize_middle({grid, old.data.end()}, size_t(from), from, to, C);
  const auto resized = resize_middle(wide, 1, from, to, size_t(to) * C);
  HostTensor out{.shape = {1, prefix + int64_t(to) * to, old.shape[2]},
                 .data = {old.data.begin(), grid}};
  out.data.insert(out.data.end(), resized.begin(), resized.end());
  return out;
}

class Fitting {
 public:
  Fitting(TensorFile file, const std::string& path, const std::vector<ParameterShape>& parameters,
          const std::vector<std::string>& heads)
      : file_(std::move(file)), path_(path), parameters_(parameters), heads_(heads) {}

  FitResult run() {
    // PyTorch's batch norms count their batches; the count is not used here.
    std::erase_if(file_.tensors,
                  [](const auto& t) { return t.first.ends_with(".num_batches_tracked"); });
    strip_prefix();
    swap_heads();
    for (const ParameterShape& p : parameters_)
      if (std::ranges::find(result_.fresh, p.name) == result_.fresh.end()) fit(p);
    for (const auto& [name, tensor] : file_.tensors) {
      extra_.add(printable(name));
      if (name.ends_with(".ls1.gamma")) advice_ = "; no model here has LayerScale (ls1, ls2)";
    }
    const std::string misfits = missing_.text("missing") + extra_.text("extra") +
                                other_.text("wrong shape") + broken_.text("not finite") +
                                integers_.text("integers in place of floats") + advice_;
    if (!misfits.empty())
      throw UserError(path_ + ": these weights don't fit the model" + misfits + dictionaries());
    std::string note = "weights: " + path_ + ", " + std::to_string(result_.tensors.size()) +
                       " of " + std::to_string(parameters_.size()) + " tensors" + others();
    for (const std::string& change : changes_) note += ", " + change;
    result_.note = note;
    return std::move(result_);
  }

 private:
  // The file's other dictionaries, for a message.
  std::string dictionaries() const {
    return file_.found.empty() ? ""
                               : "; the file has " + join(file_.found, ", ") +
                                     (file_.taken.empty() ? "" : ", of which this is " + taken()) +
                                     "; " + shell_word(part("NAME")) + " takes another";
  }
  // "FILE:KEY", for another key than the one given.
  std::string part(const std::string& key) const { return split_key(path_).path + ":" + key; }
  std::string taken() const { return printable(file_.taken); }
  // Which of several dictionaries that fit was taken, and how to get another.
  std::string others() const {
    if (file_.also.empty()) return "";
    std::vector<std::string> names;
    for (const std::string& key : file_.also) names.push_back(shell_word(part(key)));
    return ", from its " + (file_.taken.empty() ? "outermost names" : taken()) + " (" +
           join(std::span(names).first(std::min<size_t>(names.size(), 3)), " or ") +
           " takes the other)";
  }

  // The prefix before most of the model's names is removed; the wrapper's own names lack it. Names
  // of the model that lack it, as a head beside a backbone, are taken as they are.
  void strip_prefix() {
    const std::string prefix = prefix_of_names();
    if (prefix.empty()) return;
    Tensors inner, outer;
    for (auto& [name, tensor] : file_.tensors)
      if (name.starts_with(prefix))
        inner[name.substr(prefix.size())] = std::move(tensor);
      else
        outer[name] = std::move(tensor);
    Listing left_out;
    for (auto& [name, tensor] : outer)
      if (!is_parameter(name) || !inner.try_emplace(name, std::move(tensor)).second)
        left_out.add(printable(name));
    file_.tensors = std::move(inner);
    changes_.push_back("names without " + printable(prefix));
    if (left_out.count() > 0)
      changes_.push_back(left_out.items() + (left_out.count() == 1 ? " is" : " are") + " left out");
  }

  std::string prefix_of_names() {
    PrefixVotes votes(parameters_);
    for (const auto& [name, tensor] : file_.tensors) votes.add(name, tensor.shape);
    const std::vector<PrefixVote> best = votes.best();
    if (best.empty()) return "";
    if (best.size() == 1) return best[0].prefix;
    if (const std::filesystem::path file = split_key(path_).path; file.filename() == optimizer_name)
      throw UserError(path_ + ": the optimizer's moments, not weights; give " +
                      (file.parent_path() / weights_name).string());
    std::vector<std::string> ways;
    for (const PrefixVote& vote : best)
      if (!vote.prefix.empty())
        ways.push_back(shell_word(part(vote.prefix.substr(0, vote.prefix.size() - 1))));
    if (ways.size() < best.size()) {  // names without a prefix, too: a model before its average
      for (const PrefixVote& vote : best)
        std::erase_if(file_.tensors, [&](const auto& t) {
          return !vote.prefix.empty() && t.first.starts_with(vote.prefix);
        });
      changes_.push_back("those without a prefix (" + join(ways, " or ") + " takes the other)");
      return "";
    }
    throw UserError(path_ + ": has the model " + std::to_string(best.size()) +
                    " times, under different prefixes; give " + join(ways, " or "));
  }

  bool is_parameter(const std::string& name) const {
    return std::ranges::find(parameters_, name, &ParameterShape::name) != parameters_.end();
  }

  bool is_head(const std::string& name) const {
    return std::ranges::find(heads_, name) != heads_.end();
  }

  // The file's number of classes if all its heads have the same and differ from the model's heads
  // in nothing else; 0 if it has no heads; else nullopt: heads are fitted like other parameters.
  std::optional<int64_t> other_classes() const {
    std::set<int64_t> classes;
    bool differs = false;
    for (const ParameterShape& p : parameters_) {
      if (!is_head(p.name)) continue;
      const auto at = file_.tensors.find(p.name);
      std::vector<int64_t> shape = at == file_.tensors.end() ? p.shape : at->second.shape;
      if (shape.empty() || shape.size() != p.shape.size()) return std::nullopt;
      classes.insert(at == file_.tensors.end() ? 0 : shape[0]);
      differs |= *classes.begin() != p.shape[0];
      shape[0] = p.shape[0];
      if (shape != p.shape) return std::nullopt;
    }
    if (classes.size() != 1 || !differs) return std::nullopt;
    return *classes.begin();
  }

  void swap_heads() {
    const auto classes = other_classes();
    if (!classes) return;
    int64_t own = 0;
    for (const ParameterShape& p : parameters_) {
      if (!is_head(p.name)) continue;
      result_.fresh.push_back(p.name);
      file_.tensors.erase(p.name);
      own = p.shape[0];
    }
    const std::string there = *classes ? std::to_string(*classes) + " classes" : "none";
    changes_.push_back("new head (" + there + " there, " + std::to_string(own) + " here)");
  }

  void fit(const ParameterShape& p) {
    auto node = file_.tensors.extract(p.name);
    if (!node) return missing_.add(p.name);
    HostTensor& tensor = node.mapped();
    if (!std::ranges::all_of(tensor.data, [](float x) { return std::isfinite(x); }))
      return broken_.add(p.name);
    if (tensor.integers) return integers_.add(p.name);
    if (p.name == "patch_embed.proj.weight" && is_patch(p.shape) && is_patch(tensor.shape) &&
        tensor.shape != p.shape)
      advice_ = "; give --patch-size " + std::to_string(tensor.shape[2]);
    if (tensor.shape != p.shape && !resized(p, tensor))
      return other_.add(p.name + " " + shape_text(tensor.shape) + " for " + shape_text(p.shape));
    result_.tensors.insert(std::move(node));
  }

  // [C, 3, P, P]
  static bool is_patch(const std::vector<int64_t>& shape) {
    return shape.size() == 4 && shape[1] == 3 && shape[2] == shape[3];
  }

  bool resized(const ParameterShape& p, HostTensor& tensor) {
    const bool distilled =
        std::ranges::find(parameters_, "dist_token", &ParameterShape::name) != parameters_.end();
    const int prefix = distilled ? 2 : 1, from = grid_of(tensor.shape, prefix),
              to = grid_of(p.shape, prefix);
    if (p.name != "pos_embed" || !from || !to || tensor.shape[2] != p.shape[2]) return false;
    tensor = resize_position(tensor, prefix, from, to);
    const auto grid = [](int g) { return std::to_string(g) + "x" + std::to_string(g); };
    changes_.push_back("position embedding resized from " + grid(from) + " to " + grid(to) +
                       " patches");
    return true;
  }

  TensorFile file_;
  const std::string& path_;
  const std::vector<ParameterShape>& parameters_;
  const std::vector<std::string>& heads_;
  FitResult result_;
  std::vector<std::string> changes_;  // parts of the note
  std::string advice_;
  Listing missing_, extra_, other_, broken_, integers_;
};

}  // namespace

int representation_size(const TensorFile& file) {
  const std::string layer = "pre_logits.fc.weight";
  for (const auto& [name, tensor] : file.tensors)
    if ((name == layer || name.ends_with("." + layer)) && tensor.shape.size() == 2)
      return static_cast<int>(tensor.shape[0]);
  return 0;
}

FitResult fit_weights(TensorFile file, const std::string& path,
                      const std::vector<ParameterShape>& parameters,
                      const std::vector<std::string>& heads) {
  return Fitting(std::move(file), path, parameters, heads).run();
}

}  // namespace bv
