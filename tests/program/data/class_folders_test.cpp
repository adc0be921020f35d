// Class folders with lost links, names in two Unicode forms, folders of systems, and pictures that
// aren't read, as users see them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

class ClassFolders : public ShallowProgramTest {
 protected:
  const std::string training_ = on_vit + "--batch 2 --steps 1 ";
};

TEST_F(ClassFolders, WithLostLinks) {
  make_class_folders(in("photos"), 2, 8);
  go("data split photos/ split --link --val-fraction 0.25");
  fs::rename(in("photos"), in("elsewhere"));
  for (const std::string part : {"train/class0", "train/class1", "val/class0", "val/class1"})
    fs::copy_file(in("elsewhere/class0/0.ppm"), in("split/" + part + "/new.ppm"));
  const std::string link = ": a link without a target (-> ";
  const Finished found = run("data check split");
  EXPECT_EQ(found.code, 1);
  EXPECT_TRUE(has(found.output, "split: 20 images, 2 classes\ndamaged: 16\n  split/train/class0/"));
  EXPECT_TRUE(has(found.output, link + in("photos/class0/")));
  const Finished ended = run(training_ + "--data split --out run");
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(ended.errors.starts_with("split/train/class0/")) << ended.errors;
  EXPECT_TRUE(has(ended.errors, link + in("photos/class0/")));
  EXPECT_TRUE(
      has(ended.errors, "), and 15 more can't be read (--on-bad-image skip skips such files)\n"));
  EXPECT_FALSE(fs::exists(in("run")));
  const Finished skipped = go(training_ + "--data split --out run --on-bad-image skip");
  EXPECT_TRUE(has(skipped.output,
                  "warning: 16 of 20 images can't be read and will be skipped, the first split/"));

  for (const char* words :
       {"data split split/train again", "data split split/train again --link"}) {
    const Finished refused = refuse(words);
    EXPECT_EQ(refused.code, 2) << words;
    EXPECT_TRUE(is_line(refused.errors.substr(0, refused.errors.size() - 1), link));
    EXPECT_FALSE(fs::exists(in("again"))) << words;
  }
  const Finished predicted = run("predict run split/val/class0 nowhere");
  EXPECT_EQ(predicted.code, 1);
  EXPECT_TRUE(has(predicted.output, "split/val/class0/new.ppm"));
  EXPECT_EQ(std::ranges::count(predicted.output, '\n'), 1);
  EXPECT_TRUE(has(predicted.errors, "skipped bad image split/val/class0/"));
  EXPECT_TRUE(has(predicted.errors, "nowhere: no such file or folder\n"));
  fs::create_symlink("gone", in("lost"));
  EXPECT_EQ(refuse("predict run lost").errors, "lost: a link without a target (-> gone)\n");
}

// A run of names in one form is resumed and evaluated on a copy with names in the other, and a run
// of old on its own folder.
TEST_F(ClassFolders, WithNamesInTwoForms) {
  const std::string composed = "Bl\u00FCte", decomposed = "Blu\u0308te";
  fs::create_directories(in("copy"));
  for (const std::string part : {"train/", "val/"}) {
    make_class_folders(in("photos/" + part), 2, 8);
    fs::copy(in("photos/" + part), in("copy/" + part), fs::copy_options::recursive);
    fs::rename(in("photos/" + part + "class0"), in("photos/" + part + decomposed));
    fs::rename(in("copy/" + part + "class0"), in("copy/" + part + composed));
  }
  go(training_ + "--data photos --out run");
  go("--resume run --steps 2");
  const std::string own = go("eval run").output, other = go("eval run --data copy").output;
  EXPECT_EQ(other.substr(other.find("\nval: ")), own.substr(own.find("\nval: ")));
  const Finished tuned =
      go(training_ + "--data copy --weights run/last/weights.safetensors --out tuned");
  EXPECT_FALSE(has(tuned.output, "has other names or another order")) << tuned.output;
  write_text(in("labels.json"), "{\"" + composed + "\": 0, \"class1\": 1}");
  go("data list photos/train list.txt --labels labels.json");
}

TEST_F(ClassFolders, WithFoldersOfSystems) {
  make_class_folders(in("photos"), 2, 4);
  for (const std::string name : {"@eaDir", "class0/@eaDir", "lost+found"}) {
    fs::create_directories(in("photos/" + name));
    fs::copy_file(in("photos/class1/0.ppm"), in("photos/" + name + "/0.ppm"));
  }
  const std::string line =
      "\nleft out: 3 folders of systems (@eaDir, lost+found); if one of them is a class, give it "
      "another name\n";
  const Finished found = go("data check photos");
  EXPECT_TRUE(has(found.output, "photos: 8 images, 2 classes" + line)) << found.output;
  EXPECT_TRUE(has(found.output, "\nclean\n"));
  EXPECT_TRUE(has(go(training_ + "--data photos").output, line));
  EXPECT_TRUE(has("\n" + go("data split photos split").output, line));
}

// The command that the warning names is run by a shell, with a mogrify of our own.
TEST_F(ClassFolders, WithImagesToConvert) {
  make_class_folders(in("my photos"), 2, 4);
  fs::create_directories(in("far/class2"));
  for (int i = 0; i < 3; ++i)
    write_ppm(in("far/class2/" + std::to_string(i) + ".ppm"), 40, 36, 50 + i);
  fs::create_directory_symlink("../far/class2", in("my photos/class2"));
  for (const char* file : {"my photos/class0/a.HEIC", "my photos/class0/b.heic",
                           "my photos/class1/more/c.Tga", "far/class2/it's.heic"})
    write_text(in(file), "x");
  fs::create_directory_symlink("my photos", in("photos"));
  write_text(in("bin/mogrify"),
             "#!/bin/sh\n[ \"$1 $2\" = '-format jpg' ] || exit 1\nshift 2\n"
             "for f; do cp '" +
                 in("my photos/class0/0.ppm") + "' \"${f%.*}.jpg\"; done\n");
  fs::permissions(in("bin/mogrify"), fs::perms::all);
  const auto output_of = [&](const std::string& words) {
    const Finished end = run(words);
    return end.output + end.errors;
  };
  const std::string left_out = "images are left out: 3 .heic, 1 .tga";
  const std::string lint = "lint " + training_ + "--data photos";
  go(training_ + "--data synthetic --out run");
  const std::string commands[] = {lint, "data split photos split", "data list photos list.txt"};
  for (const std::string& words : commands) EXPECT_TRUE(has(output_of(words), left_out)) << words;
  EXPECT_TRUE(has(output_of("predict run photos"), "images are left out: 2 .heic, 1 .tga; use "));
  const std::string check = output_of("data check photos"), before = "; to convert them: ";
  const size_t at = check.find("3 .heic, 1 .tga" + before);
  ASSERT_NE(at, check.npos) << check;
  const size_t begin = check.find(before) + before.size();
  const std::string command = check.substr(begin, check.find('\n', begin) - begin);
  EXPECT_EQ(
      command,
      "find -L photos \\( -iname '*.heic' -o -iname '*.tga' \\) -exec mogrify -format jpg {} +");
  EXPECT_TRUE(has(output_of(lint), "; use " + command + "\n"));
  ASSERT_EQ(std::system(
                ("cd '" + folder_.path() + "' && PATH=" + in("bin") + ":$PATH " + command).c_str()),
            0);
  for (const char* file : {"my photos/class0/a.jpg", "my photos/class0/b.jpg",
                           "my photos/class1/more/c.jpg", "far/class2/it's.jpg"})
    EXPECT_TRUE(fs::exists(in(file))) << file;
  fs::remove_all(in("split"));
  fs::remove(in("list.txt"));
  for (const std::string& words : commands) EXPECT_FALSE(has(output_of(words), ".heic")) << words;
  EXPECT_FALSE(has(output_of("predict run photos"), "images are left out"));
  EXPECT_FALSE(has(output_of("data check photos"), ".heic"));
}

}  // namespace
}  // namespace bv::test
