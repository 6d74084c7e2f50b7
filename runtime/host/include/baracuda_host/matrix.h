// Models of ldmatrix and mma.sync; fragments are laid out as PTX defines them.
#pragma once
#include <stdint.h>

#include "elements.h"
#include "interface.h"
#include "warp.h"

namespace baracuda_host {

struct MatrixRow {
  const void* row;
  uint32_t* fragment;
};

// Lane i supplies the address of row i % 8 of matrix i / 8; lane l receives (l/4, 2(l%4)) and the next.
template <int matrices, bool transposed>
BARACUDA_HOST_UNCHECKED static void load_matrices(void** arguments, uint32_t) {
  for (int m = 0; m < matrices; m++) {
    uint16_t tile[8][8];
    for (int r = 0; r < 8; r++) __builtin_memcpy(tile[r], static_cast<MatrixRow*>(arguments[8 * m + r])->row, 16);
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
BARACUDA_HOST_UNCHECKED static inline void ldmatrix(uint32_t* fragment, const void* row, BARACUDA_SITE) {
  static constexpr Operation operation{"ldmatrix", load_matrices<matrices, transposed>, true};
  if (lane() < 8 * matrices) {
    if (reinterpret_cast<uintptr_t>(row) % 16) fail("ldmatrix row address is not 16-byte aligned", BARACUDA_HERE);
    BARACUDA_HOST_NEED(Shared, row, "ldmatrix from");
    BARACUDA_HOST_ACCESS(row, 16, Read);
  }
  MatrixRow argument{row, fragment};
  collective(operation, 0xffffffffu, &argument, BARACUDA_HERE);
}

template <class A, class B, class Sum>
struct MatrixProduct {
  Sum* d;
  const typename A::Word* a;
  const typename B::Word* b;
};

// Hopper's summation. It multiplies 8-bit floats as halves, the low halves of all registers first, and then adds.
template <class A, class B, int rows, int depth>
BARACUDA_HOST_UNCHECKED static void add_to(float (&d)[rows][8], const float (&a)[rows][depth],
                                           const float (&b)[depth][8]) {
  if constexpr (A::per_word < 4) {
    add_products({25, 24, A::least_exponent, B::least_exponent}, &d[0][0], 8, &a[0][0], depth, &b[0][0], 8, rows, 8,
                 depth);
  } else {
    float sum[rows][8] = {};
    for (int half = 0; half < depth; half += depth / 2)
      add_products({25, 24, F16::least_exponent, F16::least_exponent}, &sum[0][0], 8, &a[0][half], depth, &b[half][0],
                   8, rows, 8, depth / 2);
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < 8; j++) {
        d[i][j] += sum[i][j];
        if (d[i][j] != d[i][j]) d[i][j] = __uint_as_float(0x7fffffffu);
      }
  }
}
// Integers wrap around; f64 is a chain of fused multiply-adds.
template <class A, class B, class Sum, int rows, int depth>
BARACUDA_HOST_UNCHECKED static void add_to(Sum (&d)[rows][8], const Sum (&a)[rows][depth], const Sum (&b)[depth][8]) {
  for (int i = 0; i < rows; i++)
    for (int k = 0; k < depth; k++)
      for (int j = 0; j < 8; j++)
        if constexpr (A::per_word == 1) d[i][j] = __builtin_fma(a[i][k], b[k][j], d[i][j]);
        else d[i][j] += a[i][k] * b[k][j];
}
// Where element i of register `word` of a row is multiplied.
template <class A, class Sum>
static constexpr int depth_index(int depth, int word, int i) {
  constexpr bool halves = A::per_word == 4 && Sum(0.5) != 0;
  return halves ? i / 2 * (depth / 2) + word * 2 + i % 2 : word * A::per_word + i;
}

// D[rows x 8] += A[rows x depth] B[depth x 8]. A and B are cut into pieces of 8 rows or columns by as much
// depth as four lanes hold in a register each; lane 4g + t holds row g of a piece of A and column g of one of
// B, from depth t * per_word on. Pieces of A follow each other down the rows first.
template <int rows, int depth, class A, class B, class Sum>
BARACUDA_HOST_UNCHECKED static void multiply(void** arguments, uint32_t) {
  static_assert(A::per_word == B::per_word, "A and B are cut alike");
  constexpr int high = rows / 8, run = A::per_word, deep = depth / (4 * run);
  Sum a[rows][depth], b[depth][8], d[rows][8];
  for (int lane = 0; lane < 32; lane++) {
    const auto& part = *static_cast<MatrixProduct<A, B, Sum>*>(arguments[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int piece = 0; piece < deep; piece++)
      for (int i = 0; i < run; i++) {
        const int k = depth_index<A, Sum>(depth, 4 * piece + t, i);
        for (int h = 0; h < high; h++) a[g + 8 * h][k] = A::decode(part.a[piece * high + h], i);
        b[k][g] = B::decode(part.b[piece], i);
      }
    for (int i = 0; i < 2 * high; i++) d[g + 8 * (i / 2)][2 * t + i % 2] = part.d[i];
  }
  add_to<A, B>(d, a, b);
  for (int lane = 0; lane < 32; lane++) {
    const auto& part = *static_cast<MatrixProduct<A, B, Sum>*>(arguments[lane]);
    for (int i = 0; i < 2 * high; i++) part.d[i] = d[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
  }
}

// mma.sync.aligned.{shape}.row.col.{Sum}.{A}.{B}.{Sum}
#define BARACUDA_HOST_MMA(name, rows, depth, A, B, Sum)                                                        \
  BARACUDA_HOST_UNCHECKED static inline void name(Sum* d, const A::Word* a, const B::Word* b, BARACUDA_SITE) { \
    static constexpr Operation operation{#name, multiply<rows, depth, A, B, Sum>, true};                       \
    MatrixProduct<A, B, Sum> argument{d, a, b};                                                                \
    collective(operation, 0xffffffffu, &argument, BARACUDA_HERE);                                              \
  }
BARACUDA_HOST_MMA(mma_m16n8k16_f16, 16, 16, F16, F16, float)
BARACUDA_HOST_MMA(mma_m16n8k16_bf16, 16, 16, BF16, BF16, float)
BARACUDA_HOST_MMA(mma_m16n8k8_tf32, 16, 8, TF32, TF32, float)
BARACUDA_HOST_MMA(mma_m16n8k32_e4m3, 16, 32, E4M3, E4M3, float)
BARACUDA_HOST_MMA(mma_m16n8k32_e5m2, 16, 32, E5M2, E5M2, float)
BARACUDA_HOST_MMA(mma_m16n8k32_e4m3_e5m2, 16, 32, E4M3, E5M2, float)
BARACUDA_HOST_MMA(mma_m16n8k32_e5m2_e4m3, 16, 32, E5M2, E4M3, float)
BARACUDA_HOST_MMA(mma_m16n8k32_s8, 16, 32, S8, S8, int)
BARACUDA_HOST_MMA(mma_m16n8k32_u8, 16, 32, U8, U8, int)
BARACUDA_HOST_MMA(mma_m16n8k32_s8_u8, 16, 32, S8, U8, int)
BARACUDA_HOST_MMA(mma_m16n8k32_u8_s8, 16, 32, U8, S8, int)
BARACUDA_HOST_MMA(mma_m8n8k4_f64, 8, 4, F64, F64, double)
BARACUDA_HOST_MMA(mma_m16n8k8_f64, 16, 8, F64, F64, double)
#undef BARACUDA_HOST_MMA

// To the nearest tf32, ties away from zero; a NaN becomes 0x7fffffff.
static inline uint32_t cvt_rna_tf32_f32(float value) {
  const uint32_t bits = __float_as_uint(value);
  if (value != value) return 0x7fffffffu;
  return (bits & 0x7fffffffu) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}

// cp.async.{ca,cg}.shared.global [shared], [global], bytes, source_bytes; the rest of `bytes` becomes zero.
static inline void cp_async(void* shared, const void* global, int bytes, int source_bytes, BARACUDA_SITE) {
  copy_async(shared, global, bytes, source_bytes, BARACUDA_HERE);
}
static inline void cp_async_commit() { copy_async_commit(); }
static inline void cp_async_wait(int groups_still_pending) { copy_async_wait(groups_still_pending); }

}  // namespace baracuda_host
