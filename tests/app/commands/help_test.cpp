// help, the manual page, and shell completion.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "base/text.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

// The models that begin with r and with vit, as completion offers them.
constexpr std::string_view resnets =
    "resnet101|resnet152|resnet18|resnet34|resnet50|resnext50_32x4d|";
constexpr std::string_view vits =
    "vit_base|vit_large|vit_large_distilled|vit_small|vit_tiny|vit_tiny_distilled|";

// Output and errors of a shell command.
std::string printed(const std::string& command) {
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  EXPECT_EQ(pclose(pipe), 0) << command << ": " << text;
  return text;
}
bool there_is(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

TEST(OwnCommand, StandsForTheNameInTexts) {
  EXPECT_EQ(as_called("try ./launcher help"), "try ./launcher help");
  setenv("BAREVISION_COMMAND", "/my tools/launcher", 1);
  EXPECT_EQ(as_called("./launcher x; ../launcher, a/./launcher: (./launcher)"),
            "'/my tools/launcher' x; ../launcher, a/./launcher: ('/my tools/launcher')");
  unsetenv("BAREVISION_COMMAND");
}

using Help = ProgramTest;

TEST_F(Help, ListsModelsAndCommandsOrShowsOne) {
  const Finished all = go("help");
  EXPECT_TRUE(has(all.output, "\nModels:\n  resnet101 ")) << all.output;
  EXPECT_TRUE(has(all.output, "\n  data stats "));
  EXPECT_EQ(go("help data").output, go("data --help").output);
  EXPECT_EQ(go("help data stats").output, go("data stats --help").output);
  EXPECT_EQ(go("help help").output, go("help --help").output);
  EXPECT_EQ(go("help resnet34").output, go("resnet34 --help").output);
  const Finished bare = refuse("data");
  EXPECT_EQ(bare.code, 2);
  EXPECT_EQ(bare.output, "");
  EXPECT_EQ(bare.errors, go("data --help").output);
  const Finished slip = refuse("help evla");
  EXPECT_EQ(slip.code, 2);
  EXPECT_EQ(slip.errors,
            "unknown model or command 'evla' (did you mean eval?); ./launcher help lists all\n");
}

TEST_F(Help, ManualPageIsWellFormed) {
  write_text(in("page.1"), go("help --man").output);
  const std::string page = contents(in("page.1"));
  for (const char* part :
       {".TH BAREVISION 1 \"\" \"barevision " BAREVISION_VERSION "\"\n", "\n.SS data pack\n",
        "\n.B \\-n, \\-\\-nproc N\n", "\n.B \\-\\-bucket\\-bytes N\n", "\n.SH EXIT STATUS\n"})
    EXPECT_TRUE(has(page, part));
  const std::string file = "'" + in("page.1") + "'";
  if (!there_is("groff") && !there_is("mandoc")) GTEST_SKIP() << "no groff or mandoc";
  if (there_is("groff")) {
    EXPECT_EQ(printed("groff -man -Tutf8 -ww " + file + " >/dev/null"), "");
    const std::string text = printed("MANROFFOPT= groff -man -Tascii -P-cbou " + file);
    for (const char* part : {"--layer-decay X\n", "barevision - train image", "--help-all\n"})
      EXPECT_TRUE(has(text, part));
  }
  if (there_is("mandoc")) {
    EXPECT_EQ(printed("mandoc -T lint -W warning " + file + " | grep -v 'missing date' || true"),
              "");
  }
}

// A shell's completions of the last word of a line, sorted.
class Completion : public ProgramTest {
 protected:
  void SetUp() override {
    write_text(in("photos/a.jpg"), "");
    write_text(in("b c.json"), "");
    for (const char* name : {"launcher", "my tools/launcher", "installed/barevision"}) {
      const std::filesystem::path link = in(name);
      std::filesystem::create_directories(link.parent_path());
      std::filesystem::create_symlink(std::filesystem::absolute("build/launcher"), link);
    }
  }
  // The script for the shell, in the file `complete`.
  void make_script(const std::string& shell) const {
    write_text(in("complete"), go("completion " + shell).output);
  }
  void make_installed_script(const std::string& shell) const {
    setenv("BAREVISION_COMMAND", "barevision", 1);
    make_script(shell);
    unsetenv("BAREVISION_COMMAND");
  }
  // The installed program is in PATH.
  std::string in_folder(const std::string& command) const {
    return printed("cd '" + folder_.path() + "' && export PATH=\"$PWD/installed:$PATH\" && " +
                   command);
  }
};

TEST_F(Completion, BashOffersCommandsModelsOptionsAndValues) {
  make_script("bash");
  EXPECT_EQ(go("completion").output, contents(in("complete")));
  const auto completed = [&](const std::string& words) {
    write_text(in("ask"), "compopt() { :; }; source ./complete\nCOMP_WORDS=(" + words +
                              "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                              "_barevision; printf '%s|' \"${COMPREPLY[@]}\"\n");
    return in_folder("bash ask");
  };
  EXPECT_EQ(completed("./launcher vit"), vits);
  EXPECT_EQ(completed("./launcher comp"), "completion|");
  EXPECT_EQ(completed("./launcher data s"), "split|stats|");
  EXPECT_EQ(completed("./launcher train r"), resnets);
  EXPECT_EQ(completed("./launcher vit_tiny --ra"),
            "--ratio|--ra-ops|--ra-magnitude|--random-erase|");
  EXPECT_EQ(completed("./launcher vit_tiny --device ''"), "auto|cpu|simt|cuda|");
  EXPECT_EQ(completed("./launcher vit_tiny --device = c"), "cpu|cuda|");
  EXPECT_EQ(completed("./launcher vit_tiny --device ="), "auto|cpu|simt|cuda|");
  EXPECT_EQ(completed("./launcher train vit_tiny --val p"), "photos|");
  EXPECT_EQ(completed("./launcher train vit_tiny --config b"), "b c.json|");
  EXPECT_EQ(completed("./launcher vit_tiny --lr ''"), "|");
  EXPECT_EQ(completed("./launcher vit_tiny --partition u"), "uniform|");
  EXPECT_EQ(completed("./launcher completion z"), "zsh|");
  EXPECT_EQ(completed("./launcher completion --"), "--help|--help-all|");
  EXPECT_EQ(completed("./launcher train resnet50 r"), "|");
  EXPECT_EQ(completed("./launcher eval photos --split ''"), "train|val|all|");
  EXPECT_EQ(completed("./launcher vit_tiny --config = b"), "b c.json|");
  // Words as bash has them: with their quotes.
  EXPECT_EQ(completed(R"('my\ tools/launcher' comp)"), "completion|");
  EXPECT_EQ(completed(R"("'my tools/launcher'" comp)"), "completion|");
  EXPECT_EQ(completed("'$PWD/launcher' comp"), "completion|");
  EXPECT_EQ(completed("'$(touch ran; echo ./launcher)' comp"), "|");
  EXPECT_FALSE(std::filesystem::exists(in("ran")));
  EXPECT_EQ(completed("./absent/launcher comp"), "|");
  make_installed_script("bash");
  EXPECT_EQ(completed("barevision comp"), "completion|");
}

// Runs zsh on a terminal of its own, sends a Tab, and prints what zsh would insert.
constexpr std::string_view ask_zsh = R"(zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT= RPROMPT=; autoload -Uz compinit && compinit -u -D; source ./complete
compadd() {
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    local hit; local -a hits; builtin compadd -A hits "$@"
    for hit in $hits; do print -r -- "HIT<$hit>"; done
  fi
  builtin compadd "$@"
}
at_end() { print -r -- "END<>"; exit }
comppostfuncs=(at_end)
bindkey "^I" complete-word
print READY""NOW'
zpty -r shell text '*READYNOW*'
text=
zpty -w -n shell "$1"$'\t'
while zpty -r shell part; do text+=$part; [[ $text != *'END<>'* ]] || break; done
print -r -- $text | grep -oE 'HIT<[^>]*>' | sed 's/HIT<\(.*\)>/\1/' | LC_ALL=C sort -u | tr '\n' '|'
)";

TEST_F(Completion, ZshOffersThem) {
  if (!there_is("zsh")) GTEST_SKIP() << "no zsh";
  make_script("zsh");
  write_text(in("ask"), std::string(ask_zsh));
  in_folder("zsh -n complete");
  const auto completed = [&](const std::string& line) {
    return in_folder("timeout 300 zsh -f ask \"" + line + "\"");
  };
  EXPECT_EQ(completed("./launcher vit"), vits);
  EXPECT_EQ(completed("./launcher comp"), "completion|");
  EXPECT_EQ(completed("./launcher data s"), "split|stats|");
  EXPECT_EQ(completed("./launcher train r"), resnets);
  EXPECT_EQ(completed("./launcher -n 2 r"), resnets);
  EXPECT_EQ(completed("./launcher vit_tiny --ra"),
            "--ra-magnitude|--ra-ops|--random-erase|--ratio|");
  EXPECT_EQ(completed("./launcher vit_tiny --device "), "auto|cpu|cuda|simt|");
  EXPECT_EQ(completed("./launcher vit_tiny --device=c"), "cpu|cuda|");
  EXPECT_EQ(completed("./launcher train vit_tiny --val p"), "photos|");
  EXPECT_EQ(completed("./launcher train vit_tiny --config b"), "b\\ c.json|");
  EXPECT_EQ(completed("./launcher train vit_tiny --val=p"), "photos|");
  EXPECT_EQ(completed("my\\\\ tools/launcher comp"), "completion|");
  EXPECT_EQ(completed("./launcher lint vit_tiny --nest"), "--nesterov|");
  EXPECT_EQ(completed("./launcher data split --"),
            "--help|--help-all|--link|--seed|--val-fraction|");
  make_installed_script("zsh");
  EXPECT_EQ(completed("barevision comp"), "completion|");
}

TEST_F(Completion, FishOffersThemWithWhatTheyAre) {
  if (!there_is("fish")) GTEST_SKIP() << "no fish";
  make_script("fish");
  in_folder("fish -N -n complete");
  const auto completed = [&](const std::string& line) {
    std::string text = in_folder("HOME=. fish -N -c \"source complete; complete -C '" + line +
                                 "'\" | LC_ALL=C sort");
    std::ranges::replace(text, '\n', '|');
    return text;
  };
  const auto words = [&](const std::string& line) {
    std::string text;
    for (const std::string& row : split(completed(line), '|'))
      if (!row.empty()) text += row.substr(0, row.find('\t')) + "|";
    return text;
  };
  EXPECT_EQ(words("./launcher vit"), vits);
  EXPECT_EQ(completed("./launcher comp"), "completion\tprint a completion script for a shell|");
  EXPECT_EQ(words("./launcher data s"), "split|stats|");
  EXPECT_EQ(words("./launcher train r"), resnets);
  EXPECT_EQ(words("./launcher -n 2 r"), resnets);
  EXPECT_EQ(words("./launcher train resnet50 r"), "");
  EXPECT_EQ(completed("./launcher vit_tiny --ra-o"), "--ra-ops\toperations of ra and ra-dali|");
  EXPECT_EQ(words("./launcher vit_tiny --device "), "auto|cpu|cuda|simt|");
  EXPECT_EQ(words("./launcher vit_tiny --device=c"), "--device=cpu|--device=cuda|");
  EXPECT_EQ(words("./launcher train vit_tiny --val p"), "photos/|");
  EXPECT_EQ(words("./launcher train vit_tiny --config b"), "b c.json|");
  EXPECT_EQ(words("./launcher train vit_tiny --config=b"), "--config=b c.json|");
  EXPECT_EQ(words("my\\\\ tools/launcher comp"), "completion|");
  EXPECT_EQ(words("./launcher lint vit_tiny --nest"), "--nesterov|");
  EXPECT_EQ(words("./launcher data split --"), "--help|--help-all|--link|--seed|--val-fraction|");
  EXPECT_EQ(words("./launcher eval --nest"), "");
  make_installed_script("fish");
  EXPECT_EQ(words("barevision comp"), "completion|");
}

}  // namespace
}  // namespace bv::test
