#pragma once
namespace bv::BAREVISION_GPU {
class Matmul {};
}  // namespace bv::BAREVISION_GPU
