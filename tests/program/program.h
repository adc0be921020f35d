// Runs the whole program as users do: build/launcher as a child, in a folder for each test.
#pragma once
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/processes.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {

struct Finished {
  int code = -1;               // exit code, or 128 + signal
  std::string output, errors;  // the latter without the warning of too few cores
};

using Variables = std::vector<std::pair<std::string, std::string>>;

struct ProgramOptions {
  int threads = 1;                // per process
  size_t address_space = 0;       // max bytes; 0: no limit
  Variables environment = {};     // added to the test's own
  int output = -1;                // a descriptor to print to; -1: a file, for Finished::output
  std::vector<int> closed = {};   // of the standard descriptors
  std::vector<int> ignored = {};  // signals
  size_t file_size = 0;           // max bytes; 0: no limit
  std::string network = {};       // name of a network namespace (ip netns); empty: the tests' own
};

class Program {
 public:
  // `words`: the arguments, split at spaces; paths are relative to `folder`.
  Program(const std::string& folder, const std::string& words, ProgramOptions options = {});
  ~Program();
  pid_t pid() const { return child_.pid(); }
  // The worker of this rank, once there is one.
  pid_t worker(int rank) const;
  std::optional<pid_t> worker_now(int rank) const;
  Finished wait();
  bool has_ended() const { return child_.has_ended(); }
  // Waits until the file contains `text`; false if the program has ended before.
  bool wait_for(const std::string& path, const std::string& text) const;
  bool anyone_left() const { return child_.anyone_left(); }
  // Waits until the program's errors contain `text`; returns the errors so far.
  std::string errors_until(const std::string& text) { return child_.errors_until(text); }

 private:
  std::string output_path_;
  Child child_;
};

Finished run_program(const std::string& folder, const std::string& words,
                     ProgramOptions options = {});
// "launcher" and the words between the spaces.
std::vector<std::string> arguments_of(const std::string& words);
// Enters the folder, whose paths `words` are relative to, with the variables of a program there.
// False if the folder is missing.
bool enter(const std::string& folder, int threads, const Variables& added);
// For a mistake of the user's: runs the command in the test's own process, as the only rank of a
// run; with -n or --nnodes, in processes, as run_program() does. If the mistake is accepted,
// training ends after one step.
Finished refuse(const std::string& folder, const std::string& words, const Variables& added = {});
// run() for a run that must succeed.
Finished train(const std::string& folder, const std::string& words, ProgramOptions options = {});

// One member, as written, of all lines of a kind in a run's metrics.jsonl.
std::vector<std::string> metric(const std::string& run, const std::string& kind,
                                const std::string& member);
std::string last_metric(const std::string& run, const std::string& kind, const std::string& member);
std::vector<double> losses(const std::string& run);

// Makes a small CIFAR-10 folder of 44 and 10 records, for training vit_tiny.
void make_cifar(const std::string& folder, int train = 44, int val = 10);
void make_class_folders(const std::string& folder, int classes, int images);
inline const std::string on_vit = "vit_tiny --image-size 32 --patch-size 16 --log-every 1 ";

// Runs programs in a folder for each test.
class ProgramTest : public testing::Test {
 protected:
  std::string in(const std::string& name) const { return folder_ / name; }
  Finished run(const std::string& words) const { return run_program(folder_.path(), words); }
  Finished refuse(const std::string& words, const Variables& added = {}) const {
    return test::refuse(folder_.path(), words, added);
  }
  Finished go(const std::string& words, ProgramOptions options = {}) const {
    return train(folder_.path(), words, options);
  }
  // Replaces `from` by `to` in this model's file, and makes it the only known model.
  void change_model(const std::string& model, const std::string& from, const std::string& to);
  void TearDown() override {
    if (!models_.empty()) setenv("BAREVISION_MODELS", models_.c_str(), 1);
  }

  TemporaryFolder folder_;
  std::string models_;  // BAREVISION_MODELS before change_model
};

// For tests in which the model doesn't matter: vit_tiny has three blocks, so a quarter of its
// weights to draw, update and save. Other models are unchanged.
class ShallowProgramTest : public ProgramTest {
 protected:
  ShallowProgramTest();
};

}  // namespace bv::test
