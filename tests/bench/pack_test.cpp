// bench/pack: a package holds every file of the project that its tests read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/files.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

// The project's files and folders that a test's source names, and those without which it is
// skipped.
struct Named {
  std::set<std::string> read, guards;
};

Named named_in(const std::string& source) {
  static const std::regex name("\"([a-z_]+/[A-Za-z0-9_./-]*|models|README.md|Makefile)\""),
      guard("exists\\(\"([^\"]*)\"\\)\\) GTEST_SKIP");
  Named named;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#include")) continue;
    std::smatch match;
    if (std::regex_search(line, match, guard)) named.guards.insert(match[1]);
    for (auto at = line.cbegin(); std::regex_search(at, line.cend(), match, name);
         at = match.suffix().first)
      if (const std::string path = match[1];
          fs::exists(path) && !path.starts_with("build/") && !path.starts_with("runs/"))
        named.read.insert(path);
  }
  return named;
}

TEST(Pack, HoldsWhatItsTestsRead) {
  if (!fs::exists("bench/pack")) GTEST_SKIP() << "not in the project's folder";
  if (std::system("command -v objdump xz >/dev/null") != 0) GTEST_SKIP() << "no objdump or xz";
  const TemporaryFolder folder;
  const fs::path packed = folder / "barevision", unpacked = folder / "elsewhere";
  fs::create_directories(packed / "build");
  for (const char* program : {"tests", "bench", "launcher"})
    fs::copy_file("/bin/true", packed / "build" / program);
  // The programs hold the same kernels, which the file holds once.
  std::mt19937 random;
  std::string kernels(4'000'000, ' ');
  for (char& byte : kernels) byte = char(random());
  for (const char* program : {"tests", "bench", "launcher"})
    std::ofstream(packed / "build" / program, std::ios::app) << kernels;
  write_text(packed / "tests/golden/older.json", "of an older package\n");
  const std::string file = folder / "dist.tar.xz", log = folder / "log";
  ASSERT_EQ(std::system(("bench/pack " + packed.string() + " " + file + " 0 >" + log).c_str()), 0)
      << contents(log);
  EXPECT_LT(fs::file_size(file), 2 * kernels.size());
  fs::create_directory(unpacked);
  ASSERT_EQ(std::system(("tar -xf " + file + " -C " + unpacked.string()).c_str()), 0);

  const fs::path package = unpacked / "barevision";
  const auto is_packed = [&](const std::string& name) { return fs::exists(package / name); };
  std::set<std::string> read;
  for (const auto& entry : fs::recursive_directory_iterator("tests")) {
    const std::string kind = entry.path().extension();
    if (kind != ".cpp" && kind != ".h") continue;
    const Named named = named_in(contents(entry.path()));
    if (!std::ranges::all_of(named.guards, is_packed)) continue;  // it is skipped in the package
    for (const std::string& name : named.read) {
      EXPECT_TRUE(is_packed(name)) << entry.path() << " reads " << name;
      read.insert(name);
    }
  }
  for (const char* known :
       {"docs/options.md", "models", "tests/app/hooks/early_stop.h", "bench/check"})
    EXPECT_TRUE(read.contains(known)) << known;
  for (const auto& entry : fs::recursive_directory_iterator("tests/golden")) {
    if (entry.path().string().find("__pycache__") != std::string::npos) continue;
    EXPECT_TRUE(is_packed(entry.path())) << entry.path();
  }
  EXPECT_FALSE(is_packed("tests/golden/older.json"));
  EXPECT_FALSE(is_packed("bench/check/__pycache__"));
}

}  // namespace
}  // namespace bv::test
