// Feeds damaged files to the readers of weights, checkpoints and configs. A mutant passes if it is
// read or refused by a UserError of one line. Built with the address and undefined-behaviour
// sanitizers:
//   fuzz [FIRST [COUNT]]    mutants by number; each depends only on its number
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/checksum.h"
#include "data/loader.h"
#include "engine/files/checkpoint.h"
#include "engine/files/torch/torch_file.h"
#include "engine/files/weights.h"
#include "engine/options/config.h"
#include "engine/weights/foreign_file.h"
#include "engine/weights/shards.h"
#include "tests/engine/weights/torch_archive.h"
#include "tests/files.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/run.h"
#include "tests/fuzz/watch.h"
#include "tests/temporary_folder.h"

// An allocation above this size ends the program.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=64:allocator_may_return_null=0:detect_leaks=1:handle_abort=1";
}

namespace bv::test::fuzz {
namespace {

constexpr Mutants mutants{.few = 2000, .all = 20000};
constexpr unsigned max_seconds = 10;

// The memory that a reader may allocate per byte of its file, in addition to a fixed amount: small
// items take more in memory than in a file, most of all as a JSON tree, which is built only from
// files of bounded size.
constexpr size_t fixed_bytes = 64 << 10, tensor_factor = 16, tree_factor = 256;

std::string with_length(const std::string& header, const std::string& data) {
  const uint64_t n = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &n, 8);
  return file + header + data;
}

// Images of one pixel.
class Dots : public Dataset {
 public:
  int64_t size() const override { return 18; }
  int label(int64_t) const override { return 0; }
  Image image(int64_t, int) const override { return black_image(1, 1); }
  std::string name(int64_t) const override { return "dot"; }
};

class Fuzzer {
 public:
  Fuzzer() {
    WeightsInfo info{.model = "vit_tiny", .image_size = 32, .patch_size = 16};
    info.classes = {"cat", "dog"};
    info.mean = info.std = std::array<double, 3>{0.5, 0.25, 0.125};
    Checkpoint c{.model = "vit_tiny", .step = 31, .epoch = 3, .batch = 4, .best_top1 = 0.5};
    c.weights.metadata = weights_metadata(info);
    for (const ParameterShape& p : parameters_) {
      HostTensor& tensor = c.weights.tensors[p.name] = {.shape = p.shape};
      size_t n = 1;
      for (const int64_t s : p.shape) n *= size_t(s);
      tensor.data.assign(n, 0.5f);
      c.optimizer.tensors["m." + p.name] = c.optimizer.tensors["v." + p.name] = tensor;
    }
    save_checkpoint(folder_.path(), c, tensors_of(c), true, 1);
    weights_ = contents(folder_ / "last/weights.safetensors");
    optimizer_ = contents(folder_ / "last/state.safetensors");
    state_ = contents(folder_ / "last/state.json");
    files_ = {weights_, optimizer_, with_length("{}", ""),
              with_length(R"({"h":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
                          R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]},)"
                          R"("d":{"dtype":"F64","shape":[1,1,1],"data_offsets":[16,24]}})",
                          std::string(24, '\x3c'))};
    configs_ = {config_to_json(Options{}),
                R"({"model": "vit_tiny", "batch": 64, "lr": 1e-3, "betas": [0.9, 0.95],)"
                R"( "classes": ["a", "b"], "mean": [0.5, 0.5, 0.5], "save_every": "500steps"})"};
    for (const std::string& pickle : {pickle_, checkpoint_}) {  // undamaged, both are read
      const std::string file = torch_archive(pickle, false).bytes();
      parse_torch_file(std::as_bytes(std::span(file)), "seed");
    }
  }

  std::string counts() const { return std::to_string(accepted_) + " read, the rest refused\n"; }

  // Runs one mutant. Returns the problem; empty if there is none.
  std::string run(uint64_t number) {
    Mutator mutator(number);
    switch (number % 10) {
      default:  // 0-3
        return weights(number, mutator);
      case 4:
        return torch_weights(number, mutator);
      case 5:
      case 6:
        return state(number, mutator);
      case 7:
        return folder(number, mutator);
      case 8:
        return config(number, mutator);
      case 9:
        return mutator.one_in(2) ? config(number, mutator) : index(number, mutator);
    }
  }

 private:
  std::string watched(uint64_t number, size_t bytes, size_t factor,
                      const std::function<void()>& read) {
    std::string problem;
    begin_watch(number, fixed_bytes + factor * bytes);
    try {
      read();
      ++accepted_;
    } catch (const UserError& e) {
      const std::string line = e.what();
      if (line.empty() || line.size() > 1000 || line.find('\n') != std::string::npos)
        problem = "its message is not one line: " + line;
    } catch (const std::exception& e) {
      problem = std::string("another exception: ") + e.what();
    }
    const size_t taken = end_watch();
    if (taken) problem += " took " + std::to_string(taken) + " bytes for " + std::to_string(bytes);
    return problem;
  }

  static void check_sizes(const TensorFile& file) {
    for (const auto& [name, tensor] : file.tensors) {
      uint64_t n = 1;
      for (const int64_t s : tensor.shape) n *= uint64_t(s);
      if (n != tensor.data.size()) throw std::runtime_error("data is not of its shape: " + name);
    }
  }

  std::string damaged_weights(Mutator& m, std::string file) {
    uint64_t n = 0;
    std::memcpy(&n, file.data(), 8);
    const size_t header_end = 8 + size_t(n);
    switch (m.below(4)) {
      case 0:  // anywhere
        m.damage(file);
        return file;
      case 1: {  // the header's length
        const std::vector<uint64_t> odd = {
            0,     1,        n - 1,      n + 1,        n + 8,           file.size() - 8,
            n * 2, 1u << 30, 1ull << 63, ~uint64_t(0), ~uint64_t(0) - 7};
        n = odd[m.below(odd.size())];
        std::memcpy(file.data(), &n, 8);
        return file;
      }
      default: {  // the header, with its true length
        std::string header = file.substr(8, header_end - 8), data = file.substr(header_end);
        m.one_in(2) ? m.change_number(header) : m.damage(header);
        if (m.one_in(8)) m.damage(data);
        return with_length(header, data);
      }
    }
  }

  std::string weights(uint64_t number, Mutator& m) {
    const std::string file = damaged_weights(m, files_[m.below(files_.size())]);
    return watched(number, file.size(), tensor_factor, [&] {
      TensorFile parsed = parse_safetensors(std::as_bytes(std::span(file)), "mutant");
      check_sizes(parsed);
      weights_info(parsed, "mutant");
      fit_weights(std::move(parsed), "mutant", parameters_, {"head.weight", "head.bias"});
    });
  }

  static TorchArchive torch_archive(const std::string& pickle, bool zip64) {
    return {.members = {{"w/data.pkl", pickle},
                        {"w/byteorder", "little"},
                        {"w/data/0", std::string(24, '\x3c')},
                        {"w/data/1", std::string(16, '\x3c')}},
            .zip64 = zip64};
  }

  // Damages the pickle in an intact archive of torch.save, or the archive itself.
  std::string torch_weights(uint64_t number, Mutator& m) {
    const std::string& pickle = m.one_in(2) ? pickle_ : checkpoint_;
    TorchArchive archive = torch_archive(pickle, m.one_in(4));
    const bool whole = m.one_in(2);
    if (whole)
      m.one_in(2) ? m.change_number(archive.members[0].second)
                  : m.damage(archive.members[0].second);
    std::string file = archive.bytes();
    if (m.one_in(4))
      file = old_torch_file(archive.members[0].second, {"0", "1"},
                            {little_endian(6, 8) + archive.members[2].second,
                             little_endian(8, 8) + archive.members[3].second});
    if (!whole) m.damage(file);
    return watched(number, file.size(), tree_factor, [&] {
      about_foreign_file(std::string_view(file).substr(0, 512), "mutant");
      TensorFile parsed = parse_torch_file(
          std::as_bytes(std::span(file)), "mutant",
          {.key = m.one_in(4) ? "ema" : "", .model = [this] { return parameters_; }});
      check_sizes(parsed);
      fit_weights(std::move(parsed), "mutant", parameters_, {"head.weight", "head.bias"});
    });
  }

  // An index of shards; the files that it may name are those of the checkpoint.
  std::string index(uint64_t number, Mutator& m) {
    std::string text =
        R"({"metadata": {"total_size": 8}, "weight_map": {"a": "weights.safetensors",)"
        R"( "b": "state.safetensors", "c.d": "weights.safetensors"}})";
    m.one_in(3) ? m.change_number(text) : m.damage(text);
    return watched(number, text.size(), tree_factor, [&] {
      read_shards(text, folder_ / "last/index.json", [&](const std::string& path) {
        if (std::filesystem::path(path).parent_path() != folder_ / "last")
          throw std::runtime_error("a shard elsewhere: " + path);
        TensorFile file;
        file.tensors["a"] = file.tensors["c.d"] = {.shape = {1}, .data = {1}};
        return file;
      });
    });
  }

  // Uses a checkpoint's values as a resumed run does.
  void resume(const Checkpoint& c) {
    require_reachable(c, {.batches = loader_.batches_per_epoch(), .accumulate = 1, .epochs = 1000},
                      "mutant");
    loader_.start(c.epoch, c.batch);
    if (loader_.next().position != 2 * c.batch) throw std::runtime_error("another batch");
  }

  // Writes a valid checksum, so that the damage reaches the parser.
  static void sign(std::string& text) {
    const size_t sealed = std::min(text.rfind(",\n \"crc32c\""), text.size());
    char crc[9];
    std::snprintf(crc, sizeof crc, "%08x", crc32c(std::as_bytes(std::span(text).first(sealed))));
    text.replace(sealed, text.size(), ",\n \"crc32c\": \"" + std::string(crc) + "\"\n}\n");
  }

  std::string state(uint64_t number, Mutator& m) {
    std::string text = state_;
    m.one_in(2) ? m.change_number(text) : m.damage(text);
    if (!m.one_in(4)) sign(text);
    return watched(number, text.size(), tree_factor,
                   [&] { resume(parse_checkpoint_state(text, "mutant").progress); });
  }

  // Damages one file of a checkpoint; half the time the state has the damaged file's checksum.
  std::string folder(uint64_t number, Mutator& m) {
    const std::string last = folder_ / "last/";
    std::string weights = weights_, optimizer = optimizer_, state = state_;
    const size_t which = m.below(5);
    if (which == 0) m.damage(state);
    if (which == 1) m.damage(weights);
    if (which == 2) m.damage(optimizer);
    if (which == 3) weights = damaged_weights(m, weights_);
    if (which == 4) optimizer = damaged_weights(m, optimizer_);
    const auto digest = [](const std::string& file) {
      return FileDigest{file.size(), crc32c(std::as_bytes(std::span(file)))};
    };
    const bool vouched = which > 0 && m.one_in(2);
    if (vouched)
      state = write_checkpoint_state(
          Checkpoint{.model = "vit_tiny"},
          {{"weights.safetensors", digest(weights)}, {"state.safetensors", digest(optimizer)}});
    write_text(last + "weights.safetensors", weights);
    write_text(last + "state.safetensors", optimizer);
    write_text(last + "state.json", state);
    const bool whole = weights == weights_ && optimizer == optimizer_;
    const size_t bytes = weights.size() + optimizer.size() + state.size();
    return watched(number, bytes, tree_factor, [&] {
      load_checkpoint(folder_.path());
      if (!whole && !vouched) throw std::runtime_error("a damaged checkpoint was read");
    });
  }

  std::string config(uint64_t number, Mutator& m) {
    std::string text = configs_[m.below(configs_.size())];
    m.one_in(3) ? m.change_number(text) : m.damage(text);
    return watched(number, text.size(), tree_factor, [&] { parse_config(text, "mutant"); });
  }

  const std::vector<ParameterShape> parameters_ = {{"blocks.0.attn.qkv.weight", {6, 2}},
                                                   {"cls_token", {1, 1, 2}},
                                                   {"head.bias", {2}},
                                                   {"head.weight", {2, 2}},
                                                   {"pos_embed", {1, 5, 2}}};
  const TemporaryFolder folder_;
  const Dots dots_;
  Loader loader_{dots_, {.kind = DataKind::cifar, .image_size = 1, .local_batch = 2}, true};
  uint64_t accepted_ = 0;
  std::string weights_, optimizer_, state_;
  std::vector<std::string> files_, configs_;
  const std::vector<TorchTensor> torch_tensors_ = {
      {.name = "cls_token", .elements = 6, .sizes = {1, 1, 2}, .strides = {2, 2, 1}},
      {.name = "head.weight", .elements = 6, .offset = 2, .sizes = {2, 2}, .strides = {1, 2}},
      {.name = "h",
       .type = "HalfStorage",
       .key = "1",
       .elements = 8,
       .sizes = {2, 4},
       .strides = {4, 1}}};
  const std::string pickle_ = state_dict(torch_tensors_);
  // As trainers save it: two dictionaries, and objects by every instruction that makes one.
  const std::string checkpoint_ =
      "\x80\4}(" + pickled("model") + state_dict(torch_tensors_).substr(2, pickle_.size() - 3) +
      "q\1" + pickled("ema") + "}(" + pickled("module.cls_token") + torch_tensors_[0].value() +
      "u" + pickled("again") + "h\1" + pickled("args") + "cargparse\nNamespace\n)\x81}" +
      pickled("lr") + "K\1sb" + pickled("q") + "cx\nq\n(" + torch_tensors_[1].storage() + "tR" +
      pickled("d") +
      "ccollections\ndeque\n)R(K\1K\2e\x8f(K\1\x90(K\2\x91\x86(cx\nOld\nK\1o(K\1ix\nOld\n0cx\nC\n)}"
      "\x92"
      "0\x8a\x10" +
      std::string(16, '\x7f') + "0(K\2" + "1" + "u.";
};

}  // namespace
}  // namespace bv::test::fuzz

int main(int argc, char** argv) {
  using namespace bv::test::fuzz;
  return run_mutants<Fuzzer>("fuzz", argc, argv, mutants, max_seconds);
}
