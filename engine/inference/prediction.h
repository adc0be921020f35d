// A model's predictions for the images of an evaluation.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

struct Prediction {
  int64_t index;      // index of the image in its data set
  int32_t label;      // its class; -1: the image could not be read
  int32_t top;        // class of the largest logit, the first of equal ones; ignores NaN
  float loss;         // cross-entropy, without label smoothing
  float probability;  // of `top`
};

// The wrong predictions with the highest probability, in descending order, at most `most`.
std::vector<Prediction> surest_mistakes(std::span<const Prediction>, size_t most);

int32_t top_class(std::span<const float> logits);
// exp(logit - max) / (sum of exp(logit - max) over the logits)
std::vector<double> softmax(std::span<const float> logits);

// On rank 0: the predictions of all ranks, in rank order, without images that could not be read; on
// other ranks nothing. Collective; waits for the device. Null communicator: one rank.
std::vector<Prediction> gather(std::vector<Prediction> own, Backend&, Communicator*);

}  // namespace bv
