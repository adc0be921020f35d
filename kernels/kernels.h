// The table of operations: what each one computes, on which shapes, and what it writes (= or +=).
// NAME.cpp computes it on the CPU, NAME.cu on a GPU, in kernels/layers/, training/, activation/,
// attention/, augment/ or conv/; NAME.cu starts with easily read plain kernels (--kernels plain).
// The engine accesses devices only through this table and kernels/backend.h. Terms: GLOSSARY.md.
//
// kernels/input.h, layers.h and training.h declare the operations.
//
// Arguments are in the order outputs, inputs, weights, shape, dtype, accumulate. Gradients are
// prefixed with d. "dtype" after a shape means elements of the operation's dtype; float tensors are
// always fp32. All tensors are dense, row-major and aligned to 64 bytes, workspaces to 256.
// Outputs never overlap inputs unless stated. Each describe(), in kernels/table/operations.cpp,
// states what is checked before a run and what the operation costs.
#pragma once
#include "kernels/input.h"
#include "kernels/kernel_table.h"
#include "kernels/layers.h"
#include "kernels/training.h"

namespace bv {

using Kernels = KernelTable<
    InputPatches, AugmentImages, LinearForward, LinearBackwardInput, LinearBackwardWeight,
    LinearBackward, BiasGeluForward, BiasGeluBackward, TanhForward, TanhBackward, LinearGeluForward,
    GeluLinearBackwardInput, GeluLinearBackward, LayerNormForward, LayerNormBackward,
    LinearNormForward, NormLinearBackwardInput, NormLinearBackward, AttentionForward,
    AttentionBackward, EmbedForward, EmbedBackward, TakeTokensForward, TakeTokensBackward,
    ConvForward, ConvBackwardInput, ConvBackwardWeight, ConvBackward, BatchNormForward,
    BatchNormEvaluate, BatchNormBackwardSums, ConvBackwardInputSums, ConvBackwardSums,
    BatchNormBackward, MaxPoolForward, MaxPoolBackward, AveragePoolForward, AveragePoolBackward,
    Dropout, CrossEntropyForward, CrossEntropyBackward, MeanLogits, Metrics, GradientTail,
    GradientNorm, OptimizerUpdate, RoundWeights, SumParts, GradientSquares>;
// The base of a device's table: class D final : public KernelRows<D>.
template <class Self>
using KernelRows = Kernels::Apply<RowsOf, Self>;

}  // namespace bv
