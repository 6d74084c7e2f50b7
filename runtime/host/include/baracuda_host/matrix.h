// Models of ldmatrix and mma.sync; fragments are laid out as PTX defines them.
#pragma once
#include <stdint.h>
#include <string.h>

#include "conversions.h"
#include "interface.h"
#include "warp.h"

namespace baracuda_host {

struct MatrixRow {
  const void* row;
  uint32_t* fragment;
};

// Lane i supplies the address of row i % 8 of matrix i / 8; lane l receives (l/4, 2(l%4)) and the next.
template <int matrices, bool transposed> static void load_matrices(void** arguments, uint32_t) {
  for (int m = 0; m < matrices; m++) {
    uint16_t tile[8][8];
    for (int r = 0; r < 8; r++) memcpy(tile[r], static_cast<MatrixRow*>(arguments[8 * m + r])->row, 16);
    for (int lane = 0; lane < 32; lane++) {
      const int r = lane / 4, c = lane % 4 * 2;
      const uint32_t low = transposed ? tile[c][r] : tile[r][c];
      const uint32_t high = transposed ? tile[c + 1][r] : tile[r][c + 1];
      static_cast<MatrixRow*>(arguments[lane])->fragment[m] = low | high << 16;
    }
  }
}

// ldmatrix.sync.aligned.m8n8.x{matrices}[.trans].shared.b16
template <int matrices, bool transposed = false>
static inline void ldmatrix(uint32_t* fragment, const void* row, BARACUDA_SITE) {
  static constexpr Operation operation{"ldmatrix", load_matrices<matrices, transposed>};
  if (lane() < 8 * matrices && reinterpret_cast<uintptr_t>(row) % 16)
    fail("ldmatrix row address is not 16-byte aligned", BARACUDA_HERE);
  MatrixRow argument{row, fragment};
  collective(operation, 0xffffffffu, &argument, BARACUDA_HERE);
}

struct MatrixProduct {
  float* d;
  const uint32_t *a, *b;
};

// D[16x8] += A[16x16] B[16x8]; `decode` turns 16 bits into a float.
template <float (*decode)(uint16_t)> static void multiply_16x8x16(void** arguments, uint32_t) {
  float a[16][16], b[16][8], d[16][8];
  const auto half = [](uint32_t pair, int index) {
    return decode(static_cast<uint16_t>(pair >> (16 * index)));
  };
  for (int lane = 0; lane < 32; lane++) {
    const auto& part = *static_cast<MatrixProduct*>(arguments[lane]);
    const int r = lane / 4, c = lane % 4 * 2;
    for (int h = 0; h < 2; h++) {
      for (int i = 0; i < 4; i++) a[r + 8 * (i & 1)][c + 8 * (i >> 1) + h] = half(part.a[i], h);
      for (int i = 0; i < 2; i++) b[c + 8 * i + h][r] = half(part.b[i], h);
    }
    for (int i = 0; i < 4; i++) d[r + 8 * (i >> 1)][c + (i & 1)] = part.d[i];
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
  for (int lane = 0; lane < 32; lane++) {
    const auto& part = *static_cast<MatrixProduct*>(arguments[lane]);
    for (int i = 0; i < 4; i++) part.d[i] = d[lane / 4 + 8 * (i >> 1)][lane % 4 * 2 + (i & 1)];
  }
}

// mma.sync.aligned.m16n8k16.row.col.f32.{bf16.bf16,f16.f16}.f32
static inline void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, BARACUDA_SITE) {
  static constexpr Operation operation{"mma.m16n8k16.bf16", multiply_16x8x16<bfloat16_bits_to_float>};
  MatrixProduct argument{d, a, b};
  collective(operation, 0xffffffffu, &argument, BARACUDA_HERE);
}
static inline void mma_m16n8k16_f16(float* d, const uint32_t* a, const uint32_t* b, BARACUDA_SITE) {
  static constexpr Operation operation{"mma.m16n8k16.f16", multiply_16x8x16<half_bits_to_float>};
  MatrixProduct argument{d, a, b};
  collective(operation, 0xffffffffu, &argument, BARACUDA_HERE);
}

// cp.async.{ca,cg}.shared.global [shared], [global], bytes, source_bytes; the rest of `bytes` becomes zero.
static inline void cp_async(void* shared, const void* global, int bytes, int source_bytes, BARACUDA_SITE) {
  copy_async(shared, global, bytes, source_bytes, BARACUDA_HERE);
}
static inline void cp_async_commit() { copy_async_commit(); }
static inline void cp_async_wait(int groups_still_pending) { copy_async_wait(groups_still_pending); }

}  // namespace baracuda_host
