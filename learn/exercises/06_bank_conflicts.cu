// Exercise 6: shared memory and its banks. A block transposes 32 x 32 numbers through a tile in
// shared memory: it writes rows, waits, and reads columns. Shared memory has 32 banks; the 4-byte
// word w lies in bank w % 32, and a bank serves one word per turn. The 32 words of a row lie in 32
// banks: one turn. The words of a column can all lie in one bank: 32 turns. Where in the tile's
// 33 x 32 words should the element of a row and column lie, so that both accesses take one turn?
//   make learn EXERCISE=6
#include <set>

#include "learn/exercises/exercise.h"

constexpr int side = 32, words = 33 * 32;

// --- your code: 1 line ---
__host__ __device__ int place(int row, int col) { return row * side + col; }
// --- end of your code ---

// out, inp [side, side]
__global__ void transpose(float* out, const float* inp) {
  __shared__ float tile[words];
  const int x = threadIdx.x, y = threadIdx.y;  // a warp is 32 threads with the same y
  tile[place(y, x)] = inp[y * side + x];
  __syncthreads();
  out[y * side + x] = tile[place(x, y)];
}

// The turns of a warp's access to word_of(lane): the most distinct words that lie in one bank.
template <class Word>
size_t turns(Word word_of) {
  std::set<int> in_bank[32];
  for (int lane = 0; lane < 32; ++lane) in_bank[word_of(lane) % 32].insert(word_of(lane));
  size_t most = 0;
  for (const auto& bank : in_bank) most = std::max(most, bank.size());
  return most;
}

int main() {
  std::set<int> taken;
  for (int row = 0; row < side; ++row)
    for (int col = 0; col < side; ++col)
      if (const int w = place(row, col); w < 0 || w >= words || !taken.insert(w).second) {
        std::printf("place(%d, %d) is %d: it has to be a word of its own, 0 to %d\n", row, col, w,
                    words - 1);
        return 1;
      }
  const std::vector<float> inp = learn::numbers(side * side, 1);
  const learn::OnGpu<float> gpu_inp(inp), gpu_out(side * side);
  transpose<<<1, dim3(side, side)>>>(gpu_out.data, gpu_inp.data);
  const size_t wrong = learn::first_wrong(
      gpu_out.to_host(), 0, [&](size_t i) { return inp[i % side * side + i / side]; });
  if (wrong < inp.size()) return std::printf("out[%zu] is wrong\n", wrong), 1;

  // The row and the column that take the most turns.
  int row = 0, col = 0;
  const auto row_turns = [](int i) { return turns([=](int lane) { return place(i, lane); }); };
  const auto col_turns = [](int i) { return turns([=](int lane) { return place(lane, i); }); };
  for (int i = 0; i < side; ++i) {
    if (row_turns(i) > row_turns(row)) row = i;
    if (col_turns(i) > col_turns(col)) col = i;
  }
  std::printf("transposed; turns to write a row: %zu, to read a column: %zu\n", row_turns(row),
              col_turns(col));
  if (row_turns(row) == 1 && col_turns(col) == 1) return 0;
  std::printf("expected 1 and 1. ");
  if (row_turns(row) > 1)
    std::printf("Banks of row %d, from column 0 on: %d, %d, %d, %d, ...\n", row, place(row, 0) % 32,
                place(row, 1) % 32, place(row, 2) % 32, place(row, 3) % 32);
  else
    std::printf("Banks of column %d, from row 0 on: %d, %d, %d, %d, ...\n", col, place(0, col) % 32,
                place(1, col) % 32, place(2, col) % 32, place(3, col) % 32);
  return 1;
}
