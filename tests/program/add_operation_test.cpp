// Compares "Add an operation" in docs/kernels.md with the files that the tree's operations touch:
// each operation must be in each listed file, and no other file may mention all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/files.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i)
    found.push_back((*i)[1]);
  return found;
}

std::string without_comments(const std::string& code) {
  std::string text;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) text += line.substr(0, line.find("//")) + '\n';
  return text;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto inside = [&](size_t at) {
    return at < text.size() && (isalnum(text[at]) || text[at] == '_');
  };
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; ++at)
    if (!inside(at - 1) && !inside(at + word.size())) return true;
  return false;
}

class AddOperation : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
    const std::string page = contents("docs/kernels.md"), title = "\n## Add an operation\n";
    const size_t begin = page.find(title);
    ASSERT_NE(begin, page.npos);
    section_ = page.substr(begin, page.find("\n## ", begin + title.size()) - begin);
    for (const std::string& path : all_of(section_, "`([a-z]+/[A-Za-z_/]+\\.[a-z]+)`"))
      (path.find("NAME") == path.npos ? fixed_ : named_).insert(path);
  }

  // Maps NAME of NAME.cpp, NAME.cu ... to the files' operations: {"loss", {"Metrics", ...}}.
  static std::map<std::string, std::vector<std::string>> operations() {
    const std::string table = contents("kernels/kernels.h"), word = "KernelTable<";
    const size_t begin = table.rfind(word) + word.size();
    std::map<std::string, std::vector<std::string>> by_file;
    for (const std::string& op :
         all_of(table.substr(begin, table.find(">;", begin) - begin), "(\\w+)"))
      for (const auto& entry : std::filesystem::directory_iterator("kernels/layers")) {
        const std::string name = entry.path().stem();
        if (entry.path().extension() == ".cu" &&
            std::filesystem::exists("models/graph/" + name + ".cpp") &&
            has_word(contents(entry.path()), op))
          by_file[name].push_back(op);
      }
    return by_file;
  }

  // The names of the operation and of the pairs it belongs to: LinearBackwardInput, LinearBackward.
  static std::vector<std::string> names_of(const std::string& op) {
    std::vector<std::string> names{op};
    const std::string table = contents("kernels/layers.h");
    const std::regex pair("using (\\w+) = BothGradients<(\\w+), (\\w+)>;");
    for (std::sregex_iterator i(table.begin(), table.end(), pair), end; i != end; ++i)
      if ((*i)[2] == op || (*i)[3] == op) names.push_back((*i)[1]);
    return names;
  }

  std::string section_;
  std::set<std::string> fixed_, named_;  // paths in the section without and with NAME
};

TEST_F(AddOperation, TheFilesAreThoseThatEveryOperationIsIn) {
  const auto operations_by_file = operations();
  ASSERT_TRUE(operations_by_file.contains("layernorm") && operations_by_file.contains("pool"));
  std::map<std::string, std::string> sources;
  for (const char* room :
       {"base", "kernels", "simt", "comm", "models", "data", "engine", "app", "tests", "bench"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(room))
      if (const std::string kind = entry.path().extension();
          kind == ".h" || kind == ".cpp" || kind == ".cu" || kind == ".cuh")
        sources[entry.path()] = without_comments(contents(entry.path()));
  std::set<std::string> everywhere;  // files that mention all operations
  bool first = true;
  for (const auto& [name, ops] : operations_by_file)
    for (const std::string& op : ops) {
      std::set<std::string> in;
      const std::vector<std::string> names = names_of(op);
      for (const auto& [path, text] : sources)
        if (std::ranges::any_of(names, [&](const auto& word) { return has_word(text, word); }))
          in.insert(std::regex_replace(path == "kernels/input.h" ? "kernels/layers.h" : path,
                                       std::regex("/" + name + "(?=[_.])"), "/NAME"));
      for (const std::string& path : named_)
        EXPECT_TRUE(in.contains(path))
            << "docs/kernels.md has " << path << ", but " << op << " isn't there";
      std::set<std::string> common;
      std::set_intersection(in.begin(), in.end(), everywhere.begin(), everywhere.end(),
                            std::inserter(common, common.end()));
      everywhere = first ? in : common;
      first = false;
    }
  for (const std::string& path : everywhere)
    EXPECT_TRUE(named_.contains(path) || fixed_.contains(path))
        << "all operations are in " << path << ", which docs/kernels.md doesn't name";
  for (const char* path : {"kernels/kernels.h", "kernels/layers.h", "kernels/table/operations.cpp"})
    EXPECT_TRUE(everywhere.contains(path) && fixed_.contains(path)) << path;
}

TEST_F(AddOperation, WhatItNamesExists) {
  for (const std::string& path : fixed_) EXPECT_TRUE(std::filesystem::exists(path)) << path;
  std::string makefiles = contents("Makefile");
  for (const auto& entry : std::filesystem::directory_iterator("mk"))
    makefiles += contents(entry.path());
  const auto commands = all_of(section_, "`make ([a-z-]+)");
  EXPECT_GE(commands.size(), 3u);
  for (const std::string& target : commands)
    EXPECT_NE(makefiles.find("\n" + target + ":"), makefiles.npos) << "make " << target;
  const auto holds = [](const std::string& path, const std::string& part) {
    return contents(path).find(part) != std::string::npos;
  };
  EXPECT_TRUE(holds("mk/tests.mk", "$(FILTER)") && holds("mk/bench.mk", "$(if $(UPDATE)"));
  EXPECT_TRUE(holds("kernels/table/operations.cpp", "::describe("));
  EXPECT_TRUE(holds("kernels/table/recording.cpp", " usual_values("));
  EXPECT_TRUE(holds("models/graph/graph.h", "struct Context {"));
}

TEST_F(AddOperation, AMissingRowIsNamedWhenItsFileIsCompiled) {
  EXPECT_NE(contents("mk/compile.mk").find("@mk/check_rows $<"), std::string::npos);
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "kernels/layers");
  const std::string file = folder / "kernels/layers/scale.";
  const std::string plain = "void PlainKernels::run(const Scale& op, cudaStream_t stream) {\n";
  const std::string cuda = "void CudaKernels::run(const Scale& op, cudaStream_t stream) {\n";
  const std::string cpu = "void CpuKernels::run(const Scale& op) {\n";
  const auto said = [&](const std::string& in_cu, const std::string& in_cpp) {
    write_text(file + "cu", in_cu), write_text(file + "cpp", in_cpp);
    const Ended end = shell("mk/check_rows " + file + "cu");
    EXPECT_EQ(end.code, end.output.empty() ? 0 : 2);
    return end.output;
  };
  const std::string missing =
      "::run(const Scale&) is missing: each table needs a row (docs/kernels.md, add an "
      "operation)\n";
  EXPECT_EQ(said(plain + cuda, cpu), "");
  EXPECT_EQ(said(plain, cpu), file + "cu: CudaKernels" + missing);
  EXPECT_EQ(said(cuda, cpu), file + "cu: PlainKernels" + missing);
  EXPECT_EQ(said(plain + cuda, ""), file + "cpp: CpuKernels" + missing);
}

}  // namespace
}  // namespace bv::test
