// tests/check_includes, check_sources, check_docs and check_quotes on small trees with one fault
// each.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

class SourceChecks : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("tests/check_includes")) GTEST_SKIP() << "not in the checkout";
    if (std::system("command -v python3 >/dev/null")) GTEST_SKIP() << "no python3";
    write("kernels/kernels.h", "namespace bv {\nstruct Linear {};\n}\n");
    write("kernels/cuda/pack.cuh", "#include \"kernels/kernels.h\"\n");
    write("engine/model/plan.h", "#include \"kernels/kernels.h\"\n");
    write("engine/training/trainer.cpp", "#include \"engine/model/plan.h\"\n");
  }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / path).parent_path());
    write_text(folder_ / path, text);
  }
  // The check's output for the tree; empty if it finds nothing.
  std::string said_by(const std::string& check) const {
    const std::string call = "tests/" + check + " " + folder_.path() + " >" + folder_ / "said";
    const int code = std::system(call.c_str()) / 256;
    const std::string said = contents(folder_ / "said");
    EXPECT_EQ(code, said.empty() || said.starts_with("warning: ") ? 0 : 1) << said;
    return said;
  }
  TemporaryFolder folder_;
};

TEST_F(SourceChecks, NothingIsWrong) {
  EXPECT_EQ(said_by("check_includes"), "");
  EXPECT_EQ(said_by("check_sources"), "");
}

TEST_F(SourceChecks, AnIncludeUpward) {
  write("kernels/cuda/backend.cpp", "#include <vector>\n#include \"engine/model/plan.h\"\n");
  const std::string said = said_by("check_includes");
  EXPECT_TRUE(has(said,
                  "kernels/cuda/backend.cpp:2: includes engine/model/plan.h: engine/model "
                  "is not in a lower layer than kernels/cuda"))
      << said;
}

TEST_F(SourceChecks, ACircleOfRooms) {
  write("engine/model/plan.cpp", "#include \"engine/training/trainer.h\"\n");
  EXPECT_TRUE(has(said_by("check_includes"), "engine/model/plan.cpp:1: includes"));
}

TEST_F(SourceChecks, ACircleInTests) {
  write("tests/comm/workers.cpp", "#include \"tests/models/small.h\"\n");
  write("tests/models/small.h", "#include \"tests/comm/processes.h\"\n");
  const std::string said = said_by("check_includes");
  EXPECT_TRUE(has(said,
                  "tests/comm/workers.cpp:1: includes tests/models/small.h: tests/models is not in "
                  "a lower layer than tests/comm\n"))
      << said;
}

TEST_F(SourceChecks, ACircleOfFiles) {
  write("engine/model/plan.cpp", "#include \"engine/model/arena.h\"\n");
  write("engine/model/arena.h", "#include \"engine/model/slots.h\"\n");
  EXPECT_EQ(said_by("check_includes"), "");
  write("engine/model/slots.h", "#include \"engine/model/plan.h\"\n");
  EXPECT_EQ(said_by("check_includes"),
            "files include each other in a circle: engine/model/arena engine/model/plan "
            "engine/model/slots; cut it, or list it in tests/check_includes with a reason\n");
}

TEST_F(SourceChecks, AListedCircleThatIsGone) {
  write("base/error.h", "");
  write("base/machine_error.h", "#include \"base/error.h\"\n");
  EXPECT_EQ(said_by("check_includes"),
            "no such circle of files: base/error base/machine_error; take it off the list in "
            "tests/check_includes\n");
  write("base/error.cpp", "#include \"base/machine_error.h\"\n");
  EXPECT_EQ(said_by("check_includes"), "");
}

TEST_F(SourceChecks, FloorsBesideEachOther) {
  write("comm/local/mailboxes.cpp", "#include \"data/image/image.h\"\n");
  EXPECT_TRUE(has(said_by("check_includes"), "comm and data are independent of each other"));
}

TEST_F(SourceChecks, AKernelsInsides) {
  write("engine/model/model_chunk.cpp", "#include \"kernels/cuda/pack.cuh\"\n");
  EXPECT_TRUE(has(said_by("check_includes"), "kernels/cuda is internal to kernels"));
}

TEST_F(SourceChecks, ARoomThatIsNotInTheList) {
  write("engine/cellar/wine.cpp", "");
  EXPECT_TRUE(has(said_by("check_includes"), "engine/cellar isn't in tests/check_includes' list"));
}

TEST_F(SourceChecks, ACrowdedRoom) {
  for (int i = 0; i < 26; ++i) write("engine/run/part" + std::to_string(i) + ".h", "");
  EXPECT_EQ(said_by("check_includes"),
            "warning: engine/run: 26 files, more than 25 in one folder\n");
}

TEST_F(SourceChecks, ATypeThatIsDefinedTwice) {
  write("engine/model/model_chunk.h",
        "namespace bv {\n\nclass Linear final : public Node {\n};\n}\n");
  EXPECT_TRUE(has(said_by("check_sources"), "bv::Linear is also in engine/model/model_chunk.h:3"));
}

TEST_F(SourceChecks, TypesOfOtherNamespacesAndScopes) {
  write("engine/model/model_chunk.h",
        "namespace bv {\nnamespace {\nstruct Linear {};\n}\nstruct Stage {\n  struct Linear {};\n"
        "};\n}\nnamespace bv::page {\nstruct Linear {};\n}\n");
  EXPECT_EQ(said_by("check_sources"), "");
}

TEST_F(SourceChecks, ALongLine) {
  write("engine/model/model_chunk.h", "// " + std::string(98, 'x') + "\n");
  EXPECT_TRUE(has(said_by("check_sources"), "engine/model/model_chunk.h:1: 101 columns"));
}

TEST_F(SourceChecks, AKernelThatDoesNotWaitForTheOneAhead) {
  write("kernels/layers/pool.cu",
        "__global__ void waits(float* x) {\n  await_kernel_ahead();\n  *x = 1;\n}\n"
        "__global__ void __launch_bounds__(256)\n    hasty(float* x) {\n  *x = 1;\n}\n");
  EXPECT_EQ(said_by("check_sources"),
            "kernels/layers/pool.cu:5: hasty must begin with await_kernel_ahead()\n");
}

TEST_F(SourceChecks, AWaitInWhichNoQueueProceeds) {
  const std::string wait = "void f() {\n  usleep(10);  // not poll(\n  peers.poll(lock);\n}\n";
  write("comm/net/mesh.cpp", wait);
  write("base/wait.cpp", wait);
  write("app/main.cpp", wait);
  EXPECT_EQ(said_by("check_sources"),
            "comm/net/mesh.cpp:2: base/wait.h has the waits, in which queues proceed\n");
}

class DocChecks : public SourceChecks {
 protected:
  void SetUp() override {
    SourceChecks::SetUp();
    if (IsSkipped()) return;
    write("README.md", "# A\n\n`kernels/` `engine/`: see [b](docs/b.md#two-words).\n");
    write("docs/b.md",
          "# B\n\n## Two `words`\n\n```sh\n./launcher vit_tiny \\\n  -n 2  # two\n```\n");
    write("tests/doc_commands", "# a comment\nnot | ./launcher vit_tiny -n 2 | a reason\n");
  }
  void expect(const std::string& line) const { EXPECT_EQ(said_by("check_docs"), line + "\n"); }
};

TEST_F(DocChecks, NothingIsWrong) { EXPECT_EQ(said_by("check_docs"), ""); }

TEST_F(DocChecks, ALinkToNothing) {
  write("docs/c.md", "[b](b.md)\n\n![picture](none.png)\n");
  expect("docs/c.md:3: none.png: there is no docs/none.png");
}

TEST_F(DocChecks, AnAnchorThatNoHeadingHas) {
  write("docs/c.md", "[b](b.md#two)\n");
  expect("docs/c.md:1: b.md#two: docs/b.md has no heading #two");
}

TEST_F(DocChecks, ACommandThatNobodyTries) {
  write("docs/c.md", "```console\n$ ./launcher vit_large\nan answer\n```\n");
  expect("docs/c.md:2: ./launcher vit_large: tests/doc_commands doesn't say how this is tried");
}

TEST_F(DocChecks, AFileOfACommandThatIsNotThere) {
  write("docs/c.md", "```sh\nbench/nothing\n```\n");
  write("tests/doc_commands",
        "not | ./launcher vit_tiny -n 2 | a reason\nnot | bench/nothing | slow\n");
  expect("docs/c.md:2: bench/nothing: there is no bench/nothing");
}

TEST_F(DocChecks, ACommandThatNoPageHas) {
  write("docs/b.md", "## Two words\n");
  expect("tests/doc_commands: no page has: ./launcher vit_tiny -n 2");
}

TEST_F(DocChecks, ALongPage) {
  std::string lines;
  for (int i = 0; i < 301; ++i) lines += "line\n";
  write("docs/c.md", lines);
  expect("docs/c.md: 301 lines, more than 300");
  write("docs/c.md", "");
  write("learn/c.md", lines);
  expect("learn/c.md: 301 lines, more than 300");
}

TEST_F(DocChecks, AFolderThatTheMapLacks) {
  write("docs/internals.md", "`kernels/cuda/` `engine/model/` `engine/training/`\n");
  EXPECT_EQ(said_by("check_docs"), "");
  write("engine/run/run.h", "");
  expect("docs/internals.md: the map lacks `engine/run/`");
}

TEST_F(DocChecks, EnvironmentVariables) {
  write("engine/model/plan.cpp", "const char* set = std::getenv(\"BAREVISION_PLAN\");\n");
  write("docs/environment.md", "| `BAREVISION_PLAN` | a file |\n");
  EXPECT_EQ(said_by("check_docs"), "");
  write("docs/environment.md", "| `BAREVISION_PLANS` | a file |\n");
  expect(
      "docs/environment.md lacks BAREVISION_PLAN, which engine/model/plan.cpp reads\n"
      "docs/environment.md has BAREVISION_PLANS, which nothing reads");
}

TEST_F(DocChecks, ACommandOfAStory) {
  write("learn/a.md", "# A\n\n    $ ./launcher eval\n    an answer\n");
  expect("learn/a.md:3: ./launcher eval: tests/doc_commands doesn't say how this is tried");
}

class QuoteChecks : public SourceChecks {
 protected:
  void SetUp() override {
    SourceChecks::SetUp();
    if (IsSkipped()) return;
    write("kernels/pool.cu", "int pool() {\n  int sum = 0;\n  sum += 1;\n  return sum;\n}\n");
    write("learn/ladder",
          "#!/bin/sh\necho 'rung      /req   us by    '\necho 'pool v1    4.0   12 memory'\n");
    write("build/learn/pool/v1", "");
    write("build/try/examples/add.WRONG", "#!/bin/sh\necho begins\necho add: 7 wrong\n");
    for (const char* program : {"learn/ladder", "build/try/examples/add.WRONG"})
      std::filesystem::permissions(folder_ / program, std::filesystem::perms::owner_all);
  }
  // `wrong`: what check_quotes prints for a page with this text; empty if it finds nothing.
  void expect(const std::string& page, const std::string& wrong) {
    write("learn/pool.md", page);
    EXPECT_EQ(said_by("check_quotes --build " + folder_ / "build"), wrong) << page;
  }
};

TEST_F(QuoteChecks, Code) {
  const std::string from = "From [kernels/pool.cu](../kernels/pool.cu), `pool`:\n\n```cpp\n";
  expect(from + "int sum = 0;\n...\nreturn sum;\n```\n", "");
  expect(from + "int sum = 0;\nreturn sum;\n```\n",
         "learn/pool.md:4: kernels/pool.cu has no such lines: int sum = 0;\n");
  expect(from + "return sum;\n...\nint sum = 0;\n```\n",
         "learn/pool.md:6: kernels/pool.cu has no such lines: int sum = 0;\n");
  expect("From `kernels/max.cu`:\n\n    return 0;\n",
         "learn/pool.md:1: there is no kernels/max.cu\n");
  expect("From `kernels/pool.cu`:\n\nNothing.\n", "learn/pool.md:1: nothing is quoted\n");
}

TEST_F(QuoteChecks, Tables) {
  const std::string from =
      "From `make learn TOPIC=pool`:\n\n| rung | /req | by |\n| --- | --- | --- |\n";
  expect(from + "| v1 | 4.0 | memory |\n", "");
  expect(from + "| v1 | 4.1 | memory |\n", "learn/pool.md:5: v1: /req is 4.0, not 4.1\n");
  expect(from + "| v2 | 4.0 | memory |\n",
         "learn/pool.md:5: v2: /req is , not 4.0\nlearn/pool.md:5: v2: by is , not memory\n");
}

// Another compiler's counts may differ.
TEST_F(QuoteChecks, TablesOfAnotherCompiler) {
  write("tests/counters/vit_tiny.txt", "# Counts. g++ 1.2. Written by: make counters\n");
  write("learn/pool.md",
        "From `make learn TOPIC=pool`:\n\n| rung | /req |\n| - | - |\n| v1 | 4.1 |\n");
  const std::string call = "tests/check_quotes " + folder_.path() + " --build " +
                           folder_ / "build" + " >" + folder_ / "said";
  EXPECT_EQ(std::system(call.c_str()), 0);
  EXPECT_TRUE(
      has(contents(folder_ / "said"), "aren't compared: they are of g++ 1.2, and this is "));
}

TEST_F(QuoteChecks, Programs) {
  const std::string line = "    $ make try FILE=learn/examples/add.cu DEFINE=WRONG\n";
  expect(line + "    add: 7 wrong\n", "");
  expect(line + "    add: 8 wrong\n", "learn/pool.md:2: " + folder_ / "build" +
                                          "/try/examples/add.WRONG doesn't print: add: 8 wrong\n");
}

}  // namespace
}  // namespace bv::test
