// Unicode's canonical equivalence, also compared with Python's.
#include "base/unicode/canonical.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cstdlib>
#include <sstream>

#include "tests/files.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

TEST(Canonical, OneTextInTwoForms) {
  for (const auto& [composed, decomposed] :
       {std::pair{"Bl\u00FCte", "Blu\u0308te"},
        {"caf\u00E9", "cafe\u0301"},
        {"ni\u00F1o", "nin\u0303o"},
        {"\u1EC7", "e\u0323\u0302"},  // Vietnamese: two marks
        {"\u0419\u043E\u0433\u0443\u0440\u0442", "\u0418\u0306\u043E\u0433\u0443\u0440\u0442"},
        {"\uD55C\uAD6D", "\u1112\u1161\u11AB\u1100\u116E\u11A8"},  // Hangul
        {"\u304C", "\u304B\u3099"},                                // Japanese
        {"\u212B", "A\u030A"},                                     // the sign for ångström, Å
        {"\uF900", "\u8C48"},
        {"a\u0323\u0302", "a\u0302\u0323"},  // marks above and below in either order
        {"\U0001109A", "\U00011099\U000110BA"}})
    EXPECT_EQ(canonical(composed), canonical(decomposed)) << composed;
  EXPECT_EQ(canonical("Bl\u00FCte"), "Blu\u0308te");
  EXPECT_NE(canonical("u\u0301\u0308"), canonical("u\u0308\u0301"));  // both above: another letter
  EXPECT_NE(canonical("\uFB01"), canonical("fi"));                    // a ligature looks different
}

TEST(Canonical, OtherBytesStay) {
  for (const std::string text : {"", "cat", "\xFF\xFE", "\xC3", "a\xC3\x28", "\xED\xA0\x80",
                                 "\xF0\x9F\x90", "\xC0\x80", "\xF5\x80\x80\x80", "\U0010FFFF"})
    EXPECT_EQ(canonical(text), text);
  EXPECT_EQ(canonical("\xFF\u00FC\xFF"), "\xFFu\u0308\xFF");
}

TEST(Canonical, LowerCaseAndEscapes) {
  EXPECT_EQ(in_lower_case("Cat 1"), "cat 1");
  if (std::setlocale(LC_CTYPE, "C.UTF-8")) {
    std::setlocale(LC_CTYPE, "C");
    EXPECT_EQ(in_lower_case("\u00D6L \u0416\u0418\u0417\u041D\u042C \u03A9"),
              "\u00F6l \u0436\u0438\u0437\u043D\u044C \u03C9");
  }
  EXPECT_EQ(in_escapes("Blu\u0308te"), "$'Blu\\u0308te'");
  EXPECT_EQ(in_escapes("a'\\\n\xFF\U0001F431"), "$'a\\u0027\\u005C\\u000A\\xFF\\U0001F431'");
}

// Python prints random strings of characters that it knows, and their decompositions.
TEST(Canonical, IsPythons) {
  TemporaryFolder folder;
  write_text(folder / "forms.py", R"(
import random, sys, unicodedata as u
random.seed(1)
newest = tuple(map(int, u.unidata_version.split("."))) > (18, 0, 0)
known = u.ucd_3_2_0 if newest else u
every = [chr(c) for c in range(0xA0, 0x30000) if not 0xD800 <= c < 0xE000]
every = [c for c in every if known.category(c) != "Cn"]
marks = [c for c in every if u.combining(c)]
parted = [c for c in every if u.decomposition(c) or "\uac00" <= c <= "\ud7a3"]
lines = marks + parted + ["".join(random.choice(random.choice((every, marks, marks, parted)))
                         for _ in range(random.randint(2, 8))) for _ in range(20000)]
with open(sys.argv[1], "w", encoding="utf-8", newline="\n") as out:
    for line in lines:
        if line.splitlines() == [line]:
            out.write(line + "\n" + u.normalize("NFD", line) + "\n")
)");
  const std::string command =
      "python3 -I '" + (folder / "forms.py") + "' '" + (folder / "forms") + "'";
  if (std::system((command + " >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "no python3 with unicodedata";
  std::istringstream lines(contents(folder / "forms"));
  int compared = 0;
  for (std::string text, form; std::getline(lines, text) && std::getline(lines, form); ++compared)
    ASSERT_EQ(canonical(text), form) << in_escapes(text);
  EXPECT_GT(compared, 30000);
}

}  // namespace
}  // namespace bv::test
