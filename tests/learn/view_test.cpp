// make view: its counts, its pictures as headless Chromium draws them, and what it refuses.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <sstream>

#include "base/json.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

std::string counting_program() { return build_folder() + "/counters_few"; }

Ended make_view(const std::string& words) {
  return shell("env -u MAKEFLAGS -u MAKELEVEL make -s view BUILD=" + build_folder() + " " + words);
}
std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n'), begin = text.rfind('\n', end);
  return text.substr(begin == text.npos ? 0 : begin + 1, end - begin);
}
std::string page_of(const Ended& end) {
  EXPECT_EQ(end.code, 0) << end.output;
  return contents(last_line(end.output));
}
Json facts_of(const std::string& page) {
  const std::string mark = "id=\"data\">";
  const size_t begin = page.find(mark) + mark.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}
size_t count(const std::string& text, const std::string& mark) {
  const std::regex pattern(mark);
  return size_t(std::distance(std::sregex_iterator(text.begin(), text.end(), pattern),
                              std::sregex_iterator()));
}

// Sums over a page's lines, by the names of the kernel's counters.
std::map<std::string, uint64_t> sums(const Json& kernel) {
  std::map<std::string, uint64_t> sum;
  const auto add = [&](const std::string& name, const Json& n) { sum[name] += n.get<uint64_t>(); };
  for (const Json& line : kernel["lines"]) {
    const std::string kind = line["kind"];
    const Json& n = line["n"];
    const std::string global = kind == "store" ? "store" : "load";
    add(global + " requests", n[3]), add(global + " sectors", n[4]), add(global + " bytes", n[5]);
    const std::string shared = kind == "ldmatrix" ? "ldmatrix" : "shared";
    add(shared + " requests", n[8]), add(shared + " turns", n[9]);
    add(shared + " conflicts", n[10]);
    for (const auto& [word, name] :
         {std::pair{"barrier", "barriers"}, {"shuffle", "shuffles"}, {"mma", "mma"}})
      if (kind == word) add(name, n[0]);
    if (std::set<std::string>{"load", "store", "atomic", "ldmatrix", "cp_async"}.contains(kind))
      add("partial", n[2]);
  }
  return sum;
}
void expect_all_counted(const Json& version) {
  for (const Json& kernel : version["kernels"])
    for (const auto& [name, n] : sums(kernel))
      EXPECT_EQ(n, kernel["counters"][name].get<uint64_t>()) << kernel["name"] << ' ' << name;
}

class View : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("learn/view/view")) GTEST_SKIP() << "not started in the checkout";
    if (!std::filesystem::exists(counting_program())) GTEST_SKIP() << "make test builds it";
  }
  // patterns.cu's page, made once.
  static const std::string& patterns() {
    static const std::string page = page_of(make_view("FILE=tests/learn/patterns.cu"));
    return page;
  }
  // faults.cu's page: healthy kernels, and some with a fault.
  static const std::string& faults() {
    static const std::string page = page_of(make_view("FILE=tests/learn/faults.cu"));
    return page;
  }
  // Into the test's own folder: other tests write pages of the same kernel.
  Ended view_kernel(const std::string& words) const {
    return shell("learn/view/view --build " + folder_.path() + " --counters " + counting_program() +
                 " --kernel " + words);
  }
  std::string in_file(const std::string& code) {
    write_text(folder_ / "my.cu", code);
    return "FILE=" + folder_ / "my.cu";
  }
  // Runs the script, which may print words in [...] by say(), and returns <main>.
  std::string drawn(const std::string& page, const std::string& script, int width = 800) {
    write_text(folder_ / "page.html",
               replaced(page, "</body>",
                        "<script>const say = (...words) => "
                        "document.querySelector('main').append(`[${words.join('|')}]`);" +
                            script + "</script></body>"));
    const Ended end = shell(
        "timeout 300 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--disable-gpu-watchdog "
        "--user-data-dir='" +
        folder_ / "profile" + "' --window-size=" + std::to_string(width) +
        ",1000 --enable-logging=stderr --dump-dom 'file://" + folder_ / "page.html" + "' 2>'" +
        folder_ / "log" + "'");
    EXPECT_EQ(end.code, 0);
    EXPECT_FALSE(has(contents(folder_ / "log"), "CONSOLE")) << contents(folder_ / "log");
    const size_t begin = end.output.find("<main");
    return end.output.substr(begin, end.output.find("<noscript") - begin);
  }
  static bool has_browser() { return std::system("command -v chromium >/dev/null") == 0; }
  TemporaryFolder folder_;
};

// ---- Counts -------------------------------------------------------------------------------------
TEST_F(View, CountsOfLinesAddUpToTheKernels) {
  const Json version = facts_of(patterns())["versions"][0];
  ASSERT_EQ(version["kernels"].size(), 7u);
  expect_all_counted(version);
  const auto counter = [&](size_t kernel, const char* name) {
    return version["kernels"][kernel]["counters"][name].get<int>();
  };
  // tests/counters/counters_test.cu expects the same counts.
  EXPECT_EQ(counter(0, "load sectors"), 32);
  EXPECT_EQ(counter(0, "store sectors"), 4);
  EXPECT_EQ(counter(1, "load sectors"), 9 * 5);
  EXPECT_EQ(counter(3, "partial"), 2);
  EXPECT_EQ(counter(4, "shared turns"), 32 + 32 * 32);
  EXPECT_EQ(counter(5, "shared conflicts"), 0);
  EXPECT_EQ(counter(6, "ldmatrix turns"), 32);
  EXPECT_EQ(counter(6, "mma"), 1);
  EXPECT_EQ(version["kernels"][1]["kept"], Json::parse("[0,1,4,8]"));  // of 9 blocks
  EXPECT_EQ(version["kernels"][4]["executions"].at(version["main"].dump()).at("23"),
            Json::parse("[32,1024]"));
}

// Pages of a kernel's operations, times their runs in a step, add up to what make counters prints.
TEST_F(View, CountsOfAKernelAreThoseOfMakeCounters) {
  for (const std::string kernel : {"layernorm_forward", "cross_entropy_forward"}) {
    std::map<std::string, uint64_t> all;
    std::string runs;
    const Ended table = shell("BAREVISION_MODELS=models " + counting_program() + " --filter " +
                              kernel + " --model vit_tiny");
    std::istringstream lines(table.output);
    const std::regex operation(
        "([A-Z][A-Za-z]+(?: \\+residual)?) +([A-Z][A-Za-z0-9 ]*[0-9]|rows"
        "[A-Za-z0-9 ]*[0-9]) {2,}([0-9]+) +[0-9]+ +[0-9.]+ .*");
    uint64_t requests = 0, conflicts = 0;
    for (std::string line; std::getline(lines, line);) {
      std::smatch part;
      if (line.starts_with(kernel + "<")) {
        std::istringstream numbers(line.substr(line.find('>') + 1));
        double skipped = 0;
        numbers >> runs >> requests;
        for (int i = 0; i < 7; ++i) numbers >> skipped;
        numbers >> conflicts;
      } else if (std::regex_match(line, part, operation)) {
        const Ended end =
            view_kernel(kernel + " --case '" + part[1].str() + " " + part[2].str() + "'");
        const Json version = facts_of(page_of(end))["versions"][0];
        expect_all_counted(version);
        for (const auto& [name, n] : sums(version["kernels"][0]))
          all[name] += n * std::stoul(part[3]);
      }
    }
    EXPECT_GT(requests, 0u) << table.output;
    EXPECT_EQ(all["load requests"] + all["store requests"], requests) << table.output;
    EXPECT_EQ(all["shared conflicts"], conflicts);
  }
}

TEST_F(View, APageOfLayernormIsSmallAndNamesItsCase) {
  const std::string page = page_of(view_kernel("layernorm_forward"));
  EXPECT_LT(page.size(), 2u << 20);
  const Json facts = facts_of(page);
  EXPECT_TRUE(has(facts["about"], "case: LinearNormForward M788 N192 K192; vit_tiny"));
  std::vector<std::string> files;  // and none of the tool's
  for (const Json& file : facts["versions"][0]["files"]) files.push_back(file["path"]);
  EXPECT_EQ(files, (std::vector<std::string>{"kernels/cuda/reduce.cuh",
                                             "kernels/layers/layernorm.cu", "kernels/cuda/pack.cuh",
                                             "kernels/gemm/dropout.cuh", "kernels/cuda/ptx.cuh"}));
  EXPECT_EQ(facts["versions"][0]["main"], 1);
  for (const char* name : {"stream[", "norm_weight[", "norm_bias[", "out["})
    EXPECT_TRUE(has(page, "\"" + std::string(name))) << "named as the operation's arguments";
  EXPECT_EQ(facts["versions"][0]["left_out"], "");
  const Json less =
      facts_of(page_of(view_kernel("layernorm_forward --limit 70000")))["versions"][0];
  EXPECT_LT(less.dump().size(), 70000u);
  EXPECT_TRUE(has(less["left_out"], "Addresses are kept of each line's first execution by warp"));
  expect_all_counted(less);
  EXPECT_TRUE(has(page, "default-src 'none'"));
  EXPECT_EQ(count(page, "https?://"), 0u);
}

// ---- Pictures -----------------------------------------------------------------------------------
TEST_F(View, PicturesAreThoseKnownByHand) {
  if (!has_browser()) GTEST_SKIP() << "chromium is not installed: make deps-dev";
  const std::string dom = drawn(patterns(), R"(
    const keep = (name, kernel, line) => {
      panes[0].show(kernel);
      if (line) panes[0].choose(line);
      const copy = document.createElement('pre');
      copy.innerHTML = `[${name}]` + panes[0].part('.worst').textContent + '|' +
        panes[0].part('.look').innerHTML + `[end ${name}]`;
      document.querySelector('main').append(copy);
    };
    keep('strided', 0); keep('misplaced', 1); keep('broadcast', 2, 14);
    keep('half', 3); keep('unpadded', 4); keep('padded', 5, 23); keep('ldmatrix', 6, 33);
    keep('mma', 6, 35);)");
  const auto part = [&](const std::string& name) {
    const size_t begin = dom.find("[" + name + "]");
    return dom.substr(begin, dom.find("[end " + name + "]") - begin);
  };
  std::string look = part("strided");
  EXPECT_TRUE(has(
      look, "line 9 load of inp: touches 32 sectors where 4 hold what it needs; lanes are 128"));
  EXPECT_EQ(count(look, "class=\"sector\""), 32u);
  EXPECT_EQ(count(look, "class=\"sector idle\""), 96u);
  EXPECT_EQ(count(look, "data-lanes=\"[0-9]+\""), 32u);
  EXPECT_TRUE(has(look, "lane 31: +3968</title>"));
  look = part("misplaced");
  EXPECT_TRUE(has(look,
                  "line 12 load of inp: touches 5 sectors where 4 hold what it needs; neighbours, "
                  "but they begin 4 bytes past a sector"));
  EXPECT_EQ(count(look, "class=\"sector\""), 5u);
  EXPECT_EQ(count(look, "class=\"sector idle\""), 3u);
  look = part("broadcast");
  EXPECT_EQ(count(look, "class=\"sector\""), 1u);
  EXPECT_EQ(count(look, "data-lanes=\"0,1,2[0-9,]*,31\""), 1u);
  EXPECT_TRUE(has(look, "all lanes at one address"));
  look = part("half");
  EXPECT_TRUE(has(look, "line 16 half of the lanes take no part"));
  EXPECT_EQ(count(look, "data-lanes=\"[0-9]*[13579]\""), 16u);
  EXPECT_EQ(count(look, "data-lanes"), 16u);
  look = part("unpadded");
  EXPECT_TRUE(has(look, "line 23 load of tile: 32 turns where 1 "));
  EXPECT_EQ(count(look, "data-bank=\"0\""), 32u);
  EXPECT_EQ(count(look, "bank t1"), 1u);
  EXPECT_EQ(count(look, "bank t[234]"), 31u);
  EXPECT_TRUE(has(look, "lane 0: tile[0][0], bank 0"));
  look = part("padded");
  EXPECT_EQ(count(look, "bank t1"), 32u);
  EXPECT_EQ(count(look, "bank (t[234]|none)"), 0u);
  for (int lane : {0, 5, 31})  // in a padded tile, a column's elements are one bank apart
    EXPECT_EQ(count(look, "data-lanes=\"" + std::to_string(lane) + "\" data-bank=\"" +
                              std::to_string(lane) + "\""),
              1u);
  look = part("ldmatrix");
  EXPECT_EQ(count(look, "data-bank"), 32u * 4);  // 16 bytes a lane: 4 words, in banks 0 to 3
  EXPECT_EQ(count(look, "turn 32<"), 1u);
  EXPECT_TRUE(has(look, "r[1][3][4]: lane 14, lower half"));
  look = part("mma");
  EXPECT_EQ(count(look, "data-lanes=\"[0-9]+\""), 256u + 128 + 128);
  EXPECT_EQ(count(look, "data-lanes=\"5\""), 8u + 4 + 4);
  for (const char* cell :
       {"A[9][3]: lane 5, a[1], upper half", "A[1][10]: lane 5, a[2], lower half",
        "B[11][1]: lane 5, b1, upper half", "D[9][2]: lane 5, d[2]"})
    EXPECT_TRUE(has(look, cell)) << cell;
  for (const char* wrong : {"NaN", "undefined", "Infinity", "[object"})
    EXPECT_FALSE(has(dom, wrong)) << wrong;
}

// ---- Faults ------------------------------------------------------------------------------------
TEST_F(View, OpensOnTheWorstLineAndListsThoseOfAllKernels) {
  if (!has_browser()) GTEST_SKIP() << "chromium is not installed: make deps-dev";
  const std::string dom = drawn(faults(), R"(
    const pane = panes[0], here = () => say('at', pane.kernel.name, pane.line);
    here();
    for (const list of pane.root.querySelectorAll('[data-list]'))
      say(list.dataset.list, ...[...list.children].map(x => x.textContent));
    say(...[...pane.root.querySelectorAll('[data-kernel]')].map(x => x.textContent));
    pane.part('[data-list=sectors] button').click();
    here();
    pane.part('[data-kernel="2"]').click();
    here();)");
  EXPECT_TRUE(has(dom, "[at|transpose|42]")) << "15,872 turns too many, the most";
  EXPECT_TRUE(has(
      dom,
      "[sectors|14,336row_sums, line 17 load of matrix: touches 32 sectors where 4 hold what it "
      "needs; lanes are 1024 bytes apart|512shift, line 23 load of inp: touches 5 sectors "
      "where 4 hold what it needs; neighbours, but they begin 4 bytes past a sector]"));
  EXPECT_TRUE(has(dom, "[turns|15,872transpose, line 42 load of tile: 32 turns where 1 is enough"));
  EXPECT_TRUE(has(dom, "[scale|row_sums 1|shift 1|block_sums 2|transpose 1|copy]")) << "findings";
  EXPECT_TRUE(has(dom, "[at|row_sums|17]"));
  EXPECT_TRUE(has(dom, "[at|shift|23]"));
}

TEST_F(View, ColoursByCostAndShowsTheWorstAccessOfALine) {
  if (!has_browser()) GTEST_SKIP() << "chromium is not installed: make deps-dev";
  const std::string dom = drawn(faults(), R"(
    const pane = panes[0];
    const line = (kernel, number) => {
      pane.show(kernel);
      const cells = [...pane.part(`tr[data-line="${number}"]`).cells].slice(1, -1);
      say(number, ...cells.filter(x => x.textContent).map(x => x.className + x.textContent));
    };
    line(0, 11); line(1, 17); line(2, 23); line(3, 34); line(4, 42);
    pane.show(1);
    say(...[...pane.root.querySelectorAll('.tile')].map(x => x.textContent));)");
  EXPECT_TRUE(has(dom, "[11|512|1,024|4 / 4|100%]"));
  EXPECT_TRUE(has(dom, "[17|512|512|bad32 / 4|13%]"));
  // The store in this line is coalesced, so that the line's average would be 4.5 sectors.
  EXPECT_TRUE(has(dom, "[23|512|1,024|badload 5 / 4|80%]"));
  // 31 lanes idle and 28 bytes of 32 unused, but only once per block.
  EXPECT_TRUE(has(dom, "[34|64|64|1 / 1|13%|97%]"));
  EXPECT_TRUE(has(dom, "[42|512|512|4 / 4|100%|bad32 / 1]"));
  EXPECT_TRUE(has(dom,
                  "[requests514|sectors requested16,392|sectors needed2,056|"
                  "sectors per request31.9 / 4|distinct sectors, once per launch2,056"));
}

// The run allocates all its arrays in one line, under the name p.
TEST_F(View, NamesMemoryByTheKernelsParameters) {
  const Json facts = facts_of(faults());
  std::map<std::string, std::set<std::string>> names;
  for (const Json& kernel : facts["versions"][0]["kernels"])
    for (const Json& line : kernel["lines"])
      for (const Json& sample : line["samples"])
        if (sample[4] == -1) {
          const std::string name = sample[5];
          names[kernel["name"]].insert(std::regex_replace(name, std::regex(R"(\[\d+\])"), ""));
        }
  const std::set<std::string> plain{"inp", "out"};
  EXPECT_EQ(names["scale"], plain);
  EXPECT_EQ(names["row_sums"], (std::set<std::string>{"matrix", "sums"}));
  EXPECT_EQ(names["transpose"], plain);
  EXPECT_EQ(names["copy"], (std::set<std::string>{"p (allocation 2 of faults.cu:53)",
                                                  "p (allocation 3 of faults.cu:53)"}));
}

TEST_F(View, FitsScreensOfTwoWidths) {
  if (!has_browser()) GTEST_SKIP() << "chromium is not installed: make deps-dev";
  for (const int width : {1400, 390}) {
    // The browser's window is at least 500 pixels wide.
    const std::string dom =
        drawn(faults(), "document.body.style.width = '" + std::to_string(width) + "px';" + R"(
      versions[0].files[0].text[0] = ' '.repeat(60) + 'a long line, far to the right'.repeat(9);
      panes[0].show(4);
      const overflow = x => x.scrollWidth - x.clientWidth;
      const box = panes[0].part('.source').getBoundingClientRect();
      const row = panes[0].part('tr.chosen').getBoundingClientRect();
      say(document.querySelector('main').clientWidth, overflow(document.querySelector('main')),
        overflow(panes[0].part('.source')), row.top > box.top && row.bottom < box.bottom);)",
              width);
    EXPECT_TRUE(has(dom, "[" + std::to_string(width) + "|0|0|true]")) << dom.substr(dom.rfind('['));
  }
}

TEST_F(View, IsReadByKeyboardAndComparesTwoVersions) {
  if (!has_browser()) GTEST_SKIP() << "chromium is not installed: make deps-dev";
  std::filesystem::copy("learn/matmul/v1.cu", folder_ / "one.cu");
  write_text(folder_ / "two.cu",
             replaced(contents("learn/matmul/v1.cu"), "matmul v1", "</script>"));
  const std::string page = page_of(make_view("FILE=" + folder_ / "one.cu,two.cu"));
  const std::string dom = drawn(page, R"(
    const row = panes[1].root.querySelector('tr.chosen'), pick = (part, value) => {
      part.value = value;
      part.dispatchEvent(new Event('input', {bubbles: true}));
    };
    const all = [...panes[1].root.querySelectorAll('tr.has')], from = all.indexOf(row);
    row.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowUp', bubbles: true}));
    document.body.dataset.moved = from - all.indexOf(panes[1].root.querySelector('tr.chosen'));
    row.click();
    pick(panes[1].part('[data-pick=block]'), panes[1].kernel.kept.at(-1));
    pick(panes[1].part('[data-pick=warp]'), 3);
    pick(panes[1].part('input[type=range]'), 7);
    document.querySelector('main').append(`[${panes[1].part('.says').textContent}]`,
      `[${['block', 'warp'].map(x => panes[1].part(`[data-pick=${x}]`).value)}]`,
      `[${document.body.dataset.moved}]`);)");
  EXPECT_EQ(count(dom, "<section>"), 2u);
  EXPECT_EQ(count(dom, "<table class=\"compare\">"), 1u);
  EXPECT_TRUE(has(dom, "<th>load sectors</th>"));
  EXPECT_TRUE(has(dom, "<th>distinct sectors read</th>"));
  EXPECT_EQ(count(dom, "\\[lane 7: "), 1u);
  EXPECT_EQ(count(dom, "\\[[0-9]+,3\\]"), 1u);
  EXPECT_TRUE(has(dom, "[1]"));
  EXPECT_GT(count(dom, "class=\"[gs]\""), 8u);  // bars in the timelines
}

// A rung's line has numbers that only learn/ladder reads.
TEST_F(View, PrintsWhetherARungIsRightAndThenThePath) {
  const Ended end = make_view(in_file(R"(#include <cstdio>
__global__ void fill(int* x) { x[threadIdx.x] = 1; }
int main() {
  int* x;
  cudaMalloc(&x, 128);
  fill<<<1, 32>>>(x);
  cudaDeviceSynchronize();
  printf("fill v1: naive: 0 of 32 wrong, error 0.0e+00 <= 1.0e-05; needs 128 bytes, 0 of weights, "
         "32 flops, times 2; earns us; measured as -\n");
}
)"));
  EXPECT_EQ(end.output, "fill v1: naive: 0 of 32 wrong, error 0.0e+00 <= 1.0e-05\n" +
                            build_folder() + "/view/my.html\n");
}

// ---- Refusals ----------------------------------------------------------------------------------
void expect_refused(const Ended& end, const std::string& words) {
  EXPECT_EQ(end.code, 2) << end.output;
  EXPECT_TRUE(has(end.output, "view: " + words)) << end.output;
  EXPECT_LE(std::ranges::count(end.output, '\n'), 2) << end.output;  // and make's own line
}
TEST_F(View, RefusesFiles) {
  // Before the kernels are compiled for counting, which takes minutes.
  expect_refused(make_view("KERNEL=nosuch"),
                 "KERNEL=nosuch: no file of kernels/ has such a kernel");
  expect_refused(make_view("FILE=nowhere.cu"), "nowhere.cu: no such file\n");
  expect_refused(make_view(in_file("int main() {}")),
                 folder_ / "my.cu has no kernel: no function in it is __global__\n");
  expect_refused(make_view(in_file("__global__ void k(int* p) {\n  *p = 1\n}\nint main() {}\n")),
                 folder_ / "my.cu:2:9: error: expected ';'");
  expect_refused(make_view(in_file("__global__ void k() { volatile int x = 0; while (!x) {} }\n"
                                   "int main() { k<<<1, 32>>>(); cudaDeviceSynchronize(); }\n") +
                           " SIMT_TIMEOUT=1"),
                 folder_ /
                     "my.cu: k: block (0,0,0): thread (0,0,0): still running after 1 s of "
                     "processor time (SIMT_TIMEOUT)\n");
}
TEST_F(View, RefusesKernels) {
  expect_refused(view_kernel("layernorm_forwrd"),
                 "no kernel is called layernorm_forwrd; the nearest is layernorm_forward\n");
  expect_refused(view_kernel("layernorm"),
                 "layernorm fits several kernels: layernorm_backward, layernorm_forward\n");
  expect_refused(view_kernel("layernorm_forward --case rows5"),
                 "layernorm_forward has no case rows5, but: LayerNormForward rows788 C192, ");
}

}  // namespace
}  // namespace bv::test
