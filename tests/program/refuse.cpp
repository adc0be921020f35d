// Runs commands in the test's own process. What they change of it is put back.
#include <fcntl.h>
#include <omp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "app/commands/commands.h"
#include "base/error.h"
#include "base/text.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

int checked(int result, const char* call) {
  if (result < 0) throw std::runtime_error(std::string(call) + " failed");
  return result;
}

// A standard stream, redirected to memory during this object's lifetime.
class Captured {
 public:
  explicit Captured(FILE* stream) : stream_(stream) {
    std::fflush(stream_);
    before_ = checked(fcntl(fileno(stream_), F_DUPFD_CLOEXEC, 0), "fcntl");
    memory_ = checked(memfd_create("captured", MFD_CLOEXEC), "memfd_create");
    checked(dup2(memory_, fileno(stream_)), "dup2");
  }
  ~Captured() {
    std::fflush(stream_);
    dup2(before_, fileno(stream_));
    close(before_), close(memory_);
  }
  Captured(const Captured&) = delete;
  std::string text() const {
    std::fflush(stream_);
    return contents("/proc/self/fd/" + std::to_string(memory_));
  }

 private:
  FILE* stream_;
  int before_, memory_;
};

// The folder, the variables, and what a rank sets for its own process.
class Kept {
 public:
  Kept() : folder_(fs::current_path()), threads_(omp_get_max_threads()) {
    for (char** entry = environ; *entry; ++entry) variables_.emplace_back(*entry);
    sched_getaffinity(0, sizeof cpus_, &cpus_);
    prctl(PR_GET_NAME, name_);
  }
  ~Kept() {
    fs::current_path(folder_);
    clearenv();
    for (const std::string& entry : variables_) {
      const size_t end = entry.find('=');
      setenv(entry.substr(0, end).c_str(), entry.c_str() + end + 1, 1);
    }
    sched_setaffinity(0, sizeof cpus_, &cpus_);
    prctl(PR_SET_NAME, name_);
    omp_set_num_threads(threads_);
  }
  Kept(const Kept&) = delete;

 private:
  fs::path folder_;
  Words variables_;
  int threads_;
  cpu_set_t cpus_;
  char name_[16];
};

bool has_any(const Words& words, std::initializer_list<std::string_view> options) {
  return std::ranges::find_first_of(words, options) != words.end();
}

// A command that would train to the end, or for many steps, trains one.
std::string with_an_end(const std::string& words) {
  Words list = arguments_of(words);
  list.erase(list.begin());
  if (list.empty()) return words;
  size_t named_by = 0;
  try {
    const Named named = command_of(list, commands());
    if (named.command->name != "train") return words;
    named_by = named.words;
  } catch (const UserError&) {
    return words;
  }
  if (const auto at = std::ranges::find(list, "--steps"); list.end() - at > 1) {
    if (parse_integer(at[1]).value_or(0) > 10) at[1] = "1";
  } else if (!has_any(list, {"--steps", "--epochs", "--plan"})) {
    list.insert(list.begin() + long(named_by), {"--steps", "1"});
  }
  return join(list, " ");
}

Finished run_here(const std::string& folder, const std::string& words, const Variables& added) {
  const Kept kept;
  const Captured output(stdout), errors(stderr);
  Variables variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  variables.insert(variables.end(), added.begin(), added.end());
  if (!enter(folder, 1, variables)) throw std::runtime_error(folder + ": no such folder");
  const int code = run_command(arguments_of(words));
  return {code, output.text(), errors.text()};
}

size_t open_descriptors() {
  return size_t(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

}  // namespace

Finished refuse(const std::string& folder, const std::string& given, const Variables& added) {
  const std::string words = with_an_end(given);
  if (has_any(arguments_of(words), {"-n", "--nproc", "--nnodes"}))
    return run_program(folder, words, {.environment = added});
  const size_t open = open_descriptors();
  const Finished end = run_here(folder, words, added);
  EXPECT_EQ(open_descriptors(), open) << words;
  // make test-all: a process of its own says the same.
  if (std::getenv("BAREVISION_TEST_ALL")) {
    const Finished apart = run_program(folder, words, {.environment = added});
    EXPECT_EQ(end.code, apart.code) << words;
    EXPECT_EQ(end.output, apart.output) << words;
    EXPECT_EQ(end.errors, apart.errors) << words;
  }
  return end;
}

}  // namespace bv::test
