// The commands: which one a line names, what each takes, and what bash completes.
#include "app/commands/commands.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "engine/options/model_config.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

using Words = std::vector<std::string>;

int nothing(const CommandLine&, const Words&) { return 0; }

// Commands as others are: several words by position, options of their own and of training.
struct Own {
  std::string weights;
  int count = 16;
  bool plan = false;
  std::vector<std::string> classes;
};
constexpr OptionRow predict_rows[] = {
    {"weights", "WEIGHTS", field<&Own::weights>, "", {}, {}, 0, true},
    {"count", "N", field<&Own::count>, "how many answers", {.min = 1, .max = 9}},
    {"plan", "", field<&Own::plan>, "one JSON object a line"},
    {"classes", "FILES...", field<&Own::classes>, "", {}, {}, 0, true}};
constexpr std::string_view predict_takes[] = {"batch", "device", "nproc"};
constexpr Command table[] = {{"train", "MODEL", "train", {}, {}, nothing},
                             {"predict", "WEIGHTS FILES...", "say what is on pictures",
                              predict_rows, predict_takes, nothing},
                             {"data split", "SRC DST", "split a folder", {}, {}, nothing},
                             {"data stats", "PATH", "mean and deviation", {}, {}, nothing}};

CommandLine parse_predict(const Words& words) { return parse_arguments(table[1], words, table); }

TEST(Commands, TheFirstWordsNameTheCommand) {
  const auto name = [](const Words& words) { return command_of(words, table).command->name; };
  EXPECT_EQ(name({"vit_tiny"}), "train");
  EXPECT_EQ(name({"train", "vit_tiny"}), "train");
  EXPECT_EQ(name({"--resume", "predict"}), "train");
  EXPECT_EQ(name({"-n", "2", "vit_tiny"}), "train");
  EXPECT_EQ(name({"predict", "data", "split"}), "predict");
  EXPECT_EQ(name({"data", "stats", "x"}), "data stats");
  const Words train = {"train", "vit_tiny"}, stats = {"data", "stats", "x"};
  EXPECT_EQ(command_of(train, table).words, 1u);
  EXPECT_EQ(command_of(stats, table).words, 2u);
}

TEST(Commands, AnUnknownWordSuggestsTheNearestOfModelsAndCommands) {
  const auto error = [](const Words& words) { return error_of([&] { command_of(words, table); }); };
  EXPECT_TRUE(is_line(error({"vit_tny"}),
                      "unknown model or command 'vit_tny' (did you mean vit_tiny?); models: "));
  EXPECT_TRUE(is_line(error({"perdict"}), "'perdict' (did you mean predict?)"));
  EXPECT_TRUE(
      is_line(error({"flowers_vit"}), "'flowers_vit'; models: " + join(known_models(), ", ") +
                                          "; commands: train, predict, data split, data stats"));
  EXPECT_TRUE(is_line(error({"data"}), "data: there are the commands data split, data stats"));
  EXPECT_TRUE(is_line(error({"data", "splt"}), "data stats (did you mean data split?)"));
  EXPECT_TRUE(is_line(error_of([] {
                        parse_command_line(Words{"-n", "2", "completion"});
                      }),
                      "completion is a command, which comes first: ./launcher completion"));
}

TEST(Commands, OptionsOfTheirOwnAndOfTraining) {
  const CommandLine line = parse_predict(
      {"run/w", "a.jpg", "--count", "3", "b,c.jpg", "--device", "cpu", "--plan", "-n", "2"});
  const auto own = own_options<Own>(line);
  EXPECT_EQ(own.weights, "run/w");
  EXPECT_EQ(own.classes, (Words{"a.jpg", "b,c.jpg"}));
  EXPECT_EQ(own.count, 3);
  EXPECT_TRUE(own.plan);
  EXPECT_TRUE(line.own.contains("count"));
  EXPECT_THROW(own_options<Options>(line), std::logic_error);
  EXPECT_EQ(line.values, (Values{{"device", {"cpu"}}, {"nproc", {"2"}}}));

  const auto error = [](const Words& words) { return error_of([&] { parse_predict(words); }); };
  const std::string help = "; ./launcher predict --help lists all";
  EXPECT_TRUE(is_line(error({}), "predict needs WEIGHTS" + help));
  EXPECT_TRUE(is_line(error({"w"}), "predict needs FILES..." + help));
  EXPECT_TRUE(is_line(error({"w", ""}), "FILES... is empty" + help));
  EXPECT_TRUE(is_line(error({"w", "f", "--count", "0"}), "--count 0: must be at least 1"));
  EXPECT_TRUE(is_line(error({"w", "f", "--lr", "1"}), "--lr is not an option of predict" + help));
  EXPECT_TRUE(is_line(error({"w", "f", "--cuont", "1"}), "--cuont (did you mean --count?)" + help));
  EXPECT_TRUE(is_line(error({"w", "f", "--config", "f"}), "unknown option --config"));
  EXPECT_TRUE(is_line(error_of([] {
                        parse_command_line(Words{"completion", "x"});
                      }),
                      "unexpected argument 'x' after ./launcher completion; ./launcher comp"));
}

TEST(Commands, HelpNamesWhatACommandTakes) {
  const std::string text = help_text(table[1], table);
  EXPECT_TRUE(text.starts_with("usage: ./launcher predict WEIGHTS FILES...\n\nsay what"));
  for (const char* part : {"--count N", "how many answers [16]", "-n, --nproc N", "--device auto"})
    EXPECT_TRUE(has(text, part)) << part << text;
  EXPECT_FALSE(has(text, "--config"));
  EXPECT_EQ(parse_predict({"--help"}).print.value().text, text);
  for (const Command& command : commands())
    for (const std::string& row : split(help_text(command, commands()), '\n'))
      EXPECT_LE(row.size(), 100u) << row;
  const std::string training = parse_command_line(Words{"--help"}).print.value().text;
  for (const Command& command : commands())
    EXPECT_TRUE(has(training, "\n  " + std::string(command.name) + " ")) << command.name;
}

TEST(Commands, TrainMayBeLeftOutAndTakesEveryOption) {
  const CommandLine with = parse_command_line(Words{"train", "vit_tiny", "-n", "2"});
  const CommandLine without = parse_command_line(Words{"vit_tiny", "-n", "2"});
  EXPECT_EQ(with.command, without.command);
  EXPECT_EQ(with.values, without.values);
  EXPECT_EQ(train_command.rows().size(), option_names().size());
  for (const std::string& model : known_models())
    for (const Command& command : commands())
      EXPECT_NE(split(command.name, ' ')[0], model) << "no model can have a command's name";
}

// Bash's completions of the last word, sorted.
class Completion : public ProgramTest {
 protected:
  Completion() {
    write_text(in("complete"), go("completion").output);
    write_text(in("photos/a.jpg"), "");
    write_text(in("b c.json"), "");
  }
  std::string completed(const std::string& words) {
    const auto last = std::to_string(split(words, ' ').size() - 1);
    write_text(in("ask"), "cd '" + folder_.path() + "'; compopt() { :; }; source complete\n" +
                              "COMP_WORDS=(" + words + "); COMP_CWORD=" + last +
                              "; _barevision; printf '%s|' \"${COMPREPLY[@]}\"\n");
    FILE* bash = popen(("bash '" + in("ask") + "' 2>&1").c_str(), "r");
    std::string text(10000, '\0');
    text.resize(fread(text.data(), 1, text.size(), bash));
    EXPECT_EQ(pclose(bash), 0) << text;
    return text;
  }
};

TEST_F(Completion, OffersCommandsModelsOptionsAndValues) {
  EXPECT_EQ(completed("./launcher vit"),
            "vit_large|vit_large_distilled|vit_tiny|vit_tiny_distilled|");
  EXPECT_EQ(completed("./launcher comp"), "completion|");
  EXPECT_EQ(completed("./launcher train r"), "resnet34|resnet50|resnext50_32x4d|");
  EXPECT_EQ(completed("./launcher vit_tiny --ra"),
            "--ratio|--ra-ops|--ra-magnitude|--random-erase|");
  EXPECT_EQ(completed("./launcher vit_tiny --device ''"), "auto|cpu|simt|cuda|");
  EXPECT_EQ(completed("./launcher vit_tiny --device = c"), "cpu|cuda|");
  EXPECT_EQ(completed("./launcher vit_tiny --device ="), "auto|cpu|simt|cuda|");
  EXPECT_EQ(completed("./launcher train vit_tiny --val p"), "photos|");
  EXPECT_EQ(completed("./launcher train vit_tiny --config b"), "b c.json|");
  EXPECT_EQ(completed("./launcher vit_tiny --lr ''"), "|");
  EXPECT_EQ(completed("./launcher completion --"), "--help|");
}

}  // namespace
}  // namespace bv::test
