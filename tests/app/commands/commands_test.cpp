// Which command a command line names, and which options each command accepts.
#include "app/commands/commands.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "engine/options/help.h"
#include "engine/options/model_config.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

using Words = std::vector<std::string>;

int nothing(const CommandLine&, const Words&) { return 0; }

// A command like others: several positional arguments, its own options and those of training.
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
                      "unknown model or command 'vit_tny' (did you mean vit_tiny?); ./launcher "
                      "help lists all"));
  EXPECT_TRUE(is_line(error({"perdict"}), "'perdict' (did you mean predict?)"));
  EXPECT_TRUE(is_line(error({"flowers_vit"}), "'flowers_vit'; ./launcher help lists all"));
  // Model names of timm.
  EXPECT_TRUE(is_line(error({"vit_tiny_patch16_224"}),
                      "'vit_tiny_patch16_224': use vit_tiny (--patch-size 16 --image-size "
                      "224 are its defaults); ./launcher help"));
  EXPECT_TRUE(is_line(error({"vit_huge"}),
                      "'vit_huge': not in barevision; nearest: vit_large (304 M), vit_base "
                      "(86.6 M); ./launcher help"));
  EXPECT_TRUE(is_line(error({"data"}), "data: the commands are data split, data stats"));
  EXPECT_TRUE(is_line(error({"data", "splt"}), "data stats (did you mean data split?)"));
  EXPECT_TRUE(is_line(error_of([] {
                        parse_command_line(Words{"-n", "2", "completion"});
                      }),
                      "completion is a command, and must come first: ./launcher completion"));
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
  EXPECT_TRUE(is_line(error({"w", "f", "--lr", "1"}),
                      "--lr is not an option of predict, "
                      "whose form is: ./launcher predict WEIGHTS "
                      "FILES..." +
                          help));
  EXPECT_TRUE(is_line(error({"w", "f", "--cuont", "1"}), "--cuont (did you mean --count?)" + help));
  EXPECT_TRUE(is_line(error({"w", "f", "--config", "f"}), "unknown option --config"));
  EXPECT_TRUE(is_line(error_of([] {
                        parse_command_line(Words{"completion", "zsh", "x"});
                      }),
                      "unexpected argument 'x' after ./launcher completion [bash|zsh|fish]; "
                      "./launcher comp"));
}

TEST(Commands, HelpNamesWhatACommandTakes) {
  const std::string text = help_text(table[1], table);
  EXPECT_TRUE(text.starts_with("usage: ./launcher predict WEIGHTS FILES...\n\nsay what"));
  for (const char* part : {"--count N", "how many answers [16]", "-n, --nproc N", "--device auto"})
    EXPECT_TRUE(has(text, part)) << part << text;
  EXPECT_FALSE(has(text, "--config"));
  EXPECT_EQ(parse_predict({"--help"}).print.value().text,
            help_text(table[1], table, {.width = text_width()}));
  const std::string training = parse_command_line(Words{"--help"}).print.value().text;
  for (const Command& command : commands())
    EXPECT_TRUE(has(training, "\n  " + std::string(command.name) + " ")) << command.name;
}

TEST(Commands, HelpListsThemWithWhatTheyDo) {
  const auto printed = [](const Words& words) { return parse_command_line(words).print.value(); };
  for (const Words& words : {Words{"data", "--help"}, Words{"data", "-h"}, Words{"data", "help"}}) {
    EXPECT_EQ(printed(words).exit_code, 0);
    EXPECT_EQ(printed(words).text, list_text(commands(), "data", text_width()));
  }
  EXPECT_EQ(printed({"data"}).exit_code, 2);
  EXPECT_TRUE(has(printed({"data"}).text, "\n  data split           copy a folder"));
  EXPECT_FALSE(has(printed({"data"}).text, "\n  eval "));
  const std::string everything = list_text(commands(), 80);
  for (const Command& command : commands())
    EXPECT_TRUE(has(everything, "\n  " + std::string(command.name) + " ")) << command.name;
  for (const std::string& model : known_models())
    EXPECT_TRUE(has(everything, "\n  " + model + " ")) << model;
  EXPECT_TRUE(has(everything, "  predict              classify images, which need no labels\n"));
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

}  // namespace
}  // namespace bv::test
