// User errors: one line with what and where, exit code 2, no files left.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/machine.h"
#include "base/text.h"
#include "data/decode/decode.h"
#include "engine/files/checkpoint.h"
#include "engine/options/model_config.h"
#include "kernels/devices/devices.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

std::set<std::string> listing(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    names.insert(entry.path().string());
  return names;
}

class ProgramErrors : public ProgramTest {
 protected:
  ProgramErrors() { make_cifar(in("cifar")); }

  void expect_refused(const std::string& words, const std::string& line) const {
    const auto before = listing(folder_.path());
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << "\n" << end.output;
    EXPECT_EQ(end.errors, line + "\n") << words;
    EXPECT_EQ(listing(folder_.path()), before) << words;
  }
  void expect_advice(const std::string& words, const std::string& part) const {
    const auto before = listing(folder_.path());
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words;
    EXPECT_TRUE(has(end.errors, part)) << words << "\n" << end.errors;
    EXPECT_EQ(std::ranges::count(end.errors, '\n'), 1) << end.errors;
    EXPECT_EQ(listing(folder_.path()), before) << words;
  }
  // The same with two workers.
  void expect_refused_by_all(const std::string& words, const std::string& line) const {
    expect_refused(words, line);
    expect_refused("-n 2 " + words, line);
  }
  // A run of two steps.
  void make_run(const std::string& out) const {
    go(on_vit + "--data cifar --batch 8 --optimizer sgd --momentum 0 --steps 2 --out " + out);
  }
  // Expects a refusal in one line that begins with `begin`.
  void expect_one_line(const std::string& words, const std::string& begin) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2);
    EXPECT_TRUE(end.errors.starts_with(begin)) << end.errors;
    EXPECT_EQ(std::ranges::count(end.errors, '\n'), 1) << end.errors;
  }
};

const std::string of_the_cpu =
    has_bf16() ? "the cpu device computes in fp32 and bf16 (--precision bf16)"
               : "the cpu device computes in fp32 (--precision fp32); bf16 needs a CPU with "
                 "AVX512_BF16";

TEST_F(ProgramErrors, OfTheCommandLine) {
  const std::string help = "; ./launcher --help lists all";
  expect_one_line("vit_tyni",
                  "unknown model or command 'vit_tyni' (did you mean vit_tiny?); ./launcher help "
                  "lists all\n");
  expect_refused("train vit_tyni",
                 "unknown model 'vit_tyni' (did you mean vit_tiny?); available: resnet101, "
                 "resnet152, resnet18, resnet34, resnet50, resnext50_32x4d, vit_base, vit_large, "
                 "vit_large_distilled, vit_small, vit_tiny, vit_tiny_distilled");
  expect_refused("vit_tiny --learning 3", "unknown option --learning" + help);
  expect_refused("vit_tiny --bach 3", "unknown option --bach (did you mean --batch?)" + help);
  expect_refused("vit_tiny --lr abc", "--lr abc: is not a number, like 0.001");
  expect_refused("vit_tiny --batch 2.5", "--batch 2.5: is not a whole number of images, like 2");
  expect_refused("vit_tiny --image-size 64x64",
                 "--image-size 64x64: is not a number of pixels, like 64");
  expect_refused("cifar vit_tiny",
                 "cifar is a file or folder; the model comes first: ./launcher MODEL --data cifar");
  make_run("run");
  expect_refused_by_all("resnet34 --config run/config.json --out no",
                        "run/config.json: --patch-size: resnet34 has no patches");
  expect_refused("run", "run is a run's folder: ./launcher --resume run continues it");
  expect_refused("data check --data cifar",
                 "--data is not an option of data check, whose form is: ./launcher data check PATH "
                 "[--min-side N] [--json]; ./launcher data check --help lists all");
  write_text(in("photo.jpg"), "");
  expect_refused("predict photo.jpg run/best",
                 "photo.jpg: an image; first comes a run or weights: ./launcher predict RUN "
                 "photo.jpg");
  expect_refused("vit_tiny -n 0", "-n 0: must be at least 1 and at most 1024");
  expect_refused("vit_tiny --lr", "--lr needs a value: --lr X");
  expect_refused("vit_tiny --optimizer adan",
                 "--optimizer adan: must be one of sgd, adam, adamw (did "
                 "you mean adam?)");
  expect_refused("vit_tiny --batch 4 --local-batch 4",
                 "--batch and --local-batch can't be used together");
  expect_refused("--data cifar",
                 "no MODEL given: ./launcher MODEL [options], or --recipe NAME; models: resnet101, "
                 "resnet152, resnet18, resnet34, resnet50, resnext50_32x4d, vit_base, vit_large, "
                 "vit_large_distilled, vit_small, vit_tiny, vit_tiny_distilled");
  expect_refused_by_all("vit_tiny --schedule constant --period-epochs 5",
                        "--period-epochs needs --schedule cosine, not constant");
  expect_refused_by_all("vit_tiny --device cpu --precision fp32 --amp-policy 0 --amp-end 9",
                        "--amp-policy 0 switches between fp32 and --precision, which is fp32; try "
                        "fp16 or bf16");
  expect_refused("vit_tiny --device cpu --precision fp16 --amp-policy 1",
                 "--precision fp16: " + of_the_cpu);
  expect_refused("vit_tiny --device cpu --amp-policy 1",
                 "--amp-policy 1 needs --amp-end N, its last epoch in 16 bits");
  expect_refused("vit_tiny --amp-policy 3", "--amp-policy 3: must be one of none, 0, 1, 2");
  expect_refused("vit_tiny --epochs 5 --lr-after 5:1e-6",
                 "--lr-after 5:1e-6 never begins: the run ends after 5 epochs (--epochs)");
  const auto expect_unused = [&](const std::string& words, const std::string& what) {
    expect_refused(on_vit + words, split(words, ' ').at(2) + " has no effect without " + what);
  };
  for (const char* option : {"adamw --nesterov", "adamw --momentum .5", "adam --nesterov"})
    expect_unused(std::string("--optimizer ") + option, "--optimizer sgd");
  for (const char* option : {"--betas .9,.95", "--eps 1e-6"})
    expect_unused(std::string("--optimizer sgd ") + option, "--optimizer adam or adamw");
  expect_unused("--optimizer sgd --nesterov --momentum 0", "--momentum");
  write_text(in("c.json"), "{\"imagesize\": 64}");
  expect_refused("vit_tiny --config c.json",
                 "c.json: unknown key 'imagesize' (did you mean image_size?)");
  write_text(in("d.json"), "{\"lr\": \"much\"}");
  expect_refused("vit_tiny --config d.json", "d.json: 'lr' much: must be a number");
}

TEST_F(ProgramErrors, OfTheData) {
  fs::create_directory(in("empty"));
  make_class_folders(in("one"), 1, 3);
  make_class_folders(in("hollow"), 2, 3);
  fs::create_directory(in("hollow/class7"));
  auto records = cifar_records(4, 0);
  records.pop_back();
  make_cifar(in("short")), write_file(in("short/data_batch_1.bin"), records);
  records.push_back(0);
  records[2 * 3073] = 10;
  make_cifar(in("label")), write_file(in("label/data_batch_1.bin"), records);

  const std::string data = on_vit + "--batch 2 --data ";
  expect_refused(data + "nowhere", "--data nowhere: no such folder");
  expect_refused(data + "cifar/test_batch.bin",
                 "--data cifar/test_batch.bin: is a file; give the folder of class folders or of "
                 "CIFAR's .bin files");
  expect_refused_by_all(data + "empty",
                        "empty: no class folders in it (nor train/ and val/, nor "
                        "CIFAR's .bin files)");
  expect_refused(data + "one",
                 "one: has one class, 'class0'; at least two class folders are needed");
  expect_refused(data + "hollow",
                 "hollow/class7: a class folder without images (" + known_formats() + " are read)");
  expect_refused(data + "short",
                 "short/data_batch_1.bin: its size, 12291 bytes, is not a multiple of "
                 "3073, the size of a CIFAR-10 record; download or copy it again");
  expect_refused(data + "label",
                 "label/data_batch_1.bin: record 2 has label 10, above 9; is it a "
                 "CIFAR-10 file?");
  expect_refused(data + "cifar --classes 5", "--classes 5: cifar has 10 classes");
}

// A file whose damage is found only when it is decoded.
TEST_F(ProgramErrors, ABadImageEndsTheRunWithItsName) {
  make_class_folders(in("photos"), 2, 4);
  write_text(in("photos/class1/2.ppm"), "P6\n40 36\n255\nshort");
  write_text(in("photos/class1/3.ppm"), "no image");
  for (const std::string n : {"-n 1 ", "-n 2 "}) {
    const Finished end = run(
        n + on_vit + "--data photos --batch 4 --steps 4 --augment none --out run" + n.substr(3));
    EXPECT_EQ(end.code, 2) << end.output;
    EXPECT_EQ(std::ranges::count(end.errors, '\n'), 1) << end.errors;
    EXPECT_TRUE(has(end.errors, "photos/class1/"));
  }
}

// Bad headers are reported before the first step, even those of images that the run doesn't use.
TEST_F(ProgramErrors, OfAllHeadersAtOnce) {
  make_class_folders(in("photos"), 2, 40);
  write_text(in("photos/class0/7.ppm"), "");
  for (const std::string file : {"0", "12", "30"})
    write_text(in("photos/class1/" + file + ".ppm"), "no image");
  const std::string first = "photos/class0/7.ppm: the file is empty";
  for (const std::string n : {"1", "2"}) {
    const std::string words =
        "-n " + n + " " + on_vit + "--data photos --batch 2 --steps 1 --out run" + n;
    const Finished end = run(words);
    EXPECT_EQ(end.code, 2) << end.output;
    EXPECT_EQ(end.errors,
              first + ", and 3 more can't be read (--on-bad-image skip skips such files)\n");
    EXPECT_FALSE(fs::exists(in("run" + n)));
    const Finished skipping = run(words + " --on-bad-image skip");
    EXPECT_EQ(skipping.code, 0) << skipping.errors;
    EXPECT_TRUE(
        has(skipping.output,
            "warning: 4 of 80 images can't be read and will be skipped, the first " + first));
  }
}

// Only the header check reports bad images, not every process that reads them.
TEST_F(ProgramErrors, OfSkippedImagesAreSaidAndCountedOnce) {
  make_class_folders(in("photos"), 2, 10);
  for (const std::string file : {"0", "1", "2"})
    write_text(in("photos/class1/" + file + ".ppm"), "no image");
  const Finished end = go("-n 2 " + on_vit + "--data photos --batch 4 --epochs 3 --out run " +
                          "--on-bad-image skip");
  EXPECT_TRUE(has(end.output, "3 of 20 images can't be read"));
  EXPECT_TRUE(has(end.output, "\nbad images skipped: 3\n"));
  EXPECT_EQ(end.errors, "");
}

TEST_F(ProgramErrors, OfABadImageThatWasDeleted) {
  make_class_folders(in("photos"), 2, 10);
  go(on_vit + "--data photos --batch 4 --steps 1 --out run");
  write_text(in("photos/class1/3.ppm"), "");
  expect_refused("--resume run --steps 2",
                 in("photos/class1/3.ppm") +
                     ": the file is empty (--on-bad-image skip skips such files; if they are "
                     "deleted, the run can't be resumed)");
  fs::remove(in("photos/class1/3.ppm"));
  expect_refused("--resume run --steps 2",
                 in("photos") +
                     ": its files or classes have changed since the run in run began "
                     "(photos/class1/3.ppm is gone); put them "
                     "back (--on-bad-image skip skips bad ones), or start a new run from --weights "
                     "run/last/weights.safetensors");
  write_text(in("photos/class1/3.ppm"), "");
  go("--resume run --steps 2 --on-bad-image skip");
}

TEST_F(ProgramErrors, OfSizesDevicesAndFolders) {
  const std::string cifar = on_vit + "--data cifar ";
  expect_refused("-n 2 " + cifar + "--batch 9",
                 "--batch 9 is not divisible by 2 processes; 8 would fit");
  expect_refused_by_all(cifar + "--batch 46",
                        "--batch 46 is larger than the training data (44 "
                        "images); 44 would fit");
  expect_refused(cifar + "--local-batch 46",
                 "--batch 46 is larger than the training data (44 "
                 "images); 44 would fit");
  expect_refused(cifar + "--mixup .2 --batch 9",
                 "--batch 9 is odd, and images are mixed in pairs; 8 would fit");
  expect_refused("-n 2 " + cifar + "--augment strong --batch 10",
                 "--batch 10 is odd in each process, and images are mixed in pairs; 8 would fit");
  expect_refused("-n 2 " + cifar + "--cutmix 1 --local-batch 23",
                 "--batch 46 is odd in each process, and images are mixed in pairs; 44 would fit");
  std::string why;
  if (!is_built(DeviceKind::cuda))
    expect_refused_by_all(cifar + "--device cuda",
                          "--device cuda: this program was built without CUDA; make reports "
                          "what it found");
  else if (gpu_count(&why) == 0)
    expect_refused_by_all(cifar + "--device cuda", "--device cuda: no GPU (" + why +
                                                       "); leave it out, or give --device cpu");
  expect_refused(cifar + "--precision fp16", "--precision fp16: " + of_the_cpu);
  // In a process of its own: oneDNN can be limited only before its first use.
  setenv("BAREVISION_ISA", "avx2", 1);
  const Finished limited = run(cifar + "--precision bf16");
  unsetenv("BAREVISION_ISA");
  EXPECT_EQ(limited.code, 2);
  EXPECT_EQ(limited.errors,
            "--precision bf16: the cpu device computes in fp32 (--precision fp32); bf16 needs "
            "a CPU with AVX512_BF16\n");
  expect_refused("vit_tiny --data cifar --image-size 33 --patch-size 8",
                 "the image size 33 is not divisible by the patch size 8; --image-size 32 or 40 "
                 "would be");
  write_text(in("full/file"), "x");
  expect_refused_by_all(cifar + "--out full",
                        "--out full exists and is not empty, and has no run; name a new folder, "
                        "like --out full/run");
  expect_refused(cifar + "--out full/file",
                 "--out full/file is a file where the run's folder "
                 "should be; name another");
  expect_refused_by_all(cifar + "--batch 2 --out full/file/run",
                        "--out full/file/run: can't make this folder: Not a directory");
}

TEST_F(ProgramErrors, OfWeights) {
  make_run("run");
  const std::string cifar = on_vit + "--data cifar --batch 2 --weights ",
                    file = "run/last/weights.safetensors";
  TensorFile weights = read_safetensors(in(file));
  weights.tensors["blocks.3.norm1.bias"].data[7] = NAN;
  write_safetensors(in("nan.safetensors"), weights);
  weights.metadata["model"] = "resnet50";
  write_safetensors(in("other.safetensors"), weights);
  weights.metadata.clear();
  weights.tensors.erase("blocks.3.norm1.bias");
  weights.tensors["fc.bias"] = {.shape = {1}, .data = {1}};
  weights.tensors["norm.weight"] = {.shape = {1}, .data = {1}};
  write_safetensors(in("odd.safetensors"), weights);
  write_text(in("cut.safetensors"), contents(in(file)).substr(0, 1000000));

  expect_refused(cifar + "nowhere.safetensors", "nowhere.safetensors: no such file");
  expect_refused(cifar + "run",
                 "--weights run: a folder; give a file: run/best/weights.safetensors or "
                 "run/last/weights.safetensors");
  fs::create_directory(in("empty"));
  expect_refused_by_all(cifar + "empty", "--weights empty: a folder; give a file, .safetensors");
  expect_refused_by_all(cifar + "nan.safetensors",
                        "nan.safetensors: these weights don't fit the "
                        "model; not finite: blocks.3.norm1.bias");
  expect_refused(cifar + "other.safetensors",
                 "other.safetensors: weights of resnet50, not of vit_tiny");
  expect_refused("vit_large --data cifar --image-size 32 --batch 2 --weights " + file,
                 file + ": weights of vit_tiny, not of vit_large");
  expect_refused(cifar + "odd.safetensors",
                 "odd.safetensors: these weights don't fit the model; missing: "
                 "blocks.3.norm1.bias; extra: fc.bias; wrong shape: norm.weight [1] for "
                 "[192]");
  expect_one_line(cifar + "cut.safetensors", "cut.safetensors: ");
  go(on_vit + "--data cifar --batch 8 --steps 1 --out moments");
  expect_refused(cifar + "moments/last/state.safetensors",
                 "moments/last/state.safetensors: the optimizer's moments, not weights; give "
                 "moments/last/weights.safetensors");
}

// Each names the place of the mistake and a way out.
TEST_F(ProgramErrors, NameTheWayOut) {
  make_run("run");
  make_cifar(in("cifar"));
  make_class_folders(in("photos"), 2, 3);
  write_text(in("data.tar.gz"), "");
  const std::string cifar = on_vit + "--data cifar ";
  expect_advice("lint --data cifar", "no MODEL given: ./launcher lint MODEL [options], ");
  expect_advice("report run/last", "it has no config.json; run is the run");
  expect_advice("eval run/weights.safetensors", "or weights file; run is the run");
  expect_advice(cifar + "--resume run/last", "it has no config.json; run is the run");
  expect_advice(cifar + "--config run", "--config run: a folder; give run/config.json");
  expect_advice(cifar + "--amp-hold 3", "--amp-hold needs --amp-policy 1");
  expect_advice(cifar + "--val 0.2", "--val 0.2: no such folder; a fraction is --val-fraction 0.2");
  expect_advice("data check data.tar.gz", "data.tar.gz: is an archive; unpack it");
  expect_advice("data stats photos/class0",
                "; if its images are of one class, give the folder above it");
  expect_advice("eval run --classes a,b", "--classes a,b: no such file; here it is a file with");
  const std::string model = fs::absolute(models_folder() / "vit_tiny.json");
  for (const std::string option : {"--recipe ", "--config "})
    expect_advice(option + model + " --data cifar", "vit_tiny.json: a model's sizes and defaults");
  struct Config {
    std::string text, error;
  };
  for (const auto& [text, error] :
       {Config{"{'lr': 1}", ": text stands in double quotes"},
        {"{\"lr\": NaN}", ": there is no NaN in JSON"},
        {"{\"lr\": 1, # high\n}", "but keys that begin with //"},
        {"{\"lr\": \"1e-3\"}", "'lr' 1e-3: must be a number, without quotes"}}) {
    write_text(in("c.json"), text);
    expect_advice(cifar + "--config c.json", error);
  }
}

void replace_in(const std::string& path, const std::string& from, const std::string& to) {
  write_text(path, replaced(contents(path), from, to));
}

TEST_F(ProgramErrors, OfResumedRuns) {
  make_run("run");
  expect_refused(
      "--resume nowhere",
      "--resume nowhere: no such folder; give a MODEL or --recipe, too, to start a run there");
  expect_refused("--resume cifar", "--resume cifar: not a run folder, it has no config.json");
  for (const std::string inside : {"run/last", "run/last/", "run/last/weights.safetensors"})
    expect_refused(
        "--resume " + inside,
        "--resume " + inside + ": not a run folder, it has no config.json; run is the run");
  expect_refused("--resume run --lr 3",
                 "--lr can't be changed with --resume: the run has 0.001; leave it out, or start "
                 "a new run from --weights run/last/weights.safetensors");
  expect_refused("vit_large --resume run",
                 "MODEL can't be changed with --resume: the run has vit_tiny; leave it out, or "
                 "start a new run with another --out");
  expect_refused("-n 3 --resume run --device cpu",
                 "the batch of 8 images of the run in run is not divisible by 3 processes; -n 2 "
                 "would fit");

  make_cifar(in("cifar"), 45);
  expect_refused_by_all("--resume run",
                        in("cifar") +
                            ": its files or classes have changed since the run in run "
                            "began; put them back, or start a new run from --weights "
                            "run/last/weights.safetensors");
  make_cifar(in("cifar"));

  const std::string good = contents(in("run/last/state.json"));
  replace_in(in("run/last/state.json"), "\"version\": 1", "\"version\": 2");
  expect_refused_by_all("--resume run",
                        "run/step-00000002/state.json: made by a newer barevision: "
                        "format 2, this one reads 1");
  write_text(in("run/last/state.json"), good);
  replace_in(in("run/config.json"), "\"model\": \"vit_tiny\"", "\"model\": \"vit_large\"");
  expect_refused("--resume run", "run/last: a checkpoint of vit_tiny, not of vit_large");
  replace_in(in("run/config.json"), "\"model\": \"vit_large\"", "\"model\": \"vit_tiny\"");
  fs::resize_file(in("run/last/weights.safetensors"), 1000000);
  expect_one_line("--resume run", "run/step-00000002/weights.safetensors: truncated: 1000000 of ");
}

TEST_F(ProgramErrors, OfAConfigEditedSinceTheCheckpoint) {
  make_run("run");
  const std::string good = contents(in("run/config.json"));
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& why) {
    write_text(in("run/config.json"), good);
    replace_in(in("run/config.json"), from, to);
    expect_refused("--resume run --steps 3", "run/config.json was edited: " + why +
                                                 "; put it back, or start a new run from --weights "
                                                 "run/last/weights.safetensors");
  };
  refused("\"momentum\": 0", "\"momentum\": 0.5", "momentum was 0 and is 0.5");
  refused("\"augment\": \"basic\"", "\"augment\": \"none\"", "augment was basic and is none");
  refused("\"nesterov\": false", "\"nesterov\": true", "nesterov was false and is true");
  // Options allowed with --resume may also be edited in config.json.
  write_text(in("run/config.json"), good);
  replace_in(in("run/config.json"), "\"log_every\": 1", "\"log_every\": 2");
  EXPECT_EQ(go("--resume run --steps 3").code, 0);
}

TEST_F(ProgramErrors, OfMemoryThatIsTooSmallSayWhatFits) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer wants all addresses";
#endif
  // 2 GiB: CUDA's libraries alone map more than 500 MiB.
  const Finished end =
      run_program(folder_.path(), "vit_tiny --data synthetic --batch 200 --out run",
                  {.address_space = size_t{2} << 30});
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(end.errors.starts_with("the plan needs ")) << end.errors;
  EXPECT_EQ(std::ranges::count(end.errors, '\n'), 1) << end.errors;
  EXPECT_NE(end.errors.find(" per process, but 2.00 GiB is available; --batch "), std::string::npos)
      << end.errors;
}

TEST_F(ProgramErrors, OfPipesAndHugeFiles) {
  const auto pipe = [&](const std::string& name) {
    fs::remove_all(in(name));
    ASSERT_EQ(mkfifo(in(name).c_str(), 0600), 0);
  };
  make_run("run");
  pipe("pipe");
  const std::string cifar = on_vit + "--batch 2 --data cifar ";
  expect_refused("vit_tiny --config pipe", "pipe: not a regular file");
  expect_refused("vit_tiny --config /dev/zero", "/dev/zero: not a regular file");
  expect_refused_by_all(cifar + "--weights pipe", "pipe: not a regular file");
  pipe("run/metrics.jsonl");
  expect_one_line("--resume run --steps 3", "run/metrics.jsonl: ");
  fs::remove(in("run/metrics.jsonl"));
  pipe("run/config.json.partial");
  go("--resume run --steps 3");
  pipe("run/last/state.json");
  expect_one_line("--resume run --steps 4", "run/step-00000003/state.json: not a regular file");
  pipe("cifar/batches.meta.txt");
  expect_refused(cifar, "cifar/batches.meta.txt: not a regular file");
  fs::remove(in("cifar/batches.meta.txt"));
  pipe("cifar/data_batch_1.bin");
  expect_refused(cifar, "cifar/data_batch_1.bin: not a regular file");

  // Sparse files, which take no space on the disk.
  fs::remove(in("cifar/data_batch_1.bin"));
  write_text(in("cifar/data_batch_1.bin"), "");
  fs::resize_file(in("cifar/data_batch_1.bin"), 3073ull << 30);
  expect_refused(cifar, "cifar/data_batch_1.bin: larger than 29306 MiB");
  const std::string header =
      R"({"x":{"dtype":"F16","shape":[1099511627776],"data_offsets":[0,2199023255552]}})";
  std::string start(8, '\0');
  start[0] = static_cast<char>(header.size());
  write_text(in("huge.safetensors"), start + header);
  fs::resize_file(in("huge.safetensors"), start.size() + header.size() + 2199023255552);
  make_cifar(in("cifar"));
  expect_one_line(cifar + "--weights huge.safetensors",
                  "huge.safetensors: its tensors take 4194304 MiB, this machine has ");
  write_text(in("huge.json"), "{");
  fs::resize_file(in("huge.json"), 1ull << 40);
  expect_refused("vit_tiny --config huge.json", "huge.json: larger than 1 MiB");
}

// A picture becomes a pipe, or a terabyte, in the middle of a run.
TEST_F(ProgramErrors, OfAPictureThatIsReplaced) {
  for (const bool is_pipe : {true, false}) {
    fs::remove_all(in("run"));
    make_class_folders(in("photos"), 2, 4);
    Program training(folder_.path(), on_vit + "--data photos --batch 2 --epochs 100000 " +
                                         "--cache-mb 0 --workers 1 --out run");
    ASSERT_TRUE(training.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
    if (is_pipe)
      mkfifo(in("other").c_str(), 0600);
    else
      write_text(in("other"), ""), fs::resize_file(in("other"), 1ull << 40);
    fs::rename(in("other"), in("photos/class1/3.ppm"));  // atomic: the file always exists
    const Finished end = training.wait();
    EXPECT_EQ(end.code, 2) << end.output;
    EXPECT_EQ(end.errors,
              "photos/class1/3.ppm: " +
                  std::string(is_pipe ? "not a regular file" : "larger than 1024 MiB") +
                  " (--on-bad-image skip skips such files; once they are deleted, the run "
                  "can't be resumed)\n");
    fs::remove_all(in("photos"));
  }
}

// Names and variables from outside.
TEST_F(ProgramErrors, AreShownWithoutControlCharacters) {
  expect_refused(on_vit + "--data no\x1b[2Jwhere\x7f", "--data no?[2Jwhere?: no such folder");
  make_class_folders(in("photos"), 2, 4);
  fs::rename(in("photos/class1"), in("photos/cl\x1b[31mss"));
  write_text(in("photos/cl\x1b[31mss/2.ppm"), "P6\n40 36\n255\nshort");
  const Finished end = run(on_vit + "--data photos --batch 8 --epochs 1 --val-fraction 0.01 " +
                           "--on-bad-image skip --out r\x1b[5mn");
  EXPECT_EQ((end.output + end.errors).find('\x1b'), std::string::npos) << end.output << end.errors;
}

TEST_F(ProgramErrors, OfTheEnvironment) {
  const auto with = [&](const std::string& name, const std::string& value,
                        const std::string& words) {
    return run_program(folder_.path(), words, {.environment = {{name, value}}});
  };
  const std::string words = on_vit + "--data cifar --batch 2 --steps 1 --out run";
  for (const std::string threads : {"0", "abc", "-3", "99999999"}) {
    const Finished end = with("OMP_NUM_THREADS", threads, words);
    EXPECT_EQ(end.code, 2);
    EXPECT_TRUE(end.errors.ends_with("OMP_NUM_THREADS=" + threads +
                                     " in the environment should be a number from 1 to 1024; "
                                     "unset it to use all cores\n"))
        << end.errors;
  }
  EXPECT_EQ(with("RANK", "x\x1b", words).code, 2);
  EXPECT_EQ(with("RANK", "x", "-n 1 " + words).code, 0);  // with -n this is the launcher
  fs::remove_all(in("run"));
  const Finished twice =
      run_program(folder_.path(), "-n 2 " + words,
                  {.environment = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}});
  EXPECT_EQ(twice.code, 2);
  EXPECT_EQ(twice.errors,
            "mpirun has started 2 ranks already (OMPI_COMM_WORLD_SIZE in the environment): leave "
            "out -n; in a shell of its own, env -u OMPI_COMM_WORLD_SIZE ./launcher -n N does so "
            "here\n");
  const Variables shell = {
      {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  Variables step = shell;
  step.emplace_back("SLURM_STEP_NUM_TASKS", "2");
  EXPECT_TRUE(has(run_program(folder_.path(), "-n 2 " + words, {.environment = step}).errors,
                  "in a shell of its own, srun --overlap ./launcher starts ranks, env -u "
                  "SLURM_STEP_NUM_TASKS ./launcher -n N does so here"));
  EXPECT_TRUE(has(
      run_program(folder_.path(), words + " --timeout 1", {.environment = step}).errors,
      "start every rank, or have them started here by env -u SLURM_STEP_NUM_TASKS ./launcher -n "
      "2\n"));
  EXPECT_EQ(run_program(folder_.path(), "-n 2 " + words, {.environment = shell}).code, 0);
  fs::remove_all(in("run"));
  EXPECT_EQ(with("OMP_NUM_THREADS", "1,2", words).code, 0);
  EXPECT_EQ(with("BAREVISION_MODELS", in("nowhere"), words).errors,
            "BAREVISION_MODELS=" + in("nowhere") + ": no such folder\n");
}

// Numbers with a valid checksum that no run on this data and schedule can reach.
TEST_F(ProgramErrors, OfProgressThatCantBe) {
  make_run("run");  // 2 of 5 batches
  const Checkpoint good = load_checkpoint(in("run"));
  const auto expect_damaged = [&](const std::string& what, auto change) {
    Checkpoint c = good;
    change(c);
    save_checkpoint(in("run"), c, tensors_of(c), false, 1);
    expect_refused_by_all("--resume run --steps 4",
                          "run/last/state.json: damaged: " + what + " after " +
                              std::to_string(c.step) +
                              " steps can't be in a run of 5 batches per epoch, 1 per update");
  };
  for (const int64_t huge : {INT64_MAX, INT64_MAX - 4, int64_t{1} << 62}) {
    expect_damaged("epoch " + std::to_string(huge) + ", batch 2",
                   [&](Checkpoint& c) { c.epoch = huge; });
    expect_damaged("epoch 0, batch " + std::to_string(huge),
                   [&](Checkpoint& c) { c.batch = huge; });
  }
  expect_damaged("loss_scale inf", [](Checkpoint& c) { c.update.loss_scale = HUGE_VALF; });
  save_checkpoint(in("run"), good, tensors_of(good), false, 1);
  go("--resume run --steps 4");
}

// Another launcher may start its ranks with different options.
TEST_F(ProgramErrors, OfRanksWithDifferentOptions) {
  const char* rank = "OMPI_COMM_WORLD_RANK";
  const char* size = "OMPI_COMM_WORLD_SIZE";
  const char* job = "PMIX_NAMESPACE";
  setenv(size, "2", 1);
  setenv(job, folder_.path().c_str(), 1);
  setenv(rank, "0", 1);
  const std::string words = on_vit + "--data synthetic --batch 4 --steps 2 --out ";
  Program first(folder_.path(), words + "run");
  setenv(rank, "1", 1);
  Program second(folder_.path(), words + "run --lr 0.5");
  for (const char* name : {rank, size, job}) unsetenv(name);
  const Finished a = first.wait(), b = second.wait();
  EXPECT_EQ(b.code, 2);
  EXPECT_NE(a.code, 0);
  EXPECT_EQ(a.errors + b.errors,
            "rank 1 was started with \"lr\": 0.5, rank 0 with \"lr\": 0.0005; start all with the "
            "same options\n");
}

}  // namespace
}  // namespace bv::test
