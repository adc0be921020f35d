// eval and predict as users run them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>

#include "base/json.h"
#include "base/machine.h"
#include "base/text.h"
#include "engine/files/safetensors.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

const Json& member(const Json& object, const std::string& name) { return object.at(name); }
std::string keys_of(const Json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items()) keys += (keys.empty() ? "" : " ") + key;
  return keys;
}
std::string text_of(const Json& object, const std::string& name) {
  return scalar_text(member(object, name));
}
// The JSON objects, one per line; there must be nothing else.
std::vector<Json> objects_in(const std::string& text) {
  std::vector<Json> objects;
  Strings lines = split(text, '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  for (const std::string& line : lines) objects.push_back(parse_json_object(line, "output"));
  return objects;
}

// Compares the outputs for two batch sizes. In oneDNN's AVX2 products, the last bit of some rows
// depends on their place in the batch; with AVX-512 it doesn't.
void expect_same_numbers(const std::string& got, const std::string& want) {
  if (has_avx512()) {
    EXPECT_EQ(got, want);
    return;
  }
  const std::regex number("-?[0-9]+\\.[0-9]+(e-?[0-9]+)?");
  EXPECT_EQ(std::regex_replace(got, number, "#"), std::regex_replace(want, number, "#"));
  const auto numbers = [&](const std::string& text) {
    std::vector<double> found;
    for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at)
      found.push_back(*parse_number(at->str()));
    return found;
  };
  const std::vector<double> a = numbers(got), b = numbers(want);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6 * (1 + std::abs(b[i])));
}

// Runs a ViT of two blocks on six classes of ten pictures; `photos` holds out six pictures.
class Evaluation : public ProgramTest {
 protected:
  Evaluation() {
    change_model("vit_tiny", R"("depth": 12)", R"("depth": 2)");
    make_class_folders(in("photos"), 6, 10);
  }
  void train_run(const std::string& out, const std::string& words = "", int steps = 4) const {
    go(on_vit + "--data photos --batch 6 --lr 1e-3 --steps " + std::to_string(steps) + " --out " +
           out + " " + words,
       {.threads = 1});
  }
  Json eval(const std::string& words) const {
    const Finished end = go("eval --json " + words);
    const std::vector<Json> objects = objects_in(end.output);
    EXPECT_EQ(objects.size(), 1u) << end.output;
    return objects.at(0);
  }
  void expect_numbers_of(const std::string& run, const std::string& prefix,
                         const Json& result) const {
    expect_same_numbers(text_of(result, "loss"), last_metric(in(run), "epoch", prefix + "_loss"));
    EXPECT_EQ(text_of(result, "top1"), last_metric(in(run), "epoch", prefix + "_top1"));
    if (prefix == "val") {
      EXPECT_EQ(text_of(result, "top5"), last_metric(in(run), "epoch", "val_top5"));
    }
    EXPECT_EQ(text_of(result, "count"), "6");
  }
  void expect_refused(const std::string& words, const std::string& line) const {
    const std::set<std::string> before = names_in(folder_.path());
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << "\n" << end.output;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), line)) << words;
    EXPECT_EQ(end.output, "") << words;
    EXPECT_EQ(names_in(folder_.path()), before) << words;
  }
  // The same weights without metadata, like files from other programs.
  void strip(const std::string& from, const std::string& to) const {
    TensorFile file = read_safetensors(in(from));
    file.metadata = {{"format", "pt"}};
    write_safetensors(in(to), file);
  }
};

TEST_F(Evaluation, OfARunGivesItsOwnNumbersWithAnyNumberOfProcesses) {
  for (const std::string n : {"1", "2", "3"}) {
    const std::string run = "run" + n;
    train_run(run, "-n " + n);
    for (const std::string m : {"1", "2", "3"})
      expect_numbers_of(run, "val", eval("-n " + m + " " + run));
    expect_numbers_of(run, "val", eval(run + "/best"));
  }
}

TEST_F(Evaluation, OfARunWithAnAverageIsOfTheAverage) {
  train_run("run", "--ema .5");
  expect_numbers_of("run", "ema", eval("run"));
  const std::string data = " --data photos";
  expect_numbers_of("run", "val", eval("run/last/weights.safetensors" + data));
  expect_numbers_of("run", "ema", eval("run/last/ema.safetensors" + data));
}

TEST_F(Evaluation, OnSimtGivesItsOwnNumbersToo) {
  train_run("run", "--device simt -n 2", 1);
  expect_numbers_of("run", "val", eval("run -n 2"));
  expect_numbers_of("run", "val", eval("run --no-graph"));
}

TEST_F(Evaluation, PrintsCountsAndAReportOfEachClass) {
  train_run("run", "--report");
  const Finished end = go("eval run --split all --confusion c.csv");
  EXPECT_EQ(end.errors, "");
  for (const std::string part :
       {"weights: run/last/weights.safetensors\n", "; val-fraction 0.1, split seed 0\n",
        "all: 60 images, loss ", " of 60), top-5 ", "   precision    recall  f1-score   support\n",
        "\n      class0  ", "\nweighted avg  "})
    EXPECT_TRUE(has(end.output, part));
  const Json result = eval("run --split all");
  EXPECT_EQ(keys_of(result), "count loss top1 top5 classes confusion per_class");
  int64_t all = 0, right = 0;
  std::string csv = "true\\predicted,class0,class1,class2,class3,class4,class5\n";
  const Json& matrix = member(result, "confusion");
  for (size_t row = 0; row < 6; ++row) {
    csv += "class" + std::to_string(row);
    int64_t support = 0;
    for (size_t k = 0; k < 6; ++k) {
      const std::string text = matrix.at(row).at(k).dump();
      csv += "," + text;
      support += *parse_integer(text);
      if (k == row) right += *parse_integer(text);
    }
    csv += "\n";
    all += support;
    const Json& scores = member(result, "per_class").at(row);
    EXPECT_EQ(keys_of(scores), "class precision recall f1 support");
    EXPECT_EQ(text_of(scores, "support"), std::to_string(support));
  }
  EXPECT_EQ(contents(in("c.csv")), csv);
  EXPECT_EQ(all, 60);
  EXPECT_NEAR(*parse_number(text_of(result, "top1")), double(right) / 60, 1e-8);

  // A run of two processes prints the same report, after its evaluation's line.
  const Finished again =
      go(on_vit + "--data photos --batch 6 --lr 1e-3 --steps 4 --report -n 2 --out run2");
  const std::string once = go("eval run2").output;
  EXPECT_TRUE(has(again.output, once.substr(once.find("\n\n") + 2)));
  EXPECT_GT(again.output.find("accuracy"), again.output.find("epoch  1  train "));
}

TEST_F(Evaluation, OfWeightsTakesTheFoldersOwnSplit) {
  train_run("run");
  make_class_folders(in("parts/train"), 6, 2);
  make_class_folders(in("parts/val"), 6, 3);
  EXPECT_EQ(text_of(eval("run/best --data parts"), "count"), "18");
  EXPECT_EQ(text_of(eval("run/best/weights.safetensors --data parts --split train"), "count"),
            "12");
  EXPECT_EQ(text_of(eval("run/last/weights.safetensors --data photos --val-fraction .5"), "count"),
            "30");
  // All of what training has not seen, in a line that says so; of a run's own data the part that it
  // held out, also at another place.
  make_class_folders(in("others"), 6, 4);
  fs::copy(in("photos"), in("moved"), fs::copy_options::recursive);
  for (const char* weights : {"run", "run/last/weights.safetensors"}) {
    const std::string words = std::string("eval ") + weights;
    EXPECT_TRUE(has(go(words + " --data others").output,
                    "\nall images are evaluated, training has held none of them out; --split val "
                    "takes the part of --val-fraction\n"));
    EXPECT_TRUE(has(go(words + " --data others").output, "\nall: 24 images, loss "));
    EXPECT_TRUE(has(go(words + " --data others --split val").output, "\nval: 6 images, loss "));
    EXPECT_TRUE(has(go(words + " --data moved").output, "\nval: 6 images, loss "));
  }
  // Data with three of the weights' classes; the second is the weights' last.
  make_class_folders(in("three"), 3, 4);
  fs::rename(in("three/class1"), in("three/class5"));
  const Json some = eval("run --data three --split all");
  Strings supports;
  for (const Json& scores : member(some, "per_class"))
    supports.push_back(text_of(scores, "support"));
  EXPECT_EQ(supports, (Strings{"4", "0", "4", "0", "0", "4"}));
}

TEST_F(Evaluation, ASkippedPictureDoesntCount) {
  train_run("run");
  write_text(in("photos/class0/bad.jpg"), "\xFF\xD8\xFF no picture");
  const Finished end = run("eval run --split all --json --on-bad-image skip -n 2");
  EXPECT_EQ(end.code, 0) << end.errors;
  EXPECT_EQ(text_of(objects_in(end.output).at(0), "count"), "60");
  EXPECT_TRUE(has(end.errors, "skipped bad image "));
  EXPECT_TRUE(has(end.errors, "/photos/class0/bad.jpg: "));
  EXPECT_EQ(run("eval run --split all --json").code, 2);
}

TEST_F(Evaluation, BadInputIsOneLine) {
  train_run("run");
  const std::string weights = "run/last/weights.safetensors";
  strip(weights, "bare.safetensors");
  const std::string bare = "bare.safetensors --model vit_tiny --patch-size 16 --image-size 32 ";
  write_text(in("flat/a.ppm"), contents(in("photos/class0/0.ppm")));
  make_class_folders(in("others"), 2, 3);
  fs::rename(in("others/class1"), in("others/daisy"));
  write_text(in("no.safetensors"), "not one at all");
  fs::create_directories(in("empty"));
  write_text(in("young/config.json"), contents(in("run/config.json")));
  write_text(in("two.txt"), "a\nb\n");
  write_text(in("twice.txt"), "a\nb\nc\nd\ne\ne\n");

  expect_refused("eval run --data flat",
                 "flat: no class folders in it (nor train/ and val/, nor CIFAR's "
                 ".bin files); if its images are of one class, give the folder above it; images "
                 "without labels are for ./launcher predict");
  expect_refused("eval run --data others",
                 "others: its classes (class0, daisy) are not those of " + weights +
                     " (class0, class1, class2, class3, class4, ...); --classes FILE says what "
                     "the data calls the weights' classes, one per line in their order");
  expect_refused("eval " + bare + "--data photos",
                 "bare.safetensors: doesn't name its classes; --classes FILE does");
  expect_refused("predict " + bare + "photos", "bare.safetensors: doesn't name its classes");
  expect_refused("eval bare.safetensors --data photos",
                 "bare.safetensors: doesn't say which model's weights it has; give --model, one "
                 "of vit_tiny");
  expect_refused("eval " + bare + "--classes two.txt --data photos",
                 "--classes two.txt: 2 classes, the weights have 6 outputs");
  expect_refused("eval " + bare + "--classes twice.txt --data photos",
                 "twice.txt: line 6 names the class 'e', as does line 5; give it another "
                 "name");
  expect_refused("eval " + bare + "--classes 7 --data photos",
                 "--classes 7: 7 classes, the weights have 6 outputs");
  expect_refused("eval run --model resnet34", weights + ": weights of vit_tiny, not of resnet34");
  expect_refused("eval " + weights, weights +
                                        ": weights have no data of their own; give --data "
                                        "PATH, or run/last for its run's");
  expect_refused("eval young",
                 "young: this run has no checkpoint yet, there is no "
                 "young/last/weights.safetensors");
  expect_refused("eval empty", "empty: not a run's folder, it has no config.json");
  expect_refused("eval nothing", "nothing: no such run folder or weights file");
  expect_refused("eval no.safetensors --data photos", "no.safetensors: ");
  expect_refused("eval run --confusion photos", "--confusion photos is not a file; name another");
  expect_refused("eval run --confusion /dev/full", "--confusion /dev/full is not a file");
  expect_refused("eval run --confusion no/c.csv", "--confusion no/c.csv: there is no folder no");
  expect_refused("eval run --data synthetic", "--data synthetic: random pixels say nothing");
  expect_refused("eval", "eval needs RUN|WEIGHTS; ./launcher eval --help lists all");
  expect_refused("predict run", "predict needs FILES|FOLDERS");
  expect_refused("predict run photos --topk 0", "--topk 0: must be at least 1");
  expect_refused("predict run nowhere", "nowhere: no such file or folder");
  expect_refused("predict run empty nowhere", "empty: no images in this folder (and 1 more)");
  expect_refused("predict run photos --lr 3", "--lr is not an option of predict");
  // Weights of a model of another size.
  const std::string model = in("models/vit_tiny.json");
  write_text(model, replaced(contents(model), R"("depth": 2)", R"("depth": 3)"));
  expect_refused("predict run photos", weights + ": these weights don't fit the model; missing: ");
}

TEST_F(Evaluation, SaysThatTheDataHasChanged) {
  train_run("run");
  EXPECT_FALSE(has(go("eval run").output, "warning"));
  write_text(in("run/val.txt"), contents(in("run/val.txt")) + "photos/class0/gone.ppm\n");
  EXPECT_TRUE(has(go("eval run").output,
                  "\nwarning: the data has changed since the run: 1 image is missing that "
                  "run/val.txt lists\n"));
  write_text(in("run/val.txt"), "photos/class0/gone.ppm\n");
  EXPECT_TRUE(has(go("eval run").output,
                  " images are not in run/val.txt, 1 image is missing that "
                  "it lists\n"));
  EXPECT_FALSE(has(go("eval run --data photos").output, "warning"));
}

TEST_F(Evaluation, AConfusionFileIsReplacedOrLosesNoResult) {
  train_run("run");
  write_text(in("c.csv"), "old");
  const Finished end = go("eval run --confusion c.csv");
  EXPECT_TRUE(contents(in("c.csv")).starts_with("true\\predicted,"));
  const Finished failed = run("eval run --confusion /proc/c.csv");  // where no file can be made
  EXPECT_EQ(failed.code, 1);
  EXPECT_EQ(failed.output, end.output);
  EXPECT_TRUE(failed.errors.starts_with("can't write /proc/c.csv")) << failed.errors;
}

TEST_F(Evaluation, PredictionsComeInTheOrderGiven) {
  train_run("run");
  const Finished table = go("predict run photos/class3/7.ppm photos/class1 --topk 2");
  EXPECT_EQ(table.errors, "");
  const Strings lines = split(table.output, '\n');
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_TRUE(lines[0].starts_with("photos/class3/7.ppm  class")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("photos/class1/0.ppm  class")) << lines[1];
  EXPECT_EQ(std::ranges::count(lines[1], '.'), 3) << lines[1];

  // The batch and the other pictures must not matter.
  const Finished all = go("predict run photos --json");
  const std::vector<Json> objects = objects_in(all.output);
  ASSERT_EQ(objects.size(), 60u);
  EXPECT_EQ(keys_of(objects[0]), "path class index probability topk logits");
  expect_same_numbers(go("predict run photos --json --batch 7").output, all.output);
  expect_same_numbers(go("predict run photos --json --batch 1 --workers 3").output, all.output);
  int right = 0;
  for (size_t i = 0; i < 60; ++i) {
    const std::string label = "class" + std::to_string(i / 10);
    EXPECT_EQ(text_of(objects[i], "path"),
              "photos/" + label + "/" + std::to_string(i % 10) + ".ppm");
    right += text_of(objects[i], "class") == label;
    std::vector<double> logits;
    for (const Json& logit : member(objects[i], "logits"))
      logits.push_back(*parse_number(scalar_text(logit)));
    ASSERT_EQ(logits.size(), 6u);
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    const auto index = static_cast<size_t>(*parse_integer(text_of(objects[i], "index")));
    EXPECT_EQ(text_of(objects[i], "class"), "class" + std::to_string(index));
    EXPECT_EQ(logits[index], *std::ranges::max_element(logits));
    EXPECT_NEAR(*parse_number(text_of(objects[i], "probability")), std::exp(logits[index]) / sum,
                1e-6);
    const Json& top = member(objects[i], "topk");
    ASSERT_EQ(top.size(), 5u);
    EXPECT_EQ(scalar_text(top[0][0]), text_of(objects[i], "class"));
    EXPECT_EQ(scalar_text(top[0][1]), text_of(objects[i], "probability"));
    EXPECT_GE(*parse_number(scalar_text(top[0][1])), *parse_number(scalar_text(top[1][1])));
  }
  // The accuracy must equal eval's.
  EXPECT_NEAR(*parse_number(text_of(eval("run --split all"), "top1")), right / 60., 1e-8);
}

TEST_F(Evaluation, APictureThatCantBeReadIsNamedAndTheRestIsDone) {
  train_run("run");
  write_text(in("mixed/a.jpg"), "\xFF\xD8\xFF no picture");
  for (const char* name : {"b.ppm", "deep/c.ppm", ".hidden.ppm"})
    write_text(in("mixed/") + name, contents(in("photos/class0/0.ppm")));
  write_text(in("mixed/notes.txt"), "no picture either");
  const Finished end = run("predict run mixed gone.jpg --json");
  EXPECT_EQ(end.code, 1);
  const std::vector<Json> objects = objects_in(end.output);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(text_of(objects[0], "path"), "mixed/b.ppm");
  EXPECT_EQ(text_of(objects[1], "path"), "mixed/deep/c.ppm");
  EXPECT_EQ(split(end.errors, '\n').size(), 3u) << end.errors;
  EXPECT_TRUE(has(end.errors, "gone.jpg: no such file or folder\n"));
  EXPECT_TRUE(has(end.errors, "skipped bad image mixed/a.jpg: "));
  EXPECT_EQ(run("predict run mixed/a.jpg").code, 2);
  EXPECT_EQ(run("predict run mixed/notes.txt mixed/b.ppm").code, 1) << "named, it is tried";
}

TEST_F(Evaluation, WeightsFromElsewhereAreToldWhatTheyAre) {
  train_run("run", "--crop-pct .9 --interpolation bicubic --mean .4,.5,.6 --std .2,.3,.4");
  strip("run/last/weights.safetensors", "bare.safetensors");
  write_text(in("names.txt"), "class0\r\nclass1\nclass2\nclass3\nclass4\nclass5\n\n");
  const std::string about =
      "--model vit_tiny --classes names.txt --image-size 32 --patch-size 16 --crop-pct .9 "
      "--interpolation bicubic --mean .4,.5,.6 --std .2,.3,.4 ";
  const std::string own = go("predict run/last/weights.safetensors photos --json").output;
  EXPECT_EQ(go("predict bare.safetensors photos --json " + about).output, own);
  EXPECT_NE(go("predict run photos --json --crop-pct 1").output, own);
  EXPECT_EQ(text_of(eval("bare.safetensors --data photos --split val " + about), "loss"),
            text_of(eval("run"), "loss"));
  const Finished numbered =
      go("predict bare.safetensors photos/class0/0.ppm --json --model vit_tiny "
         "--image-size 32 --patch-size 16 --classes 6");
  EXPECT_EQ(text_of(objects_in(numbered.output).at(0), "class"),
            text_of(objects_in(numbered.output).at(0), "index"));
}

TEST_F(Evaluation, OnSimtPredictsAsOnTheCpu) {
  train_run("run", "", 1);
  const auto logits = [&](const std::string& device) {
    std::vector<double> all;
    for (const Json& object :
         objects_in(go("predict run photos/class2 --json --device " + device).output))
      for (const Json& logit : member(object, "logits"))
        all.push_back(*parse_number(scalar_text(logit)));
    return all;
  };
  const std::vector<double> cpu = logits("cpu"), simt = logits("simt");
  ASSERT_EQ(cpu.size(), 60u);
  ASSERT_EQ(simt.size(), 60u);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(cpu[i], simt[i], 1e-4);
}

}  // namespace
}  // namespace bv::test
