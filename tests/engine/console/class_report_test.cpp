// The report of an evaluation, compared with scikit-learn's output (version 1.9.1,
// classification_report(y, p, target_names=..., digits=2)).
#include "engine/console/class_report.h"

#include <gtest/gtest.h>

#include <limits>

namespace bv::test {
namespace {

using Names = std::vector<std::string>;
using Pairs = std::vector<std::pair<int, int>>;  // label, predicted

std::vector<Prediction> predictions(const Pairs& pairs) {
  std::vector<Prediction> out;
  for (const auto& [label, top] : pairs)
    out.push_back({.index = static_cast<int64_t>(out.size()),
                   .label = label,
                   .top = top,
                   .loss = 0,
                   .probability = 1});
  return out;
}

TEST(ClassReport, AsScikitLearnPrintsIt) {
  const Pairs pairs = {{0, 0}, {1, 1}, {2, 0}, {2, 2}, {2, 2}, {1, 0}, {0, 0}, {2, 1}};
  EXPECT_EQ(class_report(predictions(pairs), Names{"cat", "dog", "horse"}),
            R"(              precision    recall  f1-score   support

         cat       0.50      1.00      0.67         2
         dog       0.50      0.50      0.50         2
       horse       1.00      0.50      0.67         4

    accuracy                           0.62         8
   macro avg       0.67      0.67      0.61         8
weighted avg       0.75      0.62      0.62         8
)");
}

TEST(ClassReport, AClassThatNeverOccursAndOneThatIsNeverPredicted) {
  const Pairs pairs = {{0, 0}, {0, 1}, {2, 0}, {2, 1}, {2, 0}};
  EXPECT_EQ(class_report(predictions(pairs), Names{"a", "never occurs", "never predicted"}),
            R"(                 precision    recall  f1-score   support

              a       0.33      0.50      0.40         2
   never occurs       0.00      0.00      0.00         0
never predicted       0.00      0.00      0.00         3

       accuracy                           0.20         5
      macro avg       0.11      0.17      0.13         5
   weighted avg       0.13      0.20      0.16         5
)");
  // labels=range(4): the last class is neither in y nor in p.
  EXPECT_EQ(class_report(predictions(pairs), Names{"a", "never occurs", "never predicted", "z"}),
            R"(                 precision    recall  f1-score   support

              a       0.33      0.50      0.40         2
   never occurs       0.00      0.00      0.00         0
never predicted       0.00      0.00      0.00         3
              z       0.00      0.00      0.00         0

       accuracy                           0.20         5
      macro avg       0.08      0.12      0.10         5
   weighted avg       0.13      0.20      0.16         5
)");
}

TEST(ClassReport, LongNamesAndThoseOfSeveralBytesACharacter) {
  const Pairs pairs = {{0, 0}, {1, 1}, {1, 0}};
  EXPECT_EQ(class_report(predictions(pairs), Names{"Löwenzahn", "Small-flowered Cranesbill"}),
            R"(                           precision    recall  f1-score   support

                Löwenzahn       0.50      1.00      0.67         1
Small-flowered Cranesbill       1.00      0.50      0.67         2

                 accuracy                           0.67         3
                macro avg       0.75      0.75      0.67         3
             weighted avg       0.83      0.67      0.67         3
)");
}

TEST(ClassReport, NothingRight) {
  EXPECT_EQ(class_report(predictions({{0, 1}, {1, 0}}), Names{"a", "b"}),
            R"(              precision    recall  f1-score   support

           a       0.00      0.00      0.00       1.0
           b       0.00      0.00      0.00       1.0

    accuracy                           0.00       2.0
   macro avg       0.00      0.00      0.00       2.0
weighted avg       0.00      0.00      0.00       2.0
)");
}

// 0.845 lies between two doubles; the order of the summation decides which of them a mean becomes.
TEST(ClassReport, MeansAreRoundedAsNumPyRoundsThem) {
  // Number of right predictions among twenty images, by class.
  const int right[] = {8, 10, 6, 2, 8, 13, 9, 16, 7, 12};
  Pairs pairs;
  for (int k = 0; k < 10; ++k)
    for (int i = 0; i < 20; ++i) pairs.emplace_back(k, i < right[k] ? k : (k + 1) % 10);
  Names names;
  for (int k = 0; k < 10; ++k) names.push_back(std::to_string(k));
  const std::string text = class_report(predictions(pairs), names);
  EXPECT_NE(text.find("   macro avg       0.46      0.45      0.45       200\n"), text.npos)
      << text;
}

TEST(ClassReport, ScoresAndConfusionCountEachPrediction) {
  const auto given = predictions({{0, 0}, {0, 1}, {2, 0}, {2, 1}, {2, 0}});
  const std::vector<ClassScores> scores = class_scores(given, 3);
  EXPECT_EQ(scores[0].precision, 1. / 3);
  EXPECT_EQ(scores[0].recall, .5);
  EXPECT_EQ(scores[0].f1, .4);
  EXPECT_EQ(scores[2].precision, 0);
  EXPECT_EQ(scores[2].support, 3);
  EXPECT_EQ(confusion_matrix(given, 3), (std::vector<int64_t>{1, 1, 0, 0, 0, 0, 2, 1, 0}));
  EXPECT_EQ(confusion_csv(given, Names{"a", "b,\"c\"", "d"}),
            "true\\predicted,a,\"b,\"\"c\"\"\",d\na,1,1,0\n\"b,\"\"c\"\"\",0,0,0\nd,2,1,0\n");
}

TEST(Prediction, TopClassIsTheFirstOfTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto top = [](std::vector<float> logits) { return top_class(logits); };
  EXPECT_EQ(top({1, 3, 2}), 1);
  EXPECT_EQ(top({1, 3, 3}), 1);
  EXPECT_EQ(top({nan, -2, nan}), 1);
  EXPECT_EQ(top({nan, nan}), 0);
  EXPECT_EQ(softmax(std::vector<float>{1000, 1000, -1000}), (std::vector<double>{.5, .5, 0}));
}

}  // namespace
}  // namespace bv::test
