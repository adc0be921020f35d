// A model's prediction for an image, and for those of an evaluation.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

struct Prediction {
  int64_t index;      // of the image in its data set
  int32_t label;      // its class; -1: the image could not be read
  int32_t top;        // the class with the largest logit: of equal ones the first, NaN is none
  float loss;         // cross-entropy, without label smoothing
  float probability;  // of `top`
};

// The wrong ones, those with the highest probability first, at most `most`.
std::vector<Prediction> surest_mistakes(std::span<const Prediction>, size_t most);

int32_t top_class(std::span<const float> logits);
// exp(logit - max) / their sum
std::vector<double> softmax(std::span<const float> logits);

// On rank 0 the predictions of all ranks, those of rank 0 first, without the images that could not
// be read; on the others none. Collective, waits for the device. No communicator: one rank.
std::vector<Prediction> gather(std::vector<Prediction> own, Backend&, Communicator*);

}  // namespace bv
