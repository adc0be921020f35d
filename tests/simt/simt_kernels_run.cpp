// After a run of all tests: every __global__ function in kernels/ has run on the stand-in. Each
// process adds the kernels that it ran to the file that $BAREVISION_KERNELS_RUN names; tests/run
// then starts one more, whose test compares the file with the sources in $BAREVISION_KERNELS. If
// $BAREVISION_LAUNCHES names a file, a line "kernel;threads;bytes of shared memory" per kernel is
// written there (make resources).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "simt/device/control.h"
#include "tests/temporary_folder.h"

namespace bv::simt_gpu {
namespace {

using Places = std::map<std::string, std::string>;  // a kernel's name, its file's name

// The index after the parenthesis that closes the one at `i`.
size_t after_parentheses(const std::string& code, size_t i) {
  int depth = 0;
  do depth += (code[i] == '(') - (code[i] == ')');
  while (++i < code.size() && depth > 0);
  return i;
}

// The name before the first parenthesis after __global__ that is not __launch_bounds__'s.
void find_kernels(const std::string& source, const std::string& file, Places& kernels) {
  static const std::regex comment("//[^\n]*"), call(R"((\w+)\s*\()");
  const std::string code = std::regex_replace(source, comment, ""), word = "__global__";
  for (size_t i = 0; (i = code.find(word, i)) != std::string::npos;) {
    std::smatch match;
    std::string name;
    do {
      if (!std::regex_search(code.begin() + long(i), code.end(), match, call)) return;
      name = match[1];
      i = after_parentheses(code, i + size_t(match.position() + match.length()) - 1);
    } while (name == "__launch_bounds__");
    kernels[name] = file;
  }
}

Places kernels_of(const std::filesystem::path& folder) {
  Places kernels;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".cu" && extension != ".cuh") continue;
    std::stringstream source;
    source << std::ifstream(entry.path()).rdbuf();
    find_kernels(source.str(), entry.path().filename(), kernels);
  }
  return kernels;
}

// "{anonymous}::layernorm_forward<float, 8>" is layernorm_forward.
std::string plain_name(const std::string& name) {
  const std::string before = name.substr(0, name.find('<'));
  return before.substr(before.find_last_of(": ") + 1);
}

// A sentence that names the kernels that did not run; "" if all did.
std::string missing(const Places& kernels, const std::set<std::string>& run) {
  std::set<std::string> plain;
  for (const std::string& name : run) plain.insert(plain_name(name));
  std::string list;
  for (const auto& [name, file] : kernels)
    if (!plain.contains(name)) list += (list.empty() ? "" : ", ") + name + " (" + file + ")";
  return list.empty() ? "" : "no test runs these kernels on simt: " + list;
}

void write_launches(const std::string& file) {
  std::ofstream out(file);
  for (const auto& [name, block] : simt::largest_blocks_run())
    out << std::regex_replace(name, std::regex(R"((\w+|\{anonymous\}|\(anonymous namespace\))::)"),
                              "")
        << ';' << block.threads << ';' << block.shared_bytes << '\n';
  EXPECT_TRUE(out.flush()) << "can't write " << file;
}

// One write at the file's end, so that the lines of several processes don't mix.
void add_kernels(const std::string& file, const std::set<std::string>& run) {
  std::string lines;
  for (const std::string& name : run) lines += name + '\n';
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  EXPECT_TRUE(fd >= 0 && write(fd, lines.data(), lines.size()) == ssize_t(lines.size()))
      << "can't add to " << file;
  close(fd);
}

std::set<std::string> kernels_added(const std::string& file) {
  std::set<std::string> all;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) all.insert(line);
  return all;
}

class WhatHasRun : public testing::Environment {
  void TearDown() override {
    if (const char* file = std::getenv("BAREVISION_LAUNCHES")) write_launches(file);
    if (const char* file = std::getenv("BAREVISION_KERNELS_RUN"))
      add_kernels(file, simt::kernels_run());
  }
};

[[maybe_unused]] testing::Environment* const added =
    testing::AddGlobalTestEnvironment(new WhatHasRun);

TEST(SimtKernelsRun, AreAllOfThemInAWholeRun) {
  const char *folder = std::getenv("BAREVISION_KERNELS"),
             *file = std::getenv("BAREVISION_KERNELS_RUN");
  if (!folder || !file) GTEST_SKIP() << "tests/run compares the kernels after a whole run";
  const Places kernels = kernels_of(folder);
  EXPECT_FALSE(kernels.empty()) << folder << " has no kernels";
  const std::string sentence = missing(kernels, kernels_added(file));
  EXPECT_TRUE(sentence.empty()) << sentence;
}

TEST(SimtKernelsRun, FindsKernelsInSources) {
  Places kernels;
  find_kernels(
      "// __global__ void not_this(int);\n"
      "__global__ void plain(int x) {}\n"
      "template <class T>\n__global__ void __launch_bounds__(128, 4)\n    bounded(T* out);\n"
      "__global__ __launch_bounds__(threads) void before(int x) {}\n"
      "__global__ void __launch_bounds__(warps * 32, least(f(1), g(2, h(3)))) nested(int) {}\n",
      "a.cu", kernels);
  EXPECT_EQ(
      kernels,
      (Places{{"plain", "a.cu"}, {"bounded", "a.cu"}, {"before", "a.cu"}, {"nested", "a.cu"}}));
}

TEST(SimtKernelsRun, AreThoseOfAllProcesses) {
  const test::TemporaryFolder folder;
  add_kernels(folder / "run", {"a<float, 8>", "b"});
  add_kernels(folder / "run", {});
  add_kernels(folder / "run", {"c", "b"});
  EXPECT_EQ(kernels_added(folder / "run"), (std::set<std::string>{"a<float, 8>", "b", "c"}));
}

TEST(SimtKernelsRun, AMissingOneIsNamed) {
  const Places kernels{{"forward", "a.cu"}, {"backward", "a.cu"}};
  EXPECT_EQ(missing(kernels, {"bv::simt_gpu::{anonymous}::forward<float, 8>", "backward"}), "");
  EXPECT_EQ(missing(kernels, {"forward<float, 8>", "forward<bv::half, 8>"}),
            "no test runs these kernels on simt: backward (a.cu)");
}

}  // namespace
}  // namespace bv::simt_gpu
