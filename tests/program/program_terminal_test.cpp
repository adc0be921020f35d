// The output of a run on a terminal, into a pipe, and with --quiet.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "comm/net/socket.h"
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
