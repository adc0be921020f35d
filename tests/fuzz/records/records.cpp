// Feeds damaged records, indexes, lists and COCO files to their readers. A mutant passes if it is
// read or refused by one line that names the file (for a record also its number and offset), and
// takes memory in proportion to its bytes. Built with the address and undefined-behaviour
// sanitizers:
//   fuzz_records [FIRST [COUNT]]    mutants by number; each depends only on its number
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/datasets/coco.h"
#include "app/datasets/image_list.h"
#include "base/error.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/records/record_files.h"
#include "data/records/record_index.h"
#include "data/records/scan_records.h"
#include "data/records/tfrecord.h"
#include "tests/files.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/run.h"
#include "tests/fuzz/watch.h"
#include "tests/temporary_folder.h"

// An allocation above this size ends the program.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=64:allocator_may_return_null=0:detect_leaks=1:handle_abort=1";
}

namespace bv::test::fuzz {
namespace {

constexpr Mutants mutants{.few = 800, .all = 8000};
constexpr unsigned max_seconds = 10;
constexpr size_t fixed_bytes = 256 << 10, factor = 256;
// A list without class names gets one for each number up to its largest label.
constexpr size_t max_labels = 1000000, names_of_a_list = max_labels * sizeof(std::string);

struct Case {
  const char* kind;
  std::string bytes;               // the mutant
  std::vector<std::string> named;  // a refusal must contain one of these
  std::function<void()> read;
  size_t names = 0;  // bytes of names that are not in the file
};

const std::string of_record = "x.tfrecord: record ", empty_file = "x.tfrecord: the file is empty";

class RecordFuzzer {
 public:
  RecordFuzzer() {
    PictureExample picture{.image = "P6 1 1 255 abc",
                           .label = 2,
                           .text = "bee",
                           .format = "pnm",
                           .height = 1,
                           .width = 1};
    examples_.push_back(write_example(picture));
    picture.label = 1;
    picture.objects = {{.box = {.height = 1, .width = 1}, .label = 1, .text = "ant"}};
    examples_.push_back(write_example(picture));
    examples_.emplace_back();
    index_ =
        "# barevision index 1\n# class 0 ant\n# class 1 bee\n0\tr.tfrecord\t0\t100\ta/1.ppm\n"
        "1\tr.tfrecord\t100\t50\tb/1 2.ppm\n";
    boxes_ =
        "# barevision index 1\n# class 0 ant\n0\tr/s\t0\t99\t1.jpg\t1,2,3,4\n0\tr/s\t0\t99\t1.jpg\t"
        "0,0,8,9\n0\tr/t\t0\t70\t2.jpg\t5,6,7,8\n";
    lists_ = {
        "# barevision list 1\n# folder /d\n# class 0 ant\n# class 1 bee\na/1.jpg 0\nb 2.jpg 1\n",
        "# class 0 ant\n1.jpg 1,2,30,40 0\n1.jpg 3,4,50,60 0\n", "x.jpg 3\ny.jpg 0\n"};
    coco_ =
        R"({"images":[{"id":5,"file_name":"a.jpg","width":64,"height":48}],"annotations":[{"id":1,)"
        R"("image_id":5,"category_id":3,"bbox":[1.5,2,40,45.5],"iscrowd":0,"segmentation":[[1]]},)"
        R"({"id":2,"image_id":5,"category_id":3,"bbox":[0,0,64,48]}],"categories":[{"id":3,)"
        R"("name":"cat"}]})";
  }

  // The outcomes of each kind of mutant.
  std::string counts() const {
    std::string text;
    for (const auto& [kind, count] : counts_)
      text += kind + ": " + std::to_string(count.read) + " read, " +
              std::to_string(count.all - count.read) + " refused\n";
    return text;
  }

  // Runs one mutant. Returns the problem; empty if there is none.
  std::string run(uint64_t number) {
    Mutator m(number);
    switch (number % 8) {
      case 0:
      case 1:
        return watched(number, example(m));
      case 2:
      case 3:
        return watched(number, records(m));
      case 4:
      case 5:
        return watched(number, index(m));
      case 6:
        return watched(number, list(m));
      default:
        return watched(number, coco(m));
    }
  }

 private:
  std::string watched(uint64_t number, const Case& c) {
    std::string problem;
    const auto check = [&](const std::string& line) {
      if (line.empty() || line.size() > 1000 || line.find('\n') != std::string::npos)
        problem = "its message is not one line: " + line;
      if (std::ranges::none_of(c.named, [&](const std::string& name) {
            return line.find(name) != std::string::npos;
          }))
        problem = "its message doesn't say where: " + line;
    };
    Count& count = counts_[c.kind];
    ++count.all;
    begin_watch(number, fixed_bytes + factor * c.bytes.size() + c.names);
    try {
      c.read();
      ++count.read;
    } catch (const BadImage& e) {
      check(e.what());
    } catch (const DataError& e) {
      check(e.what());
    } catch (const UserError& e) {
      check(e.what());
    } catch (const std::exception& e) {
      problem = std::string("another exception: ") + e.what();
    }
    const size_t taken = end_watch();
    if (taken)
      problem += " took " + std::to_string(taken) + " bytes for " + std::to_string(c.bytes.size());
    return problem;
  }

  std::string damaged_example(Mutator& m) {
    std::string payload = examples_[m.below(examples_.size())];
    if (!m.one_in(4)) m.damage(payload);
    return payload;
  }

  Case example(Mutator& m) {
    const std::string payload = damaged_example(m);
    return {"Examples", payload, {""}, [payload] { parse_example(payload); }};
  }

  // The name and the label of an index's row for a record, which must agree with it.
  static std::pair<std::string, uint32_t> as_it_says(const std::string& payload) {
    try {
      const PictureExample picture = parse_example(payload);
      const bool named = !picture.name.empty() && printable(picture.name) == picture.name;
      const int64_t label = picture.text == "bee" ? 1 : picture.label.value_or(0);
      return {named ? picture.name : "a.ppm", label > 0 && picture.text != "ant" ? 1 : 0};
    } catch (const std::exception&) {
      return {"a.ppm", 0};
    }
  }

  // Files of records, mostly with correct checksums, so that the damage reaches the parser.
  Case records(Mutator& m) {
    std::string file;
    std::vector<IndexRow> rows;
    std::vector<std::string> names;
    for (size_t n = 1 + m.below(3); n; --n) {
      const std::string payload = damaged_example(m), record = framed_record(payload);
      const auto [name, label] = as_it_says(payload);
      rows.push_back({.offset = file.size(), .size = static_cast<uint32_t>(record.size())});
      rows.back().label = label;
      names.push_back(name);
      file += record;
    }
    if (m.one_in(2)) m.damage(file);
    if (m.one_in(4))
      for (IndexRow& row : rows) row.offset += m.below(20), row.size += m.below(20);
    write_text(folder_ / "x.tfrecord", file);
    const std::string path = folder_.path();
    if (m.one_in(2))
      return {"records without an index", file, {of_record, empty_file}, [path] {
                scan_records(path, find_record_sets(path), {}, [](int64_t) {});
              }};
    RecordIndex index{.classes = {"ant", "bee"}, .files = {"x.tfrecord"}, .rows = {}};
    for (size_t i = 0; i < rows.size(); ++i) index.add(rows[i], names[i]);
    const std::string text = index_text(index);
    return {"records by an index", file, {of_record, empty_file, "x.index"}, [path, text] {
              write_text(path + "/x.index", text);
              const DataSets sets = open_dataset({.path = path + "/x.index", .val_fraction = 0});
              for (int64_t i = 0; i < sets.train->size(); ++i) try {
                  sets.train->image(i, 0);
                } catch (const BadImage& e) {
                  throw DataError(sets.train->name(i) + ": " + e.what());
                }
            }};
  }

  Case index(Mutator& m) {
    std::string text = m.one_in(2) ? index_ : boxes_;
    m.one_in(2) ? m.change_number(text) : m.damage(text);
    return {"indexes", text, {"x.index"}, [text] {
              const RecordIndex found = parse_index(text, "x.index");
              if (parse_index(index_text(found), "x.index").rows.size() != found.rows.size())
                throw std::runtime_error("another index when it is written");
              if (idx_texts(found).size() != found.ends().size())
                throw std::runtime_error("an .idx is missing");
            }};
  }

  Case list(Mutator& m) {
    std::string text = lists_[m.below(lists_.size())];
    m.one_in(2) ? m.change_number(text) : m.damage(text);
    const bool named = ("\n" + text).find("\n# class ") != text.npos;
    return {"lists",
            text,
            {"list.txt"},
            [text] { parse_list(text, "list.txt"); },
            named ? 0 : names_of_a_list};
  }

  Case coco(Mutator& m) {
    std::string text = coco_;
    m.one_in(2) ? m.change_number(text) : m.damage(text);
    const std::string path = folder_ / "coco.json";
    write_text(path, text);
    return {"COCO", text, {"coco.json"}, [path] { list_coco(path, "photos", 32, false); }};
  }

  const TemporaryFolder folder_;
  std::vector<std::string> examples_, lists_;
  std::string index_, boxes_, coco_;
  struct Count {
    uint64_t all = 0, read = 0;
  };
  std::map<std::string, Count> counts_;
};

}  // namespace
}  // namespace bv::test::fuzz

int main(int argc, char** argv) {
  using namespace bv::test::fuzz;
  return run_mutants<RecordFuzzer>("fuzz_records", argc, argv, mutants, max_seconds);
}
