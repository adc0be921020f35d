#include "tests/program/program.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "tests/data/data_files.h"

namespace bv::test {
namespace {

std::string launcher_path() {
  return (std::filesystem::path(own_path()).parent_path() / "launcher").string();
}

int become_launcher(const std::string& folder, const std::string& words, const std::string& output,
                    const ProgramOptions& options) {
  if (!enter(folder, options.threads, options.environment)) return 98;
  const int fd = options.output >= 0 ? options.output
                                     : open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) return 98;
  if (!options.network.empty()) {
    const int name = open(("/run/netns/" + options.network).c_str(), O_RDONLY | O_CLOEXEC);
    if (name < 0 || setns(name, CLONE_NEWNET) != 0) return 98;
  }
  if (options.address_space) {
    const rlimit limit{options.address_space, options.address_space};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 98;
  }
  if (options.file_size) {
    const rlimit limit{options.file_size, options.file_size};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 98;
  }
  for (const int number : options.ignored) std::signal(number, SIG_IGN);
  for (const int number : options.closed) close(number);
  std::vector<std::string> list = arguments_of(words);
  std::vector<char*> argv;
  for (std::string& word : list) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(launcher_path().c_str(), argv.data());
  return 98;
}

// A new empty file, outside the tests' own folders: tests search those for leftovers.
std::string fresh_output_path() {
  std::string path = (std::filesystem::temp_directory_path() / "barevision-out-XXXXXX").string();
  const int fd = mkstemp(path.data());
  if (fd < 0) throw std::runtime_error("mkstemp");
  close(fd);
  return path;
}

std::string environment_of(pid_t pid) {
  return '\0' + contents("/proc/" + std::to_string(pid) + "/environ");
}

}  // namespace

std::vector<std::string> arguments_of(const std::string& words) {
  std::istringstream in(words);
  std::vector<std::string> list{"launcher"};
  for (std::string word; in >> word;) list.push_back(word);
  return list;
}

bool enter(const std::string& folder, int threads, const Variables& added) {
  if (const char* models = std::getenv("BAREVISION_MODELS"))  // from where the tests were started
    setenv("BAREVISION_MODELS", std::filesystem::absolute(models).c_str(), 1);
  // Variables that other launchers, or the caller of the tests, may have set.
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", worker_variable})
    unsetenv(name);
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  // Threads that spin while waiting would take the cores from the tests' other processes.
  setenv("OMP_WAIT_POLICY", "passive", 1);
  for (const auto& [name, value] : added) setenv(name.c_str(), value.c_str(), 1);
  return chdir(folder.c_str()) == 0;
}

Program::Program(const std::string& folder, const std::string& words, ProgramOptions options)
    : output_path_(fresh_output_path()),
      child_([=, this] { return become_launcher(folder, words, output_path_, options); }) {}

Program::~Program() {
  std::error_code ignored;
  std::filesystem::remove(output_path_, ignored);
}

std::optional<pid_t> Program::worker_now(int rank) const {
  const std::string mark = '\0' + ("RANK=" + std::to_string(rank)) + '\0';
  for (const pid_t child : children_of(pid()))
    if (environment_of(child).find(mark) != std::string::npos) return child;
  return {};
}

pid_t Program::worker(int rank) const {
  std::optional<pid_t> found;
  if (!wait_until([&] { return (found = worker_now(rank)) || has_ended(); }) || !found)
    throw std::runtime_error("no worker of rank " + std::to_string(rank));
  return *found;
}

bool Program::wait_for(const std::string& path, const std::string& text) const {
  const auto written = [&] { return contents(path).find(text) != std::string::npos; };
  return wait_until([&] { return written() || has_ended(); }) && written();
}

Finished Program::wait() {
  const Ending ending = child_.wait();
  return {ending.code, contents(output_path_), without_warning(ending.errors)};
}

Finished run_program(const std::string& folder, const std::string& words, ProgramOptions options) {
  return Program(folder, words, options).wait();
}

Finished train(const std::string& folder, const std::string& words, ProgramOptions options) {
  Finished end = run_program(folder, words, options);
  EXPECT_EQ(end.code, 0) << words << "\n" << end.output << end.errors;
  return end;
}

std::vector<std::string> metric(const std::string& run, const std::string& kind,
                                const std::string& member) {
  std::vector<std::string> values;
  std::istringstream lines(contents(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line) && !lines.eof();) {  // eof: still being written
    const Json object = parse_json_object(line, run + "/metrics.jsonl");
    if (object.value("kind", "") != kind) continue;
    if (object.contains(member)) values.push_back(scalar_text(object[member]));
  }
  return values;
}

std::string last_metric(const std::string& run, const std::string& kind,
                        const std::string& member) {
  const auto values = metric(run, kind, member);
  return values.empty() ? "none" : values.back();
}

std::vector<double> losses(const std::string& run) {
  std::vector<double> values;
  for (const std::string& text : metric(run, "step", "loss")) values.push_back(std::stod(text));
  return values;
}

void ProgramTest::change_model(const std::string& model, const std::string& from,
                               const std::string& to) {
  const char* const set = std::getenv("BAREVISION_MODELS");
  if (models_.empty()) models_ = set ? set : "models";
  const std::string file = "/" + model + ".json";
  write_text(in("models") + file, replaced(contents(models_ + file), from, to));
  setenv("BAREVISION_MODELS", in("models").c_str(), 1);
}

ShallowProgramTest::ShallowProgramTest() {
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 3");
  for (const auto& entry : std::filesystem::directory_iterator(models_))
    if (entry.path().extension() == ".json" && entry.path().stem() != "vit_tiny")
      std::filesystem::copy(entry.path(), in("models"));
}

void make_cifar(const std::string& folder, int train, int val) {
  write_file(folder + "/data_batch_1.bin", cifar_records(train, 0));
  write_file(folder + "/test_batch.bin", cifar_records(val, train));
}

void make_class_folders(const std::string& folder, int classes, int images) {
  for (int c = 0; c < classes; ++c)
    for (int i = 0; i < images; ++i)
      write_ppm(folder + "/class" + std::to_string(c) + "/" + std::to_string(i) + ".ppm", 40, 36,
                c * images + i);
}

}  // namespace bv::test
