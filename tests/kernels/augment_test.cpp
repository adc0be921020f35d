// Operations on training images: the oracle, in integers except for hue, and the cases.
// tests/data/policy_test.cpp compares them with Pillow and torchvision.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

using Kind = ImageOpKind;

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct Picture {
  int size;
  std::vector<int> values;  // [size, size, 3]
  int& at(int y, int x, int c) { return values[(size_t(y) * size + x) * 3 + c]; }
  int at(int y, int x, int c) const { return values[(size_t(y) * size + x) * 3 + c]; }
  explicit Picture(int s) : size(s), values(size_t(s) * s * 3) {}
};

Picture cropped(const uint8_t* stored, const AugmentShape& s, const Crop& crop) {
  Picture result(s.size);
  for (int y = 0; y < s.size; ++y)
    for (int x = 0; x < s.size; ++x) {
      const int row = (crop.upside_down ? s.size - 1 - y : y) + crop.top;
      const int column = (crop.flip ? s.size - 1 - x : x) + crop.left;
      if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
      for (int c = 0; c < 3; ++c)
        result.at(y, x, c) = stored[(size_t(row) * s.width + column) * 3 + c];
    }
  return result;
}

int cut(int64_t x) { return int(std::clamp<int64_t>(x, 0, 255)); }
int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int blend(int from, int to, int factor) {
  return cut(floor_div(int64_t{65536} * from + int64_t{factor} * (to - from) + 128, 65536));
}
int grey(const Picture& p, int y, int x) {
  return (p.at(y, x, 0) * 19595 + p.at(y, x, 1) * 38470 + p.at(y, x, 2) * 7471 + 32768) / 65536;
}

// Pillow's ImageOps and ImageStat.
int autocontrast(const std::vector<int>& channel, int value) {
  const auto [low, high] = std::minmax_element(channel.begin(), channel.end());
  return *low == *high ? value : cut((value - *low) * 255 / (*high - *low));
}
int equalize(const std::vector<int>& channel, int value) {
  const int last = *std::max_element(channel.begin(), channel.end());
  const auto step =
      (int64_t(channel.size()) - std::count(channel.begin(), channel.end(), last)) / 255;
  const auto below =
      std::count_if(channel.begin(), channel.end(), [&](int v) { return v < value; });
  return step == 0 ? value : cut((step / 2 + below) / step);
}
int mean_grey(const Picture& p) {
  int64_t sum = 0, n = int64_t{p.size} * p.size;
  for (int y = 0; y < p.size; ++y)
    for (int x = 0; x < p.size; ++x) sum += grey(p, y, x);
  return int((2 * sum + n) / (2 * n));
}

// colorsys as Pillow computes it: in double, with float only where Pillow uses float.
void rotate_hue(const int (&rgb)[3], int by, int (&out)[3]) {
  const int v = std::max({rgb[0], rgb[1], rgb[2]}), low = std::min({rgb[0], rgb[1], rgb[2]});
  int h = 0, s = 0;
  if (v > low) {
    const float range = float(v - low);
    const float r = float(v - rgb[0]) / range, g = float(v - rgb[1]) / range,
                b = float(v - rgb[2]) / range;
    const float sector = rgb[0] == v   ? b - g
                         : rgb[1] == v ? float(2.0 + r - b)
                                       : float(4.0 + g - r);
    h = cut(int(float(std::fmod(sector / 6.0 + 1.0, 1.0)) * 255.0));
    s = cut(int(range / float(v) * 255.0));
  }
  h = (h + by) & 255;  // by may be negative
  const double sixth = h * 6.0 / 255.0, fs = s / 255.0;
  const int i = int(std::floor(sixth));
  const double f = sixth - i;
  const int p = cut(std::lround(v * (1 - fs))), q = cut(std::lround(v * (1 - fs * f)));
  const int t = cut(std::lround(v * (1 - fs * (1 - f))));
  const int table[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  for (int c = 0; c < 3; ++c) out[c] = s == 0 ? v : table[i % 6][c];
}

Picture augmented(const Picture& p, const ImageOp& op) {
  const int size = p.size, n = op.at[0], mean = mean_grey(p);
  Picture result = p;
  std::vector<int> channels[3];
  for (size_t i = 0; i < p.values.size(); ++i) channels[i % 3].push_back(p.values[i]);
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x) {
      const int column = int(floor_div(int64_t{n} * x + int64_t{op.at[1]} * y + op.at[2], 65536));
      const int row =
          int(floor_div(int64_t{op.at[3]} * x + int64_t{op.at[4]} * y + op.at[5], 65536));
      const bool inside = row >= 0 && row < size && column >= 0 && column < size;
      const bool border = y == 0 || x == 0 || y == size - 1 || x == size - 1;
      const bool erased = y >= n && y < n + op.at[2] && x >= op.at[1] && x < op.at[1] + op.at[3];
      const int pixel[3] = {p.at(y, x, 0), p.at(y, x, 1), p.at(y, x, 2)};
      int rotated[3];
      rotate_hue(pixel, n, rotated);
      for (int c = 0; c < 3; ++c) {
        const int v = pixel[c];
        int sum = 4 * v;
        for (int k = 0; k < 9 && !border; ++k) sum += p.at(y + k / 3 - 1, x + k % 3 - 1, c);
        int& out = result.at(y, x, c);
        switch (op.kind) {
          case Kind::identity:
            break;
          case Kind::affine:
            out = inside ? p.at(row, column, c) : op.fill[c];
            break;
          case Kind::erase:
            out = erased ? op.fill[c] : v;
            break;
          case Kind::invert:
            out = 255 - v;
            break;
          case Kind::posterize:
            out = v & n;
            break;
          case Kind::solarize:
            out = v < n ? v : 255 - v;
            break;
          case Kind::solarize_add:
            out = v < 128 ? std::min(v + n, 255) : v;
            break;
          case Kind::brightness:
            out = blend(0, v, n);
            break;
          case Kind::contrast:
            out = blend(mean, v, n);
            break;
          case Kind::autocontrast:
            out = autocontrast(channels[c], v);
            break;
          case Kind::equalize:
            out = equalize(channels[c], v);
            break;
          case Kind::color:
            out = blend(grey(p, y, x), v, n);
            break;
          case Kind::sharpness:
            out = border ? v : blend((2 * sum + 13) / 26, v, n);
            break;
          case Kind::hue:
            out = rotated[c];
            break;
        }
      }
    }
  return result;
}

}  // namespace oracle

// ---- cases --------------------------------------------------------------------------------------
const std::pair<const char*, ImageOp> operations[] = {
    {"identity", {Kind::identity}},
    {"shear", {Kind::affine, {}, {65536, 19661, -9830, 0, 65536, 0}}},
    {"translate", {Kind::affine, {1, 2, 3}, {65536, 0, 3 << 16, 0, 65536, -(2 << 16)}}},
    {"rotate", {Kind::affine, {128, 128, 128}, {56756, 32768, -300000, -32768, 56756, 400000}}},
    {"outside", {Kind::affine, {9, 99, 199}, {65536, 0, -(1 << 29), 0, 65536, 1 << 29}}},
    {"erase", {Kind::erase, {10, 20, 30}, {1, 2, 3, 4}}},
    {"erase_over_the_edge", {Kind::erase, {10, 20, 30}, {-2, -3, 4, 1000}}},
    {"invert", {Kind::invert}},
    {"posterize", {Kind::posterize, {}, {0xF0}}},
    {"solarize", {Kind::solarize, {}, {179}}},
    {"solarize_all", {Kind::solarize, {}, {0}}},
    {"solarize_add", {Kind::solarize_add, {}, {110}}},
    {"brightness", {Kind::brightness, {}, {int(1.9 * 65536)}}},
    {"black", {Kind::brightness, {}, {0}}},
    {"contrast", {Kind::contrast, {}, {int(0.1 * 65536)}}},
    {"more_contrast", {Kind::contrast, {}, {int(1.9 * 65536)}}},
    {"autocontrast", {Kind::autocontrast}},
    {"equalize", {Kind::equalize}},
    {"color", {Kind::color, {}, {int(1.9 * 65536)}}},
    {"grey", {Kind::color, {}, {0}}},
    {"sharpness", {Kind::sharpness, {}, {int(1.9 * 65536)}}},
    {"smooth", {Kind::sharpness, {}, {0}}},
    {"hue", {Kind::hue, {}, {60}}},
    {"hue_back", {Kind::hue, {}, {200}}},
};

// Contents of the images: noise of all values, noise of few values (for histograms), or one colour.
enum class Content { noise, dark, plain };

// Each image has a different operation in the layer that runs; all other layers hold `invert`.
Problem augment_images(DType dtype, AugmentShape s, Content content, std::vector<Crop> crops) {
  Problem p(dtype);
  p.any_threads = true;
  s.B = int(std::size(operations));
  s.layer = 1, s.layers = 3;
  const size_t stored = size_t(s.height) * s.width * 3, made = size_t(s.size) * s.size * 3;
  std::vector<uint8_t> images(size_t(s.B) * stored);
  for (uint8_t& value : images)
    value = uint8_t(content == Content::noise  ? p.random.below(256)
                    : content == Content::dark ? 20 + p.random.below(60)
                                               : 77);
  std::vector<ImageOp> ops(size_t(s.B) * s.layers, {Kind::invert});
  std::vector<uint8_t> expected;
  for (int b = 0; b < s.B; ++b) {
    ops[size_t(b) * s.layers + s.layer] = operations[b].second;
    const Crop crop = crops.empty() ? Crop{} : crops[b % crops.size()];
    for (const int v :
         oracle::augmented(oracle::cropped(&images[b * stored], s, crop), operations[b].second)
             .values)
      expected.push_back(uint8_t(v));
  }
  p.changed_objects<uint8_t>(
      "out", std::vector<uint8_t>(expected.size(), 0xA5), [=](const uint8_t* out) -> std::string {
        for (size_t i = 0; i < expected.size(); ++i)
          if (out[i] != expected[i])
            return std::string(operations[i / made].first) + ": row " +
                   std::to_string(i % made / 3 / s.size) + ", column " +
                   std::to_string(i % made / 3 % s.size) + ", channel " + std::to_string(i % 3) +
                   ": " + std::to_string(out[i]) + ", should be " + std::to_string(expected[i]);
        return "";
      });
  p.objects("images", images), p.objects("ops", ops);
  if (!crops.empty()) {
    std::vector<Crop> all;
    for (int b = 0; b < s.B; ++b) all.push_back(crops[b % crops.size()]);
    p.objects("crops", all);
  }
  p.runs(AugmentImages{.shape = s});
  return p;
}

KernelCases augment_cases() {
  KernelCases cases;
  const auto add = [&](int height, int width, int size, Content content, const char* what,
                       const std::vector<Crop>& crops = {}) {
    cases.add("augment_images" + sizes({{"height", height}, {"width", width}, {"size", size}}) +
                  "_" + what,
              augment_images, AugmentShape{.height = height, .width = width, .size = size}, content,
              crops);
  };
  const std::vector<Crop> flips = {{0, 0, 1, 0}, {0, 0, 0, 1}, {0, 0, 1, 1}, {0, 0, 0, 0}};
  const std::vector<Crop> padded = {{-4, 3, 0, 0}, {4, -4, 1, 0},  {-3, -1, 1, 1},
                                    {2, 0, 0, 1},  {-40, 0, 1, 0}, {0, 50, 0, 0}};
  for (const int size : {1, 2, 3, 17, 20}) add(size, size, size, Content::noise, "noise");
  add(32, 32, 32, Content::dark, "dark");
  add(33, 33, 33, Content::plain, "plain");
  add(64, 64, 64, Content::noise, "flip", flips);
  add(20, 20, 20, Content::noise, "padded", padded);
  add(12, 9, 24, Content::noise, "framed", {{-7, -8, 1, 0}, {-12, -15, 0, 1}});
  add(30, 41, 19, Content::noise, "cropped", {{11, 22, 1, 1}, {3, 0, 0, 0}});
  cases.begin_sweep();
  for (int size = 1; size <= 72; ++size) add(size, size, size, Content::noise, "sweep", flips);
  add(100, 100, 100, Content::noise, "sweep");
  return cases;
}

[[maybe_unused]] const bool added = add_cases(augment_cases());

using Op = AugmentImages;
[[maybe_unused]] const bool refused = refuses<Op>({
    {"layer", [](Op& o) { o.shape.layer = o.shape.layers; }},
    {"size", [](Op& o) { o.shape.size = 8193; }},
    {"crops", [](Op& o) { o.crops = nullptr, o.shape.height = o.shape.size + 1; }},
    {"B", [](Op& o) { o.shape.B = 65536; }, Refusal<Op>::gpu},
});

// Hue is the only operation in floating point.
TEST(Oracle, HueOfPillow) {
  const int cases[][7] = {// r, g, b, shift, and Pillow's result
                          {200, 100, 50, 60, 89, 200, 50},
                          {10, 250, 30, 128, 250, 11, 230},
                          {77, 77, 77, 99, 77, 77, 77}};
  for (const auto& c : cases) {
    int out[3];
    oracle::rotate_hue({c[0], c[1], c[2]}, c[3], out);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], c[4 + i]) << c[0] << ' ' << i;
  }
}

}  // namespace
}  // namespace bv::test
