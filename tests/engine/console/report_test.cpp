#include "engine/console/report.h"

#include <gtest/gtest.h>

namespace bv::test {
namespace {

TEST(Report, AValLossThatOnlyATooLargeRateGives) {
  bv::Setup s;
  s.model = load_model_config("resnet34");
  s.data.kind = DataKind::cifar;
  s.data.classes = std::vector<std::string>(10, "class");
  s.options.batch = 32;
  s.options.lr = 0.1;
  const std::string far = "val loss 3e+08 is far above ln(10) = 2.3, that of random guessing: ",
                    warning = "warning: " + far + "lr 0.1 is likely too large";
  EXPECT_EQ(val_loss_note(s, 3e8, 260), warning + " for batch 32 (the recipe's 0.1 is for 256)");
  s.options.accumulate = 8;
  EXPECT_EQ(val_loss_note(s, 3e8, 260), warning);
  EXPECT_EQ(val_loss_note(s, 3e8, 8),
            far +
                "after 8 updates batch norm's running statistics lag behind the weights; more "
                "updates, or a smaller --lr, help");
  // Losses of usual runs: the first epoch of CIFAR-10, overconfidence, an untrained model.
  for (const auto& [loss, updates] : {std::pair{80., 195}, {20., 9}, {2.4, 1}})
    EXPECT_EQ(val_loss_note(s, loss, updates), "") << loss;
  s.model = load_model_config("vit_tiny");
  EXPECT_EQ(val_loss_note(s, 3e8, 8), warning + " for batch 256 (the recipe's 0.001 is for 64)");
}

}  // namespace
}  // namespace bv::test
