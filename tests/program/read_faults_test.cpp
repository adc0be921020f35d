// Files that the machine can't open or read now: no command takes them for bad images.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "data/records/example.h"
#include "data/records/tfrecord.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

class ReadFaults : public ShallowProgramTest {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the shim doesn't go with the address sanitizer";
#endif
    make_class_folders(in("photos"), 2, 10);
  }
  // Runs with errors planted where the path contains `part`; `variable`: of the shim.
  Finished with_fault(const std::string& words, const char* variable, const std::string& part,
                      int code) const {
    const std::string shim = std::filesystem::path(own_path()).parent_path() / "file_faults.so";
    return run_program(
        folder_.path(), words,
        {.environment = {
             {"LD_PRELOAD", shim}, {variable, part}, {"FILE_FAULT", std::to_string(code)}}});
  }
  // The exit code where at most this many descriptors may be open, by a hard limit.
  int with_limit(const std::string& words, rlim_t limit) const {
    return Child([&] {
             const rlimit few{limit, limit};
             if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 98;
             return run(words).code;
           })
        .wait()
        .code;
  }
  // The command must end with one line that names the file, the reason and the way out.
  void expect_line(const std::string& words, const char* variable, int code,
                   const std::string& way_out, const std::string& file = "class1/3.ppm") const {
    const Finished end = with_fault(words, variable, file, code);
    SCOPED_TRACE(words + ", errno " + std::to_string(code) + ": " + end.output + end.errors);
    EXPECT_EQ(end.code, code == EACCES ? 2 : 1);
    EXPECT_TRUE(has(end.errors, file + ": " + std::strerror(code) + "; "));
    EXPECT_TRUE(has(end.errors, way_out));
    EXPECT_FALSE(has(end.errors, "skip"));
    EXPECT_FALSE(has(end.errors, "delete"));
    EXPECT_EQ(std::ranges::count(end.errors, '\n'), 1);
  }
};

const std::string train = on_vit + "--batch 4 --epochs 1 --device cpu --on-bad-image skip ";
constexpr const char *open_fault = "FILE_FAULT_OPEN", *read_fault = "FILE_FAULT_READ";

TEST_F(ReadFaults, EndTraining) {
  const std::string words = train + "--data photos --out run";
  expect_line(words, open_fault, EMFILE, "`ulimit -n ");
  expect_line(words, open_fault, EACCES, "`chmod a+r photos/class1/3.ppm`");
  expect_line(words, open_fault, ESTALE, "mount the folder again");
  expect_line(words, read_fault, EIO, "the disk or the file server failed");
  expect_line(words, read_fault, ENOMEM, "use fewer --workers");
  expect_line(words, read_fault, EINTR, "the disk or the file server failed");
  // A file that isn't there is a bad image, which is skipped.
  const Finished gone = with_fault(words, open_fault, "class1/3.ppm", ENOENT);
  EXPECT_EQ(gone.code, 0) << gone.errors;
}

TEST_F(ReadFaults, EndEachCommand) {
  go(train + "--data photos --out run");
  for (const char* words :
       {"eval run --split all", "predict run photos", "data check photos", "data stats photos"}) {
    expect_line(words, open_fault, EMFILE, "`ulimit -n ");
    expect_line(words, read_fault, EIO, "the disk or the file server failed");
  }
  go("data list photos list.txt");
  const std::string pack = "data pack list.txt packed --name x --on-bad-image skip";
  expect_line(pack, open_fault, EACCES, "`chmod a+r ");
  expect_line(pack, read_fault, EIO, "the disk or the file server failed");
  EXPECT_FALSE(std::filesystem::exists(in("packed")));
  if (!have_records) return;
  go(pack);
  const std::string shard = "x-00000-of-00001.tfrecord", skip = " --on-bad-image skip";
  for (const std::string& words :
       {train + "--data packed --out other", "data unpack packed unpacked" + skip,
        std::string("data check packed"), std::string("predict run packed")}) {
    expect_line(words, open_fault, EMFILE, "`ulimit -n ", shard);
    expect_line(words, read_fault, EIO, "the disk or the file server failed", shard);
  }
  std::filesystem::remove(in("packed/x.index"));
  expect_line("data index packed" + skip, open_fault, ENFILE, "too many open files", shard);
  expect_line("data index packed" + skip, read_fault, EIO, "the disk or the file server", shard);
}

// The same weights as without a limit, in a checkpoint that needs descriptors, too.
TEST_F(ReadFaults, DontComeOfManyShards) {
  if (!have_records) GTEST_SKIP() << "without protobuf";
  std::string index = "# barevision index 1\n# class 0 a\n# class 1 b\n";
  for (int i = 0; i < 150; ++i) {
    const std::string name = "s" + std::to_string(i), label = std::to_string(i % 2);
    const std::string bytes = framed_record(
        write_example({.image = "P6 1 1 255 " + std::string(3, char(i)), .label = i % 2}));
    write_text(in("shards/" + name), bytes);
    index += label + "\t" + name + "\t0\t" + std::to_string(bytes.size()) + "\t" + name + "\n";
  }
  write_text(in("shards/x.index"), index);
  const std::string words = on_vit + "--data shards --batch 27 --epochs 1 --device cpu ";
  go(words + "--out free");
  EXPECT_EQ(with_limit(words + "--out bound", 96), 0);
  EXPECT_EQ(contents(in("free/last/weights.safetensors")),
            contents(in("bound/last/weights.safetensors")));
  EXPECT_EQ(metric(in("free"), "epoch", "val_loss"), metric(in("bound"), "epoch", "val_loss"));
  EXPECT_EQ(with_limit("data unpack shards unpacked", 64), 0);
  EXPECT_EQ(with_limit("predict bound shards", 64), 0);
  EXPECT_EQ(with_limit("eval bound --split all", 64), 0);
}

}  // namespace
}  // namespace bv::test
