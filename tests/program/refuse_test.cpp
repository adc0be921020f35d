// refuse() is the program in all that a user sees, and leaves the test's process as it was.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

class Refuse : public ShallowProgramTest {
 protected:
  Refuse() {
    make_cifar(in("cifar"));
    fs::create_directory(in("empty"));
  }
  Strings listing() const {
    Strings names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      names.push_back(entry.path());
    std::ranges::sort(names);
    return names;
  }
  // Each kind of command; the last two find the mistake after a backend has been opened.
  const Strings mistakes_ = {"",
                             "data",
                             "help evla",
                             "vit_tyni",
                             "train vit_tiny --lr",
                             "--resume nowhere",
                             "recipes flowers",
                             "report nothing",
                             "weights fetch timm/none",
                             "completion tcsh",
                             "data split cifar out",
                             "data list cifar list.txt",
                             "data check nowhere",
                             "eval nothing",
                             "predict nothing cifar",
                             "lint " + on_vit + "--data empty",
                             "preview " + on_vit + "--data empty --out new",
                             on_vit + "--data empty --out new",
                             on_vit + "--data cifar --batch 46",
                             on_vit + "--data cifar --batch 4 --weights cifar --out new/run"};
};

TEST_F(Refuse, SaysWhatTheProgramSays) {
  for (const std::string& words : mistakes_) {
    SCOPED_TRACE("./launcher " + words);
    const Strings before = listing();
    const Finished end = refuse(words), door = run(words);
    EXPECT_EQ(door.code, 2);
    EXPECT_EQ(end.code, door.code);
    EXPECT_EQ(end.output, door.output);
    EXPECT_EQ(end.errors, door.errors);
    EXPECT_EQ(listing(), before);
  }
}

// All that a command could change of this process, as the system shows it.
std::string state() {
  std::ostringstream text;
  text << fs::current_path() << "\n" << contents("/proc/thread-self/comm");
  Strings variables;
  for (char** entry = environ; *entry; ++entry) variables.emplace_back(*entry);
  std::ranges::sort(variables);
  for (const std::string& variable : variables) text << variable << "\n";
  std::istringstream status(contents("/proc/thread-self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Sig") || line.starts_with("Cpus_allowed:")) text << line << "\n";
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    text << fs::read_symlink("/proc/self/fd/" + std::to_string(stream)) << "\n";
  return text.str();
}

TEST_F(Refuse, LeavesTheProcessAsItWas) {
  for (const std::string& words : mistakes_) {
    const std::string before = state();
    refuse(words, {{"BAREVISION_CACHE", in("cache")}});
    EXPECT_EQ(state(), before) << words;
  }
}

TEST_F(Refuse, AMistakeThatIsAcceptedTrainsOneStep) {
  const std::string words = on_vit + "--data cifar --batch 22 --eval-every 0 --out ";
  const Finished end = refuse("train " + words + "a");
  EXPECT_EQ(end.code, 0) << end.errors;
  EXPECT_EQ(end.errors, "");
  EXPECT_TRUE(end.output.starts_with("vit_tiny: ")) << end.output;
  EXPECT_EQ(losses(in("a")).size(), 1u);
  EXPECT_EQ(refuse(words + "b --steps 100000").code, 0);
  EXPECT_EQ(losses(in("b")).size(), 1u);
}

}  // namespace
}  // namespace bv::test
