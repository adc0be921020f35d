#include "tests/lattice/rows.h"

namespace bv::test {

using enum Promise;

std::span<const Row> lattice_rows() {
  static const std::vector<Row> rows = {
      // Each two values of device, model, precision, kernels, processes, zero, shards, pipeline,
      // amp, graphs and resume meet in one of these rows.
      {equal, "cpu_resnet34_bf16_n2_pipeline2_amp"},
      {equal, "cpu_resnet34_bf16_n4_zero_shards4"},
      {equal, "cpu_resnet34_fp32_resume"},
      {equal, "cpu_vit_tiny_bf16_n4_zero_pipeline2_amp_moves"},
      {equal, "cpu_vit_tiny_bf16_shards4_amp_resume"},
      {equal, "cpu_vit_tiny_fp32_n2_zero_shards4_moves"},
      {equal, "cpu_vit_tiny_fp32_n4_zero_pipeline2_resume"},
      {equal, "simt_resnet34_fp16_hopper_nograph_resume"},
      {equal, "simt_resnet34_fp16_n2_shards4_moves"},
      {equal, "simt_vit_tiny_bf16_n4_zero_pipeline2_nograph_resume"},
      {equal, "simt_vit_tiny_fp16_shards4_amp_nograph"},
      {equal, "simt_resnet34_fp32_plain_nograph"},
      {equal, "simt_vit_tiny_bf16_plain_n2_shards4_pipeline2_nograph_moves"},
      {equal, "simt_vit_tiny_bf16_plain_n4_amp_nograph"},
      {equal, "simt_vit_tiny_fp16_n4_pipeline2_nograph"},
      {equal, "simt_vit_tiny_fp16_plain_n2_zero_resume"},
      // The kernels for sm_90 take a minute on the stand-in.
      {equal, "simt_resnet34_fp16_hopper_n2_shards4_moves", 0, true},
      {equal, "simt_vit_tiny_bf16_hopper_n4_zero_shards4_nograph_resume", 0, true},
      {equal, "simt_vit_tiny_fp16_hopper_shards4_amp_nograph", 0, true},
      // Other choices, and meetings of three.
      {equal, "cpu_vit_tiny_fp32"},
      {equal, "cpu_vit_tiny_fp32_n2_layerdecay_resume"},
      {equal, "cpu_vit_tiny_fp32_n2_zero_streams3"},
      {equal, "cpu_vit_tiny_fp32_n4_zero_pipeline2_chunks2_streams3"},
      {equal, "cpu_vit_tiny_fp32_n4_pipeline4_recompute"},
      {equal, "cpu_vit_tiny_fp32_n4_zero_shards4_sgd_moves"},
      {equal, "cpu_vit_tiny_bf16_ampall"},
      {equal, "cpu_vit_tiny_bf16_ampnone"},
      {equal, "cpu_resnet34_fp32_n2_sgd_resume"},
      {equal, "cpu_resnet34_fp32_n3_pipeline3"},
      {equal, "cpu_resnet34_fp32_n4_shards4_syncbn_recompute"},
      {equal, "simt_resnet34_bf16_n2_shards4_syncbn"},
      {equal, "simt_vit_tiny_distilled_bf16_recompute"},
      {equal, "simt_vit_tiny_fp16_n2_zero_amp_streams3"},
      {equal, "simt_vit_tiny_fp16_ampall"},
      {equal, "simt_vit_tiny_fp16_ampnone"},
      {equal, "simt_vit_tiny_fp32_n2_pipeline2_chunks2"},
      {equal, "simt_vit_tiny_fp32_n3_pipeline3", 0, true},
      {equal, "simt_vit_tiny_fp32_n4_pipeline4", 0, true},
      {equal, "simt_resnet50_fp16_hopper_nograph", 0, true},
      {equal, "cpu_vit_large_fp32_n2_pipeline2_chunks2", 0, true},
      {equal, "cpu_resnet50_fp32_n4_shards4_syncbn_recompute", 0, true},

      {near, "cpu_vit_tiny_fp32_n2_moves_sgd", 1e-4},
      {near, "cpu_vit_tiny_fp32_n4_sgd", 1e-4},
      {near, "cpu_vit_tiny_fp32_n4", 1e-3},
      {near, "cpu_vit_tiny_fp32_n4_pipeline2_sgd", 1e-4},
      {near, "cpu_vit_tiny_bf16_n2_sgd", .01},
      {near, "cpu_vit_tiny_fp32_n2_reducebf16_sgd", 5e-3},
      {near, "cpu_vit_tiny_fp32_n2_reducefp16_sgd", 1e-3},
      {near, "cpu_resnet34_bf16", .02},
      {near, "cpu_resnet34_fp32_n2_syncbn", 5e-4},
      {near, "cpu_resnet34_fp32_n4_syncbn", 5e-4, true},
      {near, "cpu_resnet34_fp32_shards4_syncbn", 5e-4},
      {near, "simt_vit_tiny_fp32_sgd", 1e-4},
      {near, "simt_vit_tiny_fp32_n2_sgd", 1e-4},
      {near, "simt_vit_tiny_fp32_n3_sgd", 1e-4, true},
      {near, "simt_vit_tiny_fp32_n2_oversubscribe_sgd", 1e-4},
      {near, "simt_vit_tiny_fp32_n2_reducebf16_sgd", 5e-3, true},
      {near, "simt_vit_tiny_fp32_plain_sgd", 1e-4},
      {near, "simt_vit_tiny_fp16_plain", .02},
      {near, "simt_vit_tiny_bf16_plain", .02},
      {near, "simt_vit_tiny_fp16_hopper", .02, true},
      {near, "simt_vit_tiny_bf16_hopper", .02},
      {near, "simt_vit_tiny_distilled_bf16_hopper", .02, true},
      {near, "simt_vit_tiny_bf16_hopper_n2_pipeline2", .02, true},
      {near, "simt_vit_large_bf16_hopper", .02, true},
      {near, "simt_vit_large_fp32_plain", 1e-3, true},
      {near, "simt_resnet34_fp32", 1e-4},
      {near, "simt_resnet34_fp32_plain", 1e-4},
      {near, "simt_resnet34_fp32_cudnn", 1e-4},
      {near, "simt_resnet34_fp16_cudnn", .02},
      {near, "simt_resnet34_fp16_hopper_scale256", .02},
      {near, "simt_resnet50_fp16_hopper_scale256", .02, true},
      {near, "simt_resnext50_32x4d_fp16_hopper_scale256", .02, true},
      {near, "simt_resnet50_fp32_plain", 1e-3, true},
      {near, "simt_resnext50_32x4d_fp32_plain", 1e-3, true},

      {far, "cpu_resnet34_fp32_n2", 1e-3},
      {far, "cpu_resnet34_fp32_shards4", 1e-3},
  };
  return rows;
}

std::span<const Excluded> excluded_pairs() {
  static const std::string vit = "vit_tiny --data synthetic --image-size 32 --patch-size 16 ";
  static const std::vector<Excluded> pairs = {
      {"device=cpu", "precision=fp16", vit + "--device cpu --precision fp16", "computes in fp32"},
      {"device=cpu", "kernels=plain", vit + "--device cpu --kernels plain",
       "these are GPU kernels"},
      {"device=cpu", "kernels=hopper", vit + "--device cpu --kernels hopper", "made for sm_90"},
      {"device=cpu", "graphs=off", vit + "--device cpu --no-graph", ""},
      {"precision=fp32", "kernels=hopper", vit + "--device simt --kernels hopper", ""},
      {"precision=fp32", "amp=on", vit + "--device cpu --amp-policy 0 --amp-end 2",
       "which is fp32"},
      {"n=1", "zero=on", vit + "-n 1 --zero 1", ""},
      {"n=1", "pipeline=2", vit + "-n 1 --pipeline 2", "not a multiple of --pipeline 2"},
      // Their last bits depend on where the stages are cut: a row of Near.
      {"kernels=hopper", "pipeline=2",
       "-n 2 " + vit + "--device simt --precision bf16 --kernels hopper --pipeline 2", ""},
      {"n=1", "resume=moves", vit + "-n 1", ""},  // it has no other form
  };
  return pairs;
}

}  // namespace bv::test
