// The names in a weights file beside those of a model: wrappers (DistributedDataParallel,
// torch.compile, Lightning, a user's own module) put a prefix before them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bv {

struct ParameterShape {
  std::string name;
  std::vector<int64_t> shape;
};
// Lists a model's parameters; called only if a choice depends on them. Empty: the model is unknown.
using ListParameters = std::function<std::vector<ParameterShape>()>;

// Which of a file's tensors are meant.
struct TensorChoice {
  // The key of a dictionary, "state_dict_ema", or the names' beginning, "teacher". Empty: the
  // tensors that fit the model.
  std::string key = {};
  ListParameters model = {};
};

struct PrefixVote {
  std::string prefix;            // "module."; may be empty
  size_t names = 0, shapes = 0;  // of the model's that the file has behind it; equal shapes
};

class PrefixVotes {
 public:
  // The parameters must outlive this.
  explicit PrefixVotes(const std::vector<ParameterShape>& model);

  void add(std::string_view name, std::span<const int64_t> shape);
  // The prefix that stands before most of the model's names, with the most equal shapes; several if
  // they are equally good; none if no prefix has most names.
  std::vector<PrefixVote> best() const;

 private:
  std::unordered_map<std::string_view, const ParameterShape*> model_;
  size_t longest_ = 0;
  std::map<std::string, PrefixVote, std::less<>> votes_;
};

}  // namespace bv
