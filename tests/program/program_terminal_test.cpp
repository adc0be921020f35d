// The output of a run on a terminal, into a pipe, and with --quiet.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "comm/net/socket.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string words = on_vit + "--data synthetic --batch 4 --epochs 2 --steps 12 --out run ";

struct Window {
  std::string kind = "xterm";
  unsigned short columns = 80;
  bool narrowed = false;  // narrowed to 40 columns after the first bar
  std::string last = "weights: ";
};

class ProgramTerminal : public ProgramTest {
 protected:
  // Everything sent to the terminal, until a line with `last` in it ends.
  std::string on_terminal(const std::string& line, const Window& window = {}) {
    const Socket screen(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (grantpt(screen.fd()) != 0 || unlockpt(screen.fd()) != 0) throw std::runtime_error("pty");
    const Socket terminal(open(ptsname(screen.fd()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    winsize size{.ws_row = 25, .ws_col = window.columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(terminal.fd(), TIOCSWINSZ, &size);
    Program program(folder_.path(), line,
                    {.environment = {{"TERM", window.kind}, {"NO_COLOR", "1"}, {"COLUMNS", "90"}},
                     .output = terminal.fd()});
    std::string text;
    char part[4096];
    const auto read_all = [&](int wait) {
      for (pollfd item{screen.fd(), POLLIN, 0}; poll(&item, 1, wait) > 0;) {
        const ssize_t n = read(screen.fd(), part, sizeof part);
        if (n <= 0) break;
        text.append(part, size_t(n));
        if (!window.narrowed || size.ws_col == 40 || !has(text, "step 1/")) continue;
        size.ws_col = 40;
        ioctl(terminal.fd(), TIOCSWINSZ, &size);
      }
    };
    // The last line is printed before the program ends.
    wait_until([&] {
      read_all(100);
      return program.has_ended() || (has(text, window.last) && text.ends_with("\n"));
    });
    const Finished end = program.wait();
    read_all(0);
    EXPECT_EQ(end.code, 0) << end.errors;
    EXPECT_EQ(end.errors, "");
    return text;
  }
  void TearDown() override { std::filesystem::remove_all(in("run")); }
};

TEST_F(ProgramTerminal, ABarStandsInForTheSteps) {
  const std::string text = on_terminal(words);
  EXPECT_TRUE(has(text, "\repoch 1/2  step 1/12  [")) << text;
  for (const char* part : {"  loss ", "/s  ", " left\x1b[K", "step 12/12"})
    EXPECT_TRUE(has(text, part)) << part;
  EXPECT_FALSE(has(text, "grad norm"));  // appears only in a step's line
  EXPECT_TRUE(has(text, "\x1b[Kepoch  1  train ")) << text;
  // The only escape sequence is the one that clears the rest of a line.
  for (size_t at = 0; (at = text.find('\x1b', at)) != text.npos; ++at)
    EXPECT_EQ(text.substr(at, 3), "\x1b[K");
}

// The terminal has wrapped the bar; its first row is cleared, too.
TEST_F(ProgramTerminal, ANarrowerWindowKeepsNoBar) {
  const std::string text = on_terminal(words, {.narrowed = true});
  EXPECT_TRUE(has(text, "\r\x1b[1A\x1b[J")) << text;
  EXPECT_EQ(text.find("\x1b[1A"), text.rfind("\x1b[1A"));  // later bars fit
}

TEST_F(ProgramTerminal, NoLineIsWrapped) {
  for (std::string line : split(on_terminal(words), '\n')) {
    if (const size_t bar = line.rfind("\x1b[K"); bar != line.npos) line = line.substr(bar + 3);
    if (line.ends_with('\r')) line.pop_back();
    const bool of_paths = line.starts_with("train longer") || line.starts_with("weights: ");
    EXPECT_TRUE(of_paths || line.size() <= 79) << line;
  }
}

// As many classes as fit, unless their number is given; into a pipe, five.
TEST_F(ProgramTerminal, PredictionsFitTheLine) {
  make_class_folders(in("photos"), 7, 3);
  go(on_vit + "--data photos --batch 4 --steps 1 --out run");
  const std::string line = "predict run photos/class0 --device cpu";
  const auto classes_of = [](const std::string& text) {
    std::vector<size_t> counts;
    for (const std::string& row : split(text, '\n'))
      if (row.starts_with("photos/")) counts.push_back(split(row, '.').size() - 2);  // "0.2345"
    return counts;
  };
  const std::string narrow = on_terminal(line, {.columns = 60});
  for (const std::string& row : split(narrow, '\n')) EXPECT_LE(row.size(), 61) << row;
  EXPECT_EQ(classes_of(narrow), (std::vector<size_t>{2, 2, 2})) << narrow;
  EXPECT_EQ(classes_of(on_terminal(line + " --topk 6", {.columns = 60})),
            (std::vector<size_t>{6, 6, 6}));
  EXPECT_EQ(classes_of(go(line).output), (std::vector<size_t>{5, 5, 5}));
}

// Errors go to the same terminal.
TEST_F(ProgramTerminal, ALineOfASkippedImageStandsWhereTheBarWas) {
  namespace fs = std::filesystem;
  make_class_folders(in("photos"), 2, 30);
  fs::resize_file(in("photos/class0/0.ppm"), uint64_t{65} << 20);  // too large to decode all first
  for (int i = 10; i < 20; ++i)  // only decoding finds them: their headers are those of PNGs
    write_text(in("photos/class1/a" + std::to_string(i) + ".png"),
               std::string("\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR\0\0\0\x28\0\0\0\x24", 24));
  const Socket screen(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(grantpt(screen.fd()) == 0 && unlockpt(screen.fd()) == 0);
  const Socket terminal(open(ptsname(screen.fd()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  Child child([&] {
    if (!enter(folder_.path(), 1, {{"TERM", "xterm"}})) return 98;
    dup2(terminal.fd(), STDOUT_FILENO), dup2(terminal.fd(), STDERR_FILENO);
    std::vector<std::string> list = arguments_of(
        on_vit +
        "--data photos --batch 4 --epochs 2 --val-fraction 0 --on-bad-image skip --out run");
    std::vector<char*> argv;
    for (std::string& word : list) argv.push_back(word.data());
    argv.push_back(nullptr);
    return execv((fs::path(own_path()).parent_path() / "launcher").c_str(), argv.data());
  });
  std::string text;
  wait_until([&] {
    char part[4096];
    for (pollfd item{screen.fd(), POLLIN, 0}; poll(&item, 1, 100) > 0;)
      if (const ssize_t n = read(screen.fd(), part, sizeof part); n > 0)
        text.append(part, size_t(n));
      else
        break;
    return child.has_ended();
  });
  EXPECT_EQ(child.wait().code, 0);
  int lines = 0;
  for (size_t at = 0; (at = text.find("skipped bad image ", at)) != text.npos; ++at, ++lines)
    EXPECT_TRUE(text.substr(0, at).ends_with("\r\x1b[K"))
        << text.substr(at < 90 ? 0 : at - 90, 120);
  EXPECT_GT(lines, 0) << text;
}

TEST_F(ProgramTerminal, LinesWhereNothingCanBeRedrawn) {
  const std::string dumb = on_terminal(words, {.kind = "dumb"});
  EXPECT_TRUE(has(dumb, "epoch 1  step 12/12  loss ")) << dumb;
  EXPECT_FALSE(has(dumb, "\x1b"));
  EXPECT_FALSE(has(dumb, "\repoch"));
  TearDown();
  const std::string piped = go(words).output;
  EXPECT_TRUE(has(piped, "epoch 1  step 12/12  loss "));
  for (const char c : {'\r', '\x1b'}) EXPECT_EQ(piped.find(c), piped.npos);
}

TEST_F(ProgramTerminal, QuietIsTheLastLineAlone) {
  const std::string last = "weights: run/last/weights.safetensors\n";
  EXPECT_EQ(go(words + "--quiet").output, last);
  EXPECT_EQ(last_metric(in("run"), "step", "step"), "12");
  TearDown();
  EXPECT_EQ(on_terminal(words + "--quiet"), replaced(last, "\n", "\r\n"));
  TearDown();
  const std::string warned = go(words + "--quiet --warmup-epochs 5").output;
  EXPECT_TRUE(warned.starts_with("warning: the warm-up lasts longer than the run")) << warned;
  EXPECT_TRUE(warned.ends_with(last));
  EXPECT_EQ(std::ranges::count(warned, '\n'), 2) << warned;
  EXPECT_FALSE(has(contents(in("run/config.json")), "quiet"));  // applies to one start only
}

TEST_F(ProgramTerminal, HelpIsAsWideAsTheTerminal) {
  const auto widest = [&](unsigned short columns) {
    size_t most = 0;
    for (const std::string& row :
         split(on_terminal("--help", {.columns = columns, .last = "docs/options.md"}), '\n'))
      most = std::max(most, row.size() - row.ends_with('\r'));
    return most;
  };
  EXPECT_LE(widest(61), 61u);
  EXPECT_GT(widest(61), 55u);
  EXPECT_LE(widest(200), 100u);
  EXPECT_GT(widest(200), 95u);
}

}  // namespace
}  // namespace bv::test
