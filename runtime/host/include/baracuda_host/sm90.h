// Instructions of sm_90 that work on a warp's registers.
#pragma once
#include "interface_sm90.h"
#include "matrix.h"

namespace baracuda_host {

struct MatrixWords {
  void* row;
  const uint32_t* words;
};

// The inverse of load_matrices.
template <int matrices, bool transposed>
BARACUDA_HOST_UNCHECKED static void store_matrices(void** arguments, uint32_t) {
  for (int m = 0; m < matrices; m++) {
    uint16_t tile[8][8];
    for (int lane = 0; lane < 32; lane++) {
      const int r = lane / 4, c = lane % 4 * 2;
      const uint32_t word = static_cast<MatrixWords*>(arguments[lane])->words[m];
      (transposed ? tile[c][r] : tile[r][c]) = static_cast<uint16_t>(word);
      (transposed ? tile[c + 1][r] : tile[r][c + 1]) = static_cast<uint16_t>(word >> 16);
    }
    for (int r = 0; r < 8; r++) __builtin_memcpy(static_cast<MatrixWords*>(arguments[8 * m + r])->row, tile[r], 16);
  }
}

// stmatrix.sync.aligned.m8n8.x{matrices}[.trans].shared.b16
template <int matrices, bool transposed = false>
BARACUDA_HOST_UNCHECKED static inline void stmatrix(void* row, const uint32_t* words, BARACUDA_SITE) {
  static constexpr Operation operation{"stmatrix", store_matrices<matrices, transposed>, true};
  if (lane() < 8 * matrices) {
    if (reinterpret_cast<uintptr_t>(row) % 16) fail("stmatrix row address is not 16-byte aligned", BARACUDA_HERE);
    BARACUDA_HOST_NEED(Shared, row, "stmatrix to");
    BARACUDA_HOST_ACCESS(row, 16, Write);
  }
  MatrixWords argument{row, words};
  collective(operation, 0xffffffffu, &argument, BARACUDA_HERE);
}

struct TransposedWord {
  uint32_t from, to;
};
BARACUDA_HOST_UNCHECKED static void transpose_words(void** arguments, uint32_t) {
  uint16_t tile[8][8];
  for (int lane = 0; lane < 32; lane++) {
    const uint32_t word = static_cast<TransposedWord*>(arguments[lane])->from;
    tile[lane / 4][lane % 4 * 2] = static_cast<uint16_t>(word);
    tile[lane / 4][lane % 4 * 2 + 1] = static_cast<uint16_t>(word >> 16);
  }
  for (int lane = 0; lane < 32; lane++) {
    const int r = lane / 4, c = lane % 4 * 2;
    static_cast<TransposedWord*>(arguments[lane])->to = tile[c][r] | static_cast<uint32_t>(tile[c + 1][r]) << 16;
  }
}

// movmatrix.sync.aligned.m8n8.trans.b16
static inline uint32_t movmatrix_trans(uint32_t word, BARACUDA_SITE) {
  static constexpr Operation operation{"movmatrix", transpose_words, true};
  TransposedWord argument{word, 0};
  collective(operation, 0xffffffffu, &argument, BARACUDA_HERE);
  return argument.to;
}

}  // namespace baracuda_host
