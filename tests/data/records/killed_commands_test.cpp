// A killed command's partial files are removed by the next command that writes there.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "data/dataset.h"
#include "data/records/example.h"
#include "engine/files/new_folder.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class KilledCommands : public ProgramTest {
 protected:
  void SetUp() override {
    if (!have_records) GTEST_SKIP() << "without protobuf";
    make_class_folders(in("photos"), 2, 3);
    go("data list photos list.txt");
    go("data pack list.txt out --name x");
  }
  // Waits until the folder holds this many names.
  bool come_to(const std::string& folder, size_t count) const {
    return wait_until(
        [&] { return fs::exists(in(folder)) && names_in(in(folder)).size() == count; });
  }
  static std::string partial(const std::string& name, pid_t pid) {
    return name + ".partial-" + std::to_string(pid);
  }
  const Names packed_{"x-00000-of-00001.idx", "x-00000-of-00001.tfrecord", "x.index"};
};

TEST_F(KilledCommands, PackLeavesItsFolderToTheNext) {
  // A large file, which takes a while to read.
  write_text(in("photos/class0/large.ppm"), "P6 16384 8191 255 ");
  fs::resize_file(in("photos/class0/large.ppm"), 18 + 3 * uint64_t{16384} * 8191);
  go("data list photos large.txt");
  const auto killed = [&] {
    Program pack(folder_.path(), "data pack large.txt new --name x");
    EXPECT_TRUE(come_to("new", 1));
    const std::string name = partial(".x", pack.pid());
    EXPECT_EQ(names_in(in("new")), Names{name});
    kill(pack.pid(), SIGKILL);
    EXPECT_EQ(pack.wait().code, 128 + SIGKILL);
    EXPECT_EQ(names_in(in("new")), Names{name});
  };
  killed();
  go("data pack list.txt new --name x");
  EXPECT_EQ(names_in(in("new")), packed_);
}

TEST_F(KilledCommands, WhoStillWritesIsLeftAlone) {
  const auto writes = [&](const std::string& name) {
    return std::make_unique<Child>([path = in(name)] {
      const NewFolder folder("DIR", path);
      write_text(folder.place() / "half", "x");
      while (true) pause();
      return 0;
    });
  };
  fs::create_directory(in("new"));
  const auto killed = writes("new/back"), alive = writes("new/back");
  ASSERT_TRUE(come_to("new", 2));
  const std::string left = partial("back", alive->pid());
  ASSERT_TRUE(come_to("new/" + left, 2));  // the partial file and its lock
  kill(killed->pid(), SIGKILL);
  killed->wait();
  // A partial file with another name isn't removed.
  fs::create_directory(in("new/back.partial-x"));
  fs::create_directory(in("new/" + partial("backs", killed->pid())));
  go("data unpack out new/back");
  EXPECT_EQ(names_in(in("new")),
            (Names{"back", left, "back.partial-x", partial("backs", killed->pid())}));
  EXPECT_EQ(contents(in("new/" + left + "/half")), "x");
  EXPECT_EQ(names_in(in("new/back")), (Names{"class0", "class1"}));
}

}  // namespace
}  // namespace bv::test
