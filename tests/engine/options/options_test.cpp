// The command line, the table of options and what is printed from it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "app/commands/commands.h"
#include "base/text.h"
#include "engine/options/foreign_names.h"
#include "engine/options/help.h"
#include "tests/files.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

using Words = std::vector<std::string>;

CommandLine parse(const Words& words) { return parse_command_line(words); }

void expect_error(const Words& words, const std::string& part) {
  EXPECT_TRUE(is_line(error_of([&] { parse(words); }), part));
}

// A valid value of the option that differs from its default.
Items sample(const OptionRow& row) {
  const auto is = [&]<class S, class T>(T S::*) { return row.field.type == &TypeOf<T>::value; };
  if (row.name == "save_every") return {"500steps"};
  if (row.name == "partition") return {"6,6"};
  if (row.name == "classes") return {"cat", "dog", "a \"bird\""};
  if (row.is_flag()) return {"true"};
  if (row.is_choice()) {
    const Words choices = row.field.type->texts();
    return {choices[0] == default_of(row) ? choices[1] : choices[0]};
  }
  if (row.name == "lr_after") return {"6:0.01"};
  if (is(&Options::data)) return {"some/path"};
  if (is(&Options::betas) || is(&Options::cutmix_minmax)) return {"0.8", "0.99"};
  if (row.name == "color_jitter") return {"0.4", "0.3", "0.2", "0.1"};
  if (row.name == "decay_milestones") return {"3", "5"};
  if (row.is_list()) return {"0.25", "0.5", "0.75"};
  const bool whole = !is(&Options::lr) && !is(&Options::hflip);
  if (whole) return {row.range.min > 100 ? "8192" : row.range.max < 7 ? "1" : "7"};
  return {row.range.max < 1e6 && row.range.max <= 1 ? "0.3" : "3.5"};
}

TEST(OptionTable, EveryOptionIsReadFromTheCommandLineAndBack) {
  for (const std::string& name : option_names()) {
    const OptionRow& row = *find_option(name);
    const Items items = sample(row);
    Words words = name == "model" ? Words{"train", items[0]} : Words{row.flag()};
    if (name != "model" && !row.is_flag()) words.push_back(join(items, ","));
    const CommandLine line = parse(words);
    ASSERT_FALSE(line.print);
    ASSERT_EQ(line.values.size(), 1u) << name;
    EXPECT_EQ(line.values.at(name), items) << name;
    Options options;
    assign(options, row, line.values.at(name), name);
    EXPECT_EQ(items_of(options, row), items) << name;
    EXPECT_NE(items_of(options, row), items_of(Options{}, row))
        << name << ": sample is the default";
  }
}

TEST(OptionTable, DefaultsAreAllowedValues) {
  for (const std::string& name : option_names()) {
    const OptionRow& row = *find_option(name);
    const Items items = items_of(Options{}, row);
    if (items.empty() || items == Items{""}) continue;
    Options options;
    EXPECT_NO_THROW(assign(options, row, items, name));
  }
}

TEST(CommandLineTest, FormsOfAnOption) {
  for (const Words& words : {Words{"-n", "2", "vit_tiny"}, Words{"-n2", "vit_tiny"},
                             Words{"vit_tiny", "--nproc=2"}, Words{"--nproc", "2", "vit_tiny"}}) {
    const CommandLine line = parse(words);
    EXPECT_EQ(line.values.at("nproc"), Items{"2"});
    EXPECT_EQ(line.values.at("model"), Items{"vit_tiny"});
  }
  EXPECT_EQ(parse({"--nesterov=false"}).values.at("nesterov"), Items{"false"});
  EXPECT_EQ(parse({"--lr=", "0.5"}).values.at("lr"), Items{"0.5"});
  EXPECT_EQ(parse({"--lr", "0.5", "--", "vit_tiny"}).values.at("model"), Items{"vit_tiny"});
  EXPECT_TRUE(has(parse({"vit_tiny", "-hn2"}).print.value().text, "else 1 [2]"));
  EXPECT_EQ(parse({"--config", "a.json"}).config, "a.json");
}

TEST(CommandLineTest, MistakesAreOneLineThatNamesThem) {
  expect_error({"vit_tiny", "--lrr", "1"}, "unknown option --lrr (did you mean --lr?)");
  expect_error({"--image_size", "32", "vit_tiny"}, "did you mean --image-size?");
  expect_error({"-np", "2", "vit_tiny"}, "unknown option -np: use -n;");
  expect_error({"vit_tiny", "-q"}, "unknown option -q;");
  expect_error({"vit_tiny", "more"}, "unexpected argument 'more'");
  expect_error({"vit_tiny", "-5"}, "unknown option -5;");
  expect_error({"vit_tiny", "--"}, "unknown option --");
  expect_error({"--", "vit_tiny", "--lr", "1"}, "unknown option --");
  expect_error({"vit_tiny", "--lr", "-.5"}, "unknown option -.5;");
  expect_error({"vit_tiny", "--lr", "abc"}, "--lr abc: is not a number");
  expect_error({"vit_tiny", "--lr", "1e-3x"}, "is not a number");
  expect_error({"vit_tiny", "--lr", "nan"}, "is not a number");
  expect_error({"vit_tiny", "--lr", "-1"}, "--lr -1: must be at least 0");
  expect_error({"vit_tiny", "--lr"}, "--lr needs a value: --lr X");
  expect_error({"vit_tiny", "--batch", "1.5"}, "--batch 1.5: is not a whole number");
  expect_error({"vit_tiny", "--batch", "9999999999"}, "at most 1000000000");
  expect_error({"vit_tiny", "--drop-rate", "1"}, "at least 0 and less than 1");
  expect_error({"vit_tiny", "--val-fraction", "1"}, "at least 0 and less than 1");
  expect_error({"vit_tiny", "--optimizer", "admw"},
               "one of sgd, adam, adamw (did you mean adamw?)");
  expect_error({"vit_tiny", "--mean", "1,2"}, "must be 3 numbers");
  expect_error({"vit_tiny", "--std", "0,1,1"}, "--std 0,1,1: must be at least 0.001 and at most 1");
  expect_error({"vit_tiny", "--std", "58,57,57"}, "at most 1; divide values of 0-255 by 255");
  expect_error({"vit_tiny", "--betas", "0.9,1"}, "less than 1");
  expect_error({"vit_tiny", "--classes", "1"}, "at least 2");
  expect_error({"vit_tiny", "--classes", "a,b,a"}, "names a class twice");
  expect_error({"vit_tiny", "--seed", "-1"}, "whole number from 0");
  expect_error({"vit_tiny", "--save-every", "5d"}, "like 500steps or 10min");
  expect_error({"vit_tiny", "--plan=perhaps"}, "must be true or false");
  expect_error({"vit_tiny", "--decay-milestones", "3,x"}, "3,x: must be whole numbers");
  expect_error({"vit_tiny", "--decay-milestones", "0,3"}, "at least 1 and at most 1000000");
  expect_error({"vit_tiny", "--lr-after", "600"}, "like 600:1e-6");
  expect_error({"vit_tiny", "--layer-decay", "0"}, "more than 0 and at most 1");
  expect_error({"vit_tiny", "--ema", "1"}, "at least 0 and less than 1");
  expect_error({"vit_tiny", "--out", ""}, "--out needs a value");
  expect_error({"-n", "vit_tiny"}, "-n vit_tiny: is not a number");
  expect_error({"vit_tiny", "--lr", "a\nb"}, "--lr a?b: is not a number");
}

// A unit is named, and the number that was meant.
TEST(CommandLineTest, ANumberWithAUnitGetsTheNumber) {
  const auto expect_like = [](const std::string& option, const std::string& value,
                              const std::string& form) {
    expect_error({"vit_tiny", option, value}, option + " " + value + ": is not a " + form);
  };
  expect_like("--timeout", "10min", "number of seconds, like 600");
  expect_like("--timeout", "2 h", "number of seconds, like 7200");
  expect_like("--timeout", "soon", "number of seconds, like 60");
  expect_like("--cache-mb", "2GB", "number of MiB, like 2048");
  expect_like("--bucket-bytes", "25MiB", "number of bytes, like 26214400");
  expect_like("--val-fraction", "20%", "number, like 0.2");
  expect_like("--val-fraction", "150%", "number, like 0.1");
  expect_like("--image-size", "224x224", "number of pixels, like 224");
  expect_like("--batch", "1,024", "number of images, like 1024");
  expect_like("--batch", "2.5", "whole number of images, like 2");
  expect_like("--steps", "10k", "number of updates, like 10000");
  expect_like("--epochs", "5ep", "number of epochs, like 5");
  expect_like("--lr", "0,001", "number, like 0.001");
  expect_like("--lr", "1e-3x", "number, like 0.001");
  expect_error({"vit_tiny", "--lr", "1e400"}, "--lr 1e400: is too large a number");
  expect_error({"vit_tiny", "--lr", "1e-400"}, "--lr 1e-400: is too small a number");
  expect_error({"vit_tiny", "--lr",
                "1e\xe2\x88\x92"
                "4"},
               "minus of a word processor; type 1e-4");
}

TEST(CommandLineTest, AWordIsNamedWhereItBelongs) {
  expect_error({"vit_tiny", "--weight", "decay", "0.1"}, "type --weight-decay as one word");
  expect_error({"-n", "2", "eval", "run"}, "eval is a command, and must come first: ");
  expect_error({"weights", "list", "--model", "vit_tiny"}, "use MODEL, a word by itself");
  expect_error({"classify", "train"}, "use MODEL --data PATH to train, predict RUN FILES");
}

TEST(CommandLineTest, WordsOfOtherProgramsGetOurs) {
  expect_error({"vit_tiny", "--device", "gpu"}, "must be one of auto, cpu, simt, cuda (use cuda)");
  expect_error({"vit_tiny", "--device", "cuda:1"}, "(use cuda; CUDA_VISIBLE_DEVICES says which");
  expect_error({"vit_tiny", "--precision", "float16"}, "auto, fp32, fp16, bf16 (use fp16)");
  expect_error({"vit_tiny", "--precision", "float"}, "(use fp32)");
  expect_error({"vit_tiny", "--precision", "16-mixed"}, "(use fp16 or bf16)");
  expect_error({"vit_tiny", "--schedule", "linear"}, "(use poly --decay-rate 1)");
  expect_error({"vit_b_16"}, "'vit_b_16': use vit_base (--patch-size 16 --image-size 224 are its");
  expect_error({"vit_l_32"}, "'vit_l_32': use vit_large --patch-size 32 --image-size 224");
  expect_error({"vit_h_14"}, "'vit_h_14': not in barevision; nearest: ");
}

TEST(CommandLineTest, OfDashesAndQuotes) {
  const std::string processor = "' begins with the dash of a word processor; type ";
  for (const std::string word : {"—epochs", "–epochs", "–-epochs", "-−epochs"})
    expect_error({"vit_tiny", word, "3"}, "'" + word + processor + "--epochs");
  expect_error({"—lr=1", "vit_tiny"}, "'—lr=1" + processor + "--lr=1");
  expect_error({"vit_tiny", "−n", "2"}, "'−n" + processor + "-n");
  expect_error({"vit_tiny", "--lr", "−1"}, "--lr −1: has the minus of a word processor; type -1");
  expect_error({"vit_tiny", "--lr 1e-3"},
               "'--lr 1e-3' is one word, quotes have joined it: type --lr 1e-3 without them");
  expect_error({"vit_tiny", "--lrr 1"}, "unknown option --lrr 1");
}

// As in argparse, so that a script can append "$@" to its own options.
TEST(CommandLineTest, TheLastOfARepeatedOptionWins) {
  const Words words = {"vit_tiny", "--lr",       "1",     "-n",      "2",
                       "--lr=2",   "--nesterov", "-n3",   "--betas", "0.1,0.2",
                       "--betas",  "0.3,0.4",    "--val", "a,b",     "--nesterov=false",
                       "--config", "a.json",     "--val", "c",       "--config=b.json"};
  const CommandLine line = parse(words);
  EXPECT_EQ(line.values.at("lr"), Items{"2"});
  EXPECT_EQ(line.values.at("nproc"), Items{"3"});
  EXPECT_EQ(line.values.at("nesterov"), Items{"false"});
  EXPECT_EQ(line.values.at("betas"), (Items{"0.3", "0.4"}));
  EXPECT_EQ(line.values.at("val"), Items{"c"});
  EXPECT_EQ(line.config, "b.json");
  expect_error({"vit_tiny", "--lr", "1", "--lr", "x"}, "--lr x: is not a number");
  expect_error({"vit_tiny", "--lr", "1", "--lr"}, "--lr needs a value");
  expect_error({"vit_tiny", "--config", "a.json", "--config="}, "--config needs a value");
}

TEST(CommandLineTest, WhatIsPrintedInsteadOfRunning) {
  EXPECT_EQ(parse({}).print.value().exit_code, 2);
  for (const char* flag : {"-h", "--help", "--help-all"}) {
    const CommandLine line = parse({"vit_tiny", flag});
    EXPECT_EQ(line.print.value().exit_code, 0);
    const std::string& text = line.print->text;
    const bool all = flag == std::string("--help-all");
    for (const std::string& name : option_names()) {
      if (name == "model" || (!all && std::ranges::count(basic_options(), name) == 0)) continue;
      EXPECT_TRUE(has(text, "\n  " + flags_of(*find_option(name)).substr(0, 20))) << name;
    }
    EXPECT_TRUE(has(text, "vit_large"));
    EXPECT_TRUE(has(text, "./launcher -n 2 vit_tiny --data"));
  }
}

TEST(CommandLineTest, VersionSaysWhatItWasBuiltWith) {
  const std::string text = parse({"--version"}).print.value().text;
  EXPECT_TRUE(text.starts_with("barevision " BAREVISION_VERSION " (")) << text;
  const Words lines = split(text, '\n');
  const size_t commit = lines[0].find('(');
  EXPECT_GE(lines[0].size() - commit, std::string("(unknown)").size()) << text;
  EXPECT_EQ(lines.size(), 9u) << text;  // the last one is empty
  for (const char* part : {"\ncompiler   g++ 1", "oneDNN ", "\ngpu ", "CUDA", "\nstand-in ",
                           "stb_image", "TensorBoard\n"})
    EXPECT_TRUE(has(text, part)) << text;
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
}

TEST(HelpText, ShowsWhatAFirstRunNeedsAndNamesTheRest) {
  for (const std::string_view name : basic_options())
    EXPECT_TRUE(find_option(name)) << name << " is no option";
  const auto shown = [](const std::string& text) {
    size_t count = 0;
    for (const std::string& row : split(text, '\n'))
      count += row.starts_with("  --") || row.starts_with("  -n,") || row.starts_with("  -h,");
    return count;
  };
  const std::string some = help_text(train_command, commands(), {.width = 80}),
                    all = help_text(train_command, commands(), {.width = 80, .all = true});
  const size_t common = common_rows(train_command).size();
  EXPECT_EQ(shown(some), basic_options().size() + common);
  EXPECT_EQ(shown(all), option_names().size() - 1 + common);  // less MODEL
  EXPECT_TRUE(some.ends_with("\n\nAll " + std::to_string(shown(all)) +
                             " options: ./launcher --help-all, or docs/options.md\n"))
      << some;
  EXPECT_FALSE(has(all, "All "));
  EXPECT_FALSE(has(some, "--bucket-bytes"));
  // Commands with a long help, with whole groups of options, and with a short help.
  const auto help = [](const Words& words) { return parse(words).print.value().text; };
  EXPECT_FALSE(has(help({"eval", "--help"}), "--crop-pct"));
  EXPECT_TRUE(has(help({"eval", "--help"}), " options: ./launcher eval --help-all, or docs/"));
  EXPECT_TRUE(has(help({"eval", "--help-all"}), "--crop-pct"));
  EXPECT_FALSE(has(help({"preview", "--help"}), "--epochs"));
  EXPECT_TRUE(has(help({"preview", "--help-all"}), "\n  --bucket-bytes N"));
  EXPECT_TRUE(has(help({"predict", "--help"}), "--crop-pct"));
  EXPECT_FALSE(has(help({"predict", "--help"}), "All "));
}

TEST(HelpText, FitsTheWidth) {
  for (const size_t width : {44, 60, 80, 100})
    for (const bool all : {false, true}) {
      std::string text = list_text(commands(), width) + list_text(commands(), "data", width);
      for (const Command& command : commands())
        text += help_text(command, commands(), {.width = width, .all = all});
      for (const std::string& row : split(text, '\n')) EXPECT_LE(row.size(), width) << row;
    }
  const std::string wide = help_text(train_command, commands(), {.width = 100});
  EXPECT_TRUE(std::ranges::any_of(split(wide, '\n'), [](auto& row) { return row.size() > 90; }));
}

TEST(HelpText, WidthIsColumnsWhereThereIsNoTerminal) {
  if (isatty(STDOUT_FILENO)) GTEST_SKIP() << "on a terminal";
  const char* before = getenv("COLUMNS");
  const std::string kept = before ? before : "";
  const auto width = [](const char* columns) {
    setenv("COLUMNS", columns, 1);
    return text_width();
  };
  EXPECT_EQ(width("72"), 72u);
  EXPECT_EQ(width("300"), 100u);
  EXPECT_EQ(width("1"), 44u);
  for (const char* bad : {"", "x", "0", "-5"}) EXPECT_EQ(width(bad), 80u) << bad;
  unsetenv("COLUMNS");
  EXPECT_EQ(text_width(), 80u);
  if (before) setenv("COLUMNS", kept.c_str(), 1);
}

TEST(CommandLineTest, HelpShowsWhatHoldsForModelAndData) {
  // The help without its line breaks.
  const auto help = [](const Words& words) {
    std::string text, all = parse(words).print.value().text;
    std::ranges::replace(all, '\n', ' ');
    for (const std::string& word : split(all, ' '))
      if (!word.empty()) text += word + " ";
    return text;
  };
  EXPECT_TRUE(has(help({"--help"}), "peak learning rate [0.001]"));
  EXPECT_TRUE(has(help({"--help"}), "the schedule ends with the last [10]"));
  EXPECT_TRUE(has(help({"resnet34", "--help"}), "the schedule ends with the last [5]"));
  EXPECT_TRUE(has(help({"resnet34", "--lr", "3", "--help"}), "peak learning rate [3]"));
  EXPECT_TRUE(has(help({"vit_tiny", "--help"}), "side of the model's input in pixels"));
  EXPECT_TRUE(has(help({"vit_tiny", "--help"}), "values for vit_tiny"));
  EXPECT_TRUE(
      has(help({"resnet34", "--nesterov", "--help-all"}), "Nesterov momentum for sgd [given]"));
}

TEST(Docs, OptionsAreWhatTheProgramPrints) {
  const std::string text = contents("docs/options.md");
  if (text.empty()) GTEST_SKIP() << "not in the project's folder";
  EXPECT_EQ(text, help_markdown(commands())) << "docs/options.md is behind; run: make docs";
}

TEST(SaveEveryTest, EpochsStepsOrTime) {
  const auto expect = [](const char* text, int64_t count, SaveEvery::Unit unit) {
    const auto every = SaveEvery::parse(text);
    ASSERT_TRUE(every) << text;
    EXPECT_EQ(every->count, count) << text;
    EXPECT_EQ(every->unit, unit) << text;
  };
  expect("2", 2, SaveEvery::epochs);
  expect("500steps", 500, SaveEvery::steps);
  expect("30s", 30, SaveEvery::seconds);
  expect("10min", 600, SaveEvery::seconds);
  expect("2h", 7200, SaveEvery::seconds);
  for (const char* text : {"", "0", "-1", "steps", "1.5", "5 steps", "5stepss", "min", "0min",
                           "-1h", "1.5h", "10 min", "10mins", "9223372036854775807h"})
    EXPECT_FALSE(SaveEvery::parse(text)) << text;
}

TEST(Text, NumbersAndNames) {
  EXPECT_EQ(format_number(1e-3), "0.001");
  EXPECT_EQ(format_number(2), "2");
  EXPECT_EQ(parse_number(format_number(0.1 + 0.2)), 0.1 + 0.2);
  EXPECT_EQ(split("a,,b", ','), (Words{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (Words{""}));
  const Words known = {"lr", "steps", "epochs"};
  EXPECT_EQ(nearest("step", known), "steps");
  EXPECT_EQ(nearest("epohcs", known), "epochs");
  EXPECT_FALSE(nearest("zzzzzz", known).empty());
  EXPECT_EQ(suggestion("evla", Words{"eval", "data"}), " (did you mean eval?)");
  EXPECT_EQ(suggestion("elva", Words{"eval", "data"}), "");
  EXPECT_EQ(suggestion("cifar", Words{"cifar10", "data"}), " (did you mean cifar10?)");
  EXPECT_EQ(suggestion("resnet", Words{"resnet34", "resnet50"}), "");
  EXPECT_EQ(suggestion("flowers", Words{"flowers_vit_raw", "flowers_vit"}),
            " (did you mean flowers_vit?)");
  EXPECT_EQ(nearest(std::string(65, 'x'), known), "");
}

// Names from timm and torchvision are answered with options that exist and mean the same.
TEST(OptionsTest, NamesFromElsewhereAreTranslated) {
  expect_error({"vit_tiny", "--batch-size", "32"}, "unknown option --batch-size: use --batch,");
  expect_error({"vit_tiny", "-b", "32"}, "unknown option -b: use --batch,");
  expect_error({"vit_tiny", "--drop-path", ".1"}, "--drop-path: use --drop-path-rate");
  expect_error({"vit_tiny", "--aug-repeats", "3"},
               "unknown option --aug-repeats: not in barevision;");
  expect_error({"vit_tiny", "--channels-last"},
               "unknown option --channels-last: not needed here: ");
  expect_error({"vit_tiny", "--batch_size", "32"}, "--batch_size: use --batch,");
  expect_error({"vit_tiny", "--clip-mode", "agc"}, "--clip-mode: not in barevision");
  expect_error({"vit_tiny", "--device", "gpu"}, "must be one of auto, cpu, simt, cuda");
  expect_error({"vit_tiny", "--optimizer", "SGD"}, "(did you mean sgd?)");
  expect_error({"vit_tiny", "--auto-augment", "rand-m9-mstd0.5"},
               "cifar10, imagenet (use ra, with --ra-ops and --ra-magnitude)");
  expect_error({"vit_tiny", "--betas", "0.9", "0.999"},
               "unexpected argument '0.999': write lists with commas, like --betas 0.9,0.999");
  expect_error({"vit_tiny", "/"}, "unexpected argument '/': give data as --data PATH");
  expect_error({"vit_tiny", "--quantum"}, "unknown option --quantum; ./launcher --help");
  for (const std::string& flag :
       split("--opt --opt-eps --opt-betas --wd --sched --sched-on-updates --drop --drop-path "
             "--attn-drop --smoothing --clip-grad-norm --grad-accum-steps "
             "--initial-checkpoint --pretrained --output --experiment --checkpoint-hist "
             "--log-interval --print-freq --workers-per-gpu -j --amp --amp-dtype "
             "--grad-checkpointing --sync-batchnorm --zero-init-residual --nproc-per-node "
             "--norm-weight-decay --no-aug --num-classes --img-size --input-size --data-dir "
             "--data-path --model --batch-size -b --lr-scheduler --lr-warmup-epochs "
             "--warmup-iters --eval-interval --val-split --train-split --lr-base --max-epochs "
             "--accelerator --half --train-crop-mode --aa --reprob --train-interpolation "
             "--rdzv-endpoint --rdzv-backend --standalone --fusion-threshold --cycle-time "
             "--img_dir --dataset_type --teacher --distillation-type --dist-url --local_rank "
             "--hostfile",
             ' ')) {
    const std::string advice = advice_for_foreign(flag);
    EXPECT_EQ(advice.empty(), flag == "--workers-per-gpu") << flag;
    for (const std::string& word : split(advice, ' ')) {
      if (!word.starts_with("--")) continue;
      std::string name = word.substr(2, word.find_first_of(",;)") - 2);
      std::ranges::replace(name, '-', '_');
      EXPECT_TRUE(find_option(name)) << flag << ": " << word;
    }
  }
}

TEST(Text, WithoutWhatControlsATerminal) {
  EXPECT_EQ(printable("a\x1b[31m\tb\n\x7f"), "a?[31m?b??");
  EXPECT_EQ(printable("Käse 漢字 🐈"), "Käse 漢字 🐈");
  EXPECT_EQ(printable("\xc2\x9b[2J"),
            "?"
            "?[2J");  // CSI as one character
  EXPECT_EQ(printable("\x9b[2J\xff\xc0\x80"), "?[2J???");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("äää", 3), "ä?...");
}

TEST(Errors, AreOneLineThatSaysWhat) {
  EXPECT_EQ(error_line(UserError("a\n\x1b[2Jb")), "a??[2Jb");
  EXPECT_TRUE(has(error_line(std::bad_alloc()), "out of memory; try a smaller --batch"));
  const auto code = std::make_error_code(std::errc::permission_denied);
  EXPECT_EQ(error_line(std::filesystem::filesystem_error("what", "x\ty", code)),
            "x?y: Permission denied");
  EXPECT_EQ(error_line(std::filesystem::filesystem_error("what", code)),
            "a file or folder can't be used: Permission denied");
}

}  // namespace
}  // namespace bv::test
