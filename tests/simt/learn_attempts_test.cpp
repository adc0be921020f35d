// learn/exercises: lines that students write into the gaps. Attempts that don't solve the task are
// refused with a helpful message, even if the numbers are right; alternative solutions pass.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

struct Attempt {
  std::string exercise, gap;
  std::vector<std::string> says;  // empty: it passes
};

const std::string has_work = "__device__ bool has_work(int i, int n) { return i < n; }\n";
const std::string element = "__host__ __device__ int element(int lane, int request) ";
const std::string place = "__host__ __device__ int place(int row, int col) ";
const Attempt attempts[] = {
    {"01_first_kernel",
     "const int i = blockIdx.x;\n",
     {"y[4] should be 9, is nan: no thread has written it\n"
      "512 threads wrote 4 of 512 numbers: several threads have the same i\n"}},
    {"01_first_kernel",
     "const int i = threadIdx.x;\n",
     {"512 threads wrote 128 of 512 numbers: several", "do the threads of all blocks compute"}},
    {"02_bounds",
     "int blocks_for(int n, int) { return n; }\n" + has_work,
     {"blocks_for(1000, 128) is 1000: in 8 blocks each number has a thread of its own, the others "
      "have no work\n"}},
    {"02_bounds",
     "int blocks_for(int n, int threads) { return n / threads + 1; }\n" + has_work,
     {"all 1000 numbers are right, by 1024 threads\nblocks_for(1024, 128) is 9: in 8 blocks"}},
    {"02_bounds",
     "int blocks_for(int n, int threads) { return (n + threads - 2) / threads; }\n" + has_work,
     {"blocks_for(1025, 128) is 8: in 9 blocks each number has a thread of its own\n"}},
    {"03_coalescing",
     element + "{ return (lane * 8 + request) % n; }\n",
     {"lane 0 touches x[8] in request 8, but lane 1 has done so in request 0: each number only "
      "once\n"}},
    {"03_coalescing",
     element + "{ return request * 33 + lane; }\n",
     {"lane 1 touches x[1024] in request 31, but there are x[0] to x[1023]\n"}},
    {"03_coalescing", element + "{ return request * lanes + (lane ^ 5); }\n", {}},
    {"04_reduction",
     "if (t == 0) for (int i = 1; i < threads; ++i) partial[0] += partial[i];\n",
     {"sums are right\nbut thread 0 reads or writes memory ", ", thread 1 only 2 times:\n",
      "expected a tree: 8 rounds"}},
    {"04_reduction",
     "for (int i = 1; i < threads; ++i) {\n"
     "  if (t == i) partial[0] += partial[i];\n  __syncthreads();\n}\n",
     {"sums are right\nbut after 200 barriers: the threads work one after another"}},
    {"04_reduction",  // as in learn/examples/reduction.cu
     "for (int half = threads / 2; half > 0; half /= 2) {\n"
     "  __syncthreads();\n  if (t < half) partial[t] += partial[t + half];\n}\n",
     {"sums[0] should be 20100, is ", ": some numbers are missing in it, or were added twice"}},
    {"04_reduction",
     "for (int n = threads, left; n > 1; n = left) {\n"
     "  __syncthreads();\n  left = (n + 1) / 2;\n"
     "  if (t < n / 2) partial[t] += partial[t + left];\n}\n",
     {}},
    {"05_race",
     "if (t == 0) for (int i = 0; i < threads; ++i) bins[digit[i]] += 1;\n",
     {"all 10 counts are right\nbut thread 0 reads or writes memory ", ", thread 10 only 0 times",
      "expected that all 256 threads"}},
    {"05_race",
     "for (int i = 0; i < threads; ++i) {\n"
     "  if (t == i) bins[digit[t]] += 1;\n  __syncthreads();\n}\n",
     {"all 10 counts are right\nbut after 258 barriers: ", "for the one whose turn it is"}},
    {"05_race",
     "for (int d = 0; d < digits; ++d) {\n"
     "  const int count = __syncthreads_count(digit[t] == d);\n  if (t == d) bins[d] = count;\n}\n",
     {}},
    {"06_bank_conflicts",
     place + "{ return col * side + row; }\n",
     {"turns to write a row: 32, to read a column: 1\n"
      "expected 1 and 1. Banks of row 0, from column 0 on: 0, 0, 0, 0, ...\n"}},
    {"06_bank_conflicts",
     place + "{ return row * side + (col ^ row / 2); }\n",
     {"turns to write a row: 1, to read a column: 2\n"
      "expected 1 and 1. Banks of column 0, from row 0 on: 0, 0, 1, 1, ...\n"}},
    {"06_bank_conflicts", place + "{ return row * side + (col ^ row); }\n", {}},
};

const std::string make_try = "env -u MAKEFLAGS -u MAKELEVEL make -s try BUILD=" + build_folder();

std::string source_of(const std::string& exercise) { return "learn/exercises/" + exercise + ".cu"; }
std::string with_gap(const std::string& exercise, const std::string& gap) {
  const std::string text = contents(source_of(exercise));
  const size_t begin = text.find('\n', text.find("--- your code")) + 1;
  const size_t end = text.rfind('\n', text.find("--- end of your code")) + 1;
  return text.substr(0, begin) + gap + text.substr(end);
}
// One program with all attempts, each in a namespace of its own: it compiles in a second, while a
// program for each attempt would take a second each. Headers are included first, so that their
// include guards empty them in the namespaces.
std::string all_programs() {
  std::string text = "#include <set>\n#include <string>\n#include \"learn/exercises/exercise.h\"\n",
              cases;
  for (size_t i = 0; i < std::size(attempts); ++i) {
    const auto& [exercise, gap, says] = attempts[i];
    text += "namespace attempt_" + std::to_string(i) + " {\n#line 1 \"" + source_of(exercise) +
            "\"\n" + with_gap(exercise, gap) + "}\n";
    cases += "if (number == \"" + std::to_string(i) + "\") return attempt_" + std::to_string(i) +
             "::main();\n";
  }
  return text + "int main(int, char** words) {\nconst std::string number = words[1];\n" + cases +
         "return std::puts(\"no attempt\"), 3;\n}\n";
}

TEST(LearnAttempts, AreJudged) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  write_text(scratch / "attempts.cu", all_programs());
  const Ended made = shell(make_try + " FILE=" + (scratch / "attempts.cu") + " ARGS=none");
  ASSERT_TRUE(has(made.output, "no attempt\n"));
  const std::string program = build_folder() + "/try/programs/run/attempts ";
  for (size_t i = 0; i < std::size(attempts); ++i) {
    SCOPED_TRACE(attempts[i].exercise + ":\n" + attempts[i].gap);
    const Ended end = shell(program + std::to_string(i));
    EXPECT_EQ(end.code, attempts[i].says.empty() ? 0 : 1) << end.output;
    for (const std::string& words : attempts[i].says) EXPECT_TRUE(has(end.output, words));
  }
}

// make try refuses the call as nvcc would, before compiling.
TEST(LearnAttempts, WithoutDevice) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string blocks_for = "int blocks_for(int n, int threads) { return 8; }\n";
  write_text(scratch / "bounds.cu", with_gap("02_bounds", blocks_for + has_work.substr(11)));
  const Ended end = shell(make_try + " FILE=" + (scratch / "bounds.cu"));
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(has(end.output,
                  "bounds.cu:14: the kernel square calls has_work, which lacks "
                  "__device__: a GPU has no code for it\n"));
}

}  // namespace
}  // namespace bv::test
