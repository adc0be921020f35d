#include "engine/options/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <deque>
#include <filesystem>
#include <regex>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "engine/options/config.h"
#include "engine/options/foreign_names.h"
#include "engine/options/help.h"
#include "engine/options/model_config.h"
#include "engine/options/version.h"

namespace bv {

// The dashes are those of Unicode from 2010 to 2015, and 2212.
std::string with_plain_dashes(const std::string& word) {
  static const std::regex form(
      "-*(?:\xe2\x80[\x90-\x95]|\xe2\x88\x92)+-*([A-Za-z][A-Za-z_-]*(?:=.*)?)");
  std::smatch part;
  if (word.size() > 200 || !std::regex_match(word, part, form)) return "";
  return (part.length(1) == 1 ? "-" : "--") + part.str(1);
}

namespace {

std::string start_of(const Command& command) {
  return command.name == "train" ? "./launcher" : "./launcher " + std::string(command.name);
}
std::string see_help(const Command& command) {
  return "; " + start_of(command) + " --help lists all";
}

const std::span<const OptionRow> common = every_commands_rows();
const OptionRow &config_row = common[0], &version_row = common[1], &help_row = common[2],
                &help_all_row = common[3];
constexpr OptionRow markdown_row = {"help_markdown", "", field<&CommonOptions::help_markdown>, ""};

// --name or -n, but not a negative number.
bool is_option(const std::string& word) {
  const auto begins_at = [&](size_t at) {
    return word.size() > at && word[0] == '-' && !std::strchr("-! \n", word[at]);
  };
  return (begins_at(1) && !std::isdigit(static_cast<unsigned char>(word[1]))) ||
         (word.starts_with("--") && begins_at(2)) || !with_plain_dashes(word).empty();
}

// The arguments, split into options with values and positional arguments; the table interprets the
// values.
class Given {
 public:
  Given(const Command& command, std::span<const std::string> arguments)
      : rows_(command.rows()), left_(arguments.begin(), arguments.end()) {
    for (const OptionRow& row : common_rows(command)) rows_.push_back(&row);
    rows_.push_back(&markdown_row);
    bool words_only = false;
    while (!left_.empty()) {
      const std::string word = take();
      if (words_only || (word != "--" && !is_option(word)))
        place(word);
      else if (word != "--")
        read_option(word);
      else
        words_only = true, rest.push_back(word);
    }
  }
  // Null if the option isn't given. The value is empty if none follows the option.
  const Items* find(const OptionRow& row) const {
    const auto given = given_.find(&row);
    return given == given_.end() ? nullptr : &given->second;
  }
  const OptionRow* row_of_next() const { return open_ ? open_ : next_positional(); }
  std::vector<std::string> rest;  // arguments that no row takes, in order

 private:
  std::string take() {
    std::string word = std::move(left_.front());
    left_.pop_front();
    return word;
  }
  const OptionRow* next_positional() const {
    for (const OptionRow* row : rows_)
      if (row->positional && (row->is_list() || !given_.contains(row))) return row;
    return nullptr;
  }
  void place(const std::string& word) {
    const OptionRow* row = next_positional();
    (row ? given_[row] : rest).push_back(word);
  }
  // Reads --name, --name=value, -n, -nvalue, or several flags in one word.
  void read_option(const std::string& word) {
    const bool is_long = word[1] == '-';
    const size_t end = is_long ? std::min(word.find('='), word.size()) : 2;
    const std::string name = word.substr(0, end);
    std::string value = word.substr(is_long ? std::min(end + 1, word.size()) : end);
    const auto found = std::ranges::find_if(rows_, [&](const OptionRow* row) {
      return !row->positional && (is_long ? row->flag() == name : row->letter == name[1]);
    });
    const bool mpiruns = word == "-np";  // not -n with the value p
    if (found == rows_.end() || mpiruns) return rest.push_back(word);
    if ((*found)->is_flag()) {
      if (!is_long && !value.empty()) left_.push_front("-" + std::exchange(value, ""));
      return given_[*found].push_back(value.empty() ? "true" : value);
    }
    if (value.empty()) {
      if (left_.empty()) open_ = *found;
      if (!left_.empty() && left_[0] != "--" && !is_option(left_[0])) value = take();
      if (!left_.empty() && left_[0] == "--") left_.pop_front();
    }
    given_[*found].push_back(value);
  }

  std::vector<const OptionRow*> rows_;
  std::deque<std::string> left_;
  std::map<const OptionRow*, Items> given_;
  const OptionRow* open_ = nullptr;  // the last option, if its value is to come
};

std::vector<std::string> known_flags(const Command& command) {
  std::vector<std::string> flags;
  for (const OptionRow& row : common_rows(command)) flags.push_back(row.flag());
  for (const OptionRow* row : command.rows())
    if (!row->positional) flags.push_back(row->flag());
  return flags;
}

bool is_of_training(const std::string& flag) {
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if (row.flag() == flag) return true;
  return false;
}

[[noreturn]] void refuse_rest(const std::vector<std::string>& rest, const Command& command) {
  for (size_t i = 0; i < rest.size(); ++i) {
    const std::string& word = rest[i];
    if (const std::string plain = with_plain_dashes(word); !plain.empty())
      throw UserError("'" + printable(word) + "' begins with the dash of a word processor; type " +
                      printable(plain));
    if (!word.starts_with('-')) continue;
    const std::string flag = word.substr(0, word.find('='));
    const std::vector<std::string> flags = known_flags(command);
    if (std::ranges::find(flags, word.substr(0, word.find(' '))) != flags.end())
      throw UserError("'" + printable(word) + "' is one word, quotes have joined it: type " +
                      printable(word) + " without them");
    if (is_of_training(flag))
      throw UserError(flag + " is not an option of " + std::string(command.name) +
                      ", whose form is: ./launcher " + usage_of(command) + see_help(command));
    if (const std::string joined = i + 1 < rest.size() ? flag + "-" + rest[i + 1] : "";
        std::ranges::find(flags, joined) != flags.end())
      throw UserError("unknown option " + printable(flag) + ": type " + printable(joined) +
                      " as one word");
    const std::string elsewhere = advice_for_foreign(flag);
    throw UserError("unknown option " + printable(flag) +
                    (elsewhere.empty() ? suggestion(flag, flags) : elsewhere) + see_help(command));
  }
  std::error_code error;
  std::string advice = " after ./launcher " + usage_of(command);
  if (std::filesystem::is_directory(rest[0], error) && command.trains())
    advice = ": give data as --data PATH";
  if (parse_number(rest[0])) advice = ": write lists with commas, like --betas 0.9,0.999";
  throw UserError("unexpected argument '" + printable(rest[0]) + "'" + advice + see_help(command));
}

void refuse_command_as_model(const Given& arguments, std::span<const Command> all) {
  const Items* const model = arguments.find(*find_option("model"));
  for (const Command& command : all)
    if (model && split(command.name, ' ')[0] == model->front())
      throw UserError(model->front() + " is a command, and must come first: ./launcher " +
                      usage_of(command));
}

void read_options(const Given& arguments, CommandLine& line) {
  for (const OptionRow* row : line.command->rows()) {
    const bool own = line.command->owns(*row);
    const Items* const given = arguments.find(*row);
    if (!given && row->positional && own && !row->metavar.starts_with('['))
      throw UserError(std::string(line.command->name) + " needs " + row->flag() +
                      see_help(*line.command));
    if (!given) continue;
    const std::string flag = row->letter != 0 ? std::string("-") + row->letter : row->flag();
    const bool words = row->positional && row->is_list();
    const std::string& text = words ? given->front() : given->back();  // the last one wins
    if (text.empty() && row->positional)
      throw UserError(flag + " is empty" + see_help(*line.command));
    if (text.empty()) throw UserError(flag + " needs a value: " + flag + " " + row->values());
    const Items items = words ? *given : row->is_list() ? split(text, ',') : Items{text};
    check(*row, items, flag + " " + printable(text));
    (own ? line.own : line.values).emplace(row->name, items);
  }
}

// For train with a MODEL or a recipe, the help shows the resulting values of the options.
std::string help_for(const CommandLine& line, std::span<const Command> all, HelpView view) {
  if (line.command->name != "train" ||
      (!line.values.contains("model") && !line.values.contains("recipe")))
    return help_text(*line.command, all, view);
  const Request request = read_new_run(line);
  const Options holds = resolve_options(request, request.model, data_kind(request.options.data));
  view.holds = &holds;
  return help_text(*line.command, all, view);
}

}  // namespace

const OptionRow* row_of_next(const Command& command, std::span<const std::string> arguments) {
  return Given(command, arguments).row_of_next();
}

CommandLine parse_arguments(const Command& command, std::span<const std::string> arguments,
                            std::span<const Command> all) {
  CommandLine line{.command = &command};
  const auto print = [&](std::string text, int exit_code = 0) {
    line.print = CommandLine::Print{std::move(text), exit_code};
    return line;
  };
  const Given given(command, arguments);
  if (given.find(version_row)) return print(version_text());
  if (given.find(markdown_row)) return print(help_markdown(all));
  const HelpView view{.width = text_width(), .all = given.find(help_all_row) != nullptr};
  const bool help = view.all || given.find(help_row);
  if (help && !command.trains()) return print(help_text(command, all, view));
  refuse_command_as_model(given, all);
  if (!given.rest.empty() && !help) refuse_rest(given.rest, command);

  read_options(given, line);
  if (const Items* const files = given.find(config_row)) {
    if (files->back().empty()) throw UserError("--config needs a value: one FILE");
    line.config = files->back();
  }
  if (help) return print(help_for(line, all, view));
  return line;
}

}  // namespace bv
