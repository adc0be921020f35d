// --amp-policy: the three policies as tables, one row per epoch, and refused options.
#include "engine/precision/policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/options/option_values.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

constexpr PrecisionPolicy usual{
    .kind = AmpPolicy::span, .start = 1, .end = 1000, .hold = 1, .interval = 4, .interval_hold = 2};

struct Epoch {
  double lr, loss;  // at the epoch's beginning; at its end
  bool sixteen_bits;
  std::string reason;
};

void expect(const PrecisionPolicy& policy, const std::vector<Epoch>& epochs) {
  PrecisionState state;
  int64_t number = 0;
  for (const Epoch& e : epochs) {
    state = decide(policy, state, ++number, e.lr);
    EXPECT_EQ(state.epoch, number);
    EXPECT_EQ(state.sixteen_bits, e.sixteen_bits) << "epoch " << number;
    EXPECT_EQ(state.reason, e.reason) << "epoch " << number;
    state.add_loss(e.loss);
  }
}

TEST(PrecisionPolicy, ByEpoch) {
  PrecisionPolicy policy = usual;
  policy.start = 2, policy.end = 3;
  const std::string in = "within epochs 2 to 3", out = "not " + in;
  expect(policy, {{1, 9, false, out}, {9, 1, true, in}, {1, 9, true, in}, {1, 1, false, out}});
  policy.start = 0, policy.end = 99;
  expect(policy, {{1, 1, true, "within epochs 0 to 99"}});
  policy.start = 3, policy.end = 2;  // never
  const std::string never = "not within epochs 3 to 2";
  expect(policy, {{1, 1, false, never}, {1, 1, false, never}, {1, 1, false, never}});
}

TEST(PrecisionPolicy, ByUnrest) {
  PrecisionPolicy policy = usual;
  policy.kind = AmpPolicy::hold;
  const std::string calm = "neither lr nor loss rose";
  expect(policy, {{.1, 2, true, calm},
                  {.1, 2.1, true, calm},
                  {.1, 2.4, true, calm},  // 2 to 2.1: 5%
                  {.1, 2, false, "loss rose from 2.1 to 2.4"},
                  {.2, 2, false, "lr rose from 0.1 to 0.2"},
                  {.1, 2, true, calm},
                  {.1, HUGE_VAL, true, calm},
                  {.1, NAN, false, "loss rose from 2 to inf"},
                  {.1, 2, true, calm},  // from inf to inf: not known
                  {.1, 2, true, calm}});
}

TEST(PrecisionPolicy, ByUnrestHoldsItsDecision) {
  PrecisionPolicy policy = usual;
  policy.kind = AmpPolicy::hold, policy.start = 2, policy.end = 6, policy.hold = 2;
  const std::string calm = "neither lr nor loss rose", risen = "lr rose from 0.1 to 0.3",
                    out = "not within epochs 2 to 6";
  expect(policy, {{.1, 2, false, out},
                  {.1, 2, true, calm},
                  {.2, 4, true, calm},  // held
                  {.3, 2, false, risen},
                  {.1, 2, false, risen},
                  {.1, 2, true, calm},
                  {.1, 2, false, out}});
}

TEST(PrecisionPolicy, ByTheLosssFallInWindows) {
  PrecisionPolicy policy = usual;  // epochs 4, 5, 8, 9, 12, 13
  policy.kind = AmpPolicy::windows;
  const std::string before = "before the first window, epoch 4";
  expect(policy, {{1, 8, true, before},
                  {1, 8, true, before},
                  {1, 8, true, before},
                  {1, 6, false, "loss went from 8 to 8"},
                  {1, 2, true, "loss went from 8 to 6"},
                  {1, 2, true, "loss went from 8 to 6"},  // outside
                  {1, 1, true, "loss went from 8 to 6"},
                  {1, .4, true, "loss went from 2 to 1"},
                  {1, 1, false, "loss went from 1 to 0.4"},
                  {1, 1, false, "loss went from 1 to 0.4"}});
  policy.interval = 1;
  const std::string unknown = "no two losses to compare yet";
  expect(policy,
         {{1, 8, true, unknown}, {1, 7, true, unknown}, {1, 7, true, "loss went from 8 to 7"}});
}

class PrecisionOptions : public testing::Test {
 protected:
  Options options(const Values& values, Source source = Source::command_line) {
    Options o;
    o.precision = DType::fp16;
    for (const auto& [name, items] : values) {
      assign(o, *find_option(name), items, name);
      o.sources[name] = source;
    }
    return o;
  }
  std::string refusal(const Values& values) {
    Options o = options(values);
    return error_of([&] { precision_policy(o, notes_); });
  }
  std::vector<std::string> notes_;
};

TEST_F(PrecisionOptions, MakeAPolicy) {
  Options none = options({});
  EXPECT_FALSE(precision_policy(none, notes_));
  Options o = options({{"amp_policy", {"1"}}, {"amp_end", {"30"}}});
  const PrecisionPolicy made = *precision_policy(o, notes_);
  EXPECT_EQ(made.kind, AmpPolicy::hold);
  EXPECT_EQ(made.start, 10);
  EXPECT_EQ(made.end, 30);
  EXPECT_EQ(made.hold, 1);
  Options windows = options({{"amp_policy", {"2"}}});  // needs no end
  EXPECT_EQ(precision_policy(windows, notes_)->interval, 1000);
  EXPECT_EQ(precision_policy(windows, notes_)->interval_hold, 100);
}

TEST_F(PrecisionOptions, ThatContradictEachOther) {
  EXPECT_EQ(refusal({{"amp_policy", {"0"}}}),
            "--amp-policy 0 needs --amp-end N, its last epoch in 16 bits");
  EXPECT_EQ(refusal({{"amp_end", {"3"}}}), "--amp-end needs --amp-policy 0 or 1");
  EXPECT_EQ(refusal({{"amp_start", {"3"}}}), "--amp-start needs --amp-policy 0 or 1");
  EXPECT_EQ(refusal({{"amp_policy", {"2"}}, {"precision", {"fp32"}}}),
            "--amp-policy 2 switches between fp32 and --precision, which is fp32; try fp16 or "
            "bf16");
  EXPECT_TRUE(notes_.empty());
}

TEST_F(PrecisionOptions, OfARecipeGiveWayToADeviceWithoutSixteenBits) {
  Options o = options({{"amp_policy", {"2"}}}, Source::recipe);
  o.precision = DType::fp32;
  EXPECT_FALSE(precision_policy(o, notes_));
  EXPECT_EQ(o.amp_policy, AmpPolicy::none);
  EXPECT_EQ(
      notes_,
      (std::vector<std::string>{"the recipe's --amp-policy 2 is not used: --precision is fp32"}));
}

}  // namespace
}  // namespace bv::test
