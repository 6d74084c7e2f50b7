// The table of PTX instructions that device headers use: what each does on the host device. A function's name is the
// opcode with "_" for dots and colons, its shape m16n8k16 template arguments; its parameters are the operands in PTX
// order. Addresses are 32 bits in shared and 64 in global memory.
#pragma once
#include "matrix.h"
#include "memory.h"
#include "sm90.h"

static inline size_t __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
static inline void* __cvta_global_to_generic(size_t address) { return reinterpret_cast<void*>(address); }

namespace baracuda_ptx {

using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;

// A list of registers in braces.
template <class T, int N>
struct Registers {
  T* at[N];
};
template <class T, class... More>
static inline Registers<T, 1 + sizeof...(More)> registers(T* first, More*... more) {
  return {{first, more...}};
}
template <class T, class From>
static inline const T* place(const From& value) {
  static_assert(sizeof(T) == sizeof(From), "an operand in a list has the size of its register");
  return reinterpret_cast<const T*>(&value);
}
template <class T, int N>
static inline void load(T (&to)[N], const Registers<T, N>& from) {
  for (int i = 0; i < N; i++) to[i] = *from.at[i];
}
template <class T, int N>
static inline void load(T (&to)[N], const Registers<const T, N>& from) {
  for (int i = 0; i < N; i++) to[i] = *from.at[i];
}
template <class T, int N>
static inline void store(const Registers<T, N>& to, const T (&from)[N]) {
  for (int i = 0; i < N; i++) *to.at[i] = from[i];
}
template <class T>
static inline T* global(u64 address) {
  return reinterpret_cast<T*>(address);
}
template <class T>
static inline T* shared(u32 address, const char* instruction, baracuda_host::Site site) {
  return static_cast<T*>(baracuda_host::shared_pointer(address, sizeof(T), instruction, site));
}

// Single values.
static inline void mov_u32(u32& to, u32 from) { to = from; }
static inline void cvt_rn_f16_f32(u16& to, float x) { to = baracuda_host::float_to_half_bits(x); }
static inline void cvt_f32_f16(float& to, u16 x) { to = baracuda_host::half_bits_to_float(x); }
static inline void cvt_rn_bf16_f32(u16& to, float x) {
  const u32 word = __float_as_uint(x);
  to = x != x ? 0x7fff : static_cast<u16>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
// Toward zero: what the nearest number has too much, it has in its last place.
template <void (*nearest)(u16&, float)>
static inline void toward_zero(u16& to, float x, float (*value)(u16)) {
  nearest(to, x);
  if (fabsf(value(to)) > fabsf(x)) --to;
}
static inline void cvt_rz_f16_f32(u16& to, float x) {
  toward_zero<cvt_rn_f16_f32>(to, x, baracuda_host::half_bits_to_float);
}
static inline void cvt_rz_bf16_f32(u16& to, float x) {
  toward_zero<cvt_rn_bf16_f32>(to, x, baracuda_host::bfloat16_bits_to_float);
}
#define BARACUDA_PTX_PAIR(opcode, each)                       \
  static inline void opcode(u32& to, float high, float low) { \
    u16 halves[2];                                            \
    each(halves[0], low), each(halves[1], high);              \
    to = halves[0] | static_cast<u32>(halves[1]) << 16;       \
  }
BARACUDA_PTX_PAIR(cvt_rn_f16x2_f32, cvt_rn_f16_f32)
BARACUDA_PTX_PAIR(cvt_rz_f16x2_f32, cvt_rz_f16_f32)
BARACUDA_PTX_PAIR(cvt_rn_bf16x2_f32, cvt_rn_bf16_f32)
BARACUDA_PTX_PAIR(cvt_rz_bf16x2_f32, cvt_rz_bf16_f32)
#undef BARACUDA_PTX_PAIR
// a * b + c with one rounding: to odd in double and float, which have twice the bits, then to the nearest half.
static inline float odd_fma(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c, part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  double odd = sum;
  if (error != 0 && !(__double_as_longlong(sum) & 1))
    odd = __longlong_as_double(__double_as_longlong(sum) + ((error > 0) == (sum > 0) ? 1 : -1));
  float to = static_cast<float>(odd);
  if (to == odd || to - to != 0 || odd != odd) return to;
  if (fabs(static_cast<double>(to)) > fabs(odd)) to = __uint_as_float(__float_as_uint(to) - 1);
  return __uint_as_float(__float_as_uint(to) | 1);
}
#define BARACUDA_PTX_FMA_PAIR(opcode, each, value)                             \
  static inline void opcode(u32& to, u32 a, u32 b, u32 c) {                    \
    u16 halves[2];                                                             \
    for (int i = 0; i < 2; i++) {                                              \
      const u16 of[] = {u16(a >> 16 * i), u16(b >> 16 * i), u16(c >> 16 * i)}; \
      each(halves[i], odd_fma(value(of[0]), value(of[1]), value(of[2])));      \
    }                                                                          \
    to = halves[0] | static_cast<u32>(halves[1]) << 16;                        \
  }
BARACUDA_PTX_FMA_PAIR(fma_rn_f16x2, cvt_rn_f16_f32, baracuda_host::half_bits_to_float)
BARACUDA_PTX_FMA_PAIR(fma_rn_bf16x2, cvt_rn_bf16_f32, baracuda_host::bfloat16_bits_to_float)
#undef BARACUDA_PTX_FMA_PAIR
static inline void cvt_rna_tf32_f32(u32& to, float x) { to = baracuda_host::cvt_rna_tf32_f32(x); }
// An 8-bit float of so many bits of significand; what is too large becomes the largest number.
template <int significand, int bias, u32 largest>
static inline u32 saturating_float8(float x) {
  const u32 magnitude = __float_as_uint(x) & 0x7fffffffu, sign = __float_as_uint(x) >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude == 0x7f800000u) return sign | largest;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const int place = (exponent < 1 - bias ? 1 - bias : exponent) - significand;  // of the last digit
  const float digits = rintf(ldexpf(__uint_as_float(magnitude), -place));
  const u32 bits = static_cast<u32>(digits) + (static_cast<u32>(place + significand - (1 - bias)) << significand);
  return sign | (bits > largest ? largest : bits);
}
static inline void cvt_rn_satfinite_e4m3x2_f32(u16& to, float high, float low) {
  to = static_cast<u16>(saturating_float8<3, 7, 0x7e>(low) | saturating_float8<3, 7, 0x7e>(high) << 8);
}
static inline void cvt_rn_satfinite_e5m2x2_f32(u16& to, float high, float low) {
  to = static_cast<u16>(saturating_float8<2, 15, 0x7b>(low) | saturating_float8<2, 15, 0x7b>(high) << 8);
}
static inline void max_NaN_f32(float& to, float a, float b) {
  to = a != a || b != b ? __uint_as_float(0x7fffffffu) : a > b || (a == b && !signbit(a)) ? a : b;
}
#define BARACUDA_PTX_MAX_PAIR(opcode, each, value)                         \
  static inline void opcode(u32& to, u32 a, u32 b) {                       \
    u16 halves[2];                                                         \
    for (int i = 0; i < 2; i++) {                                          \
      float most;                                                          \
      max_NaN_f32(most, value(u16(a >> 16 * i)), value(u16(b >> 16 * i))); \
      each(halves[i], most);                                               \
    }                                                                      \
    to = halves[0] | static_cast<u32>(halves[1]) << 16;                    \
  }
BARACUDA_PTX_MAX_PAIR(max_NaN_f16x2, cvt_rn_f16_f32, baracuda_host::half_bits_to_float)
BARACUDA_PTX_MAX_PAIR(max_NaN_bf16x2, cvt_rn_bf16_f32, baracuda_host::bfloat16_bits_to_float)
#undef BARACUDA_PTX_MAX_PAIR
static inline void min_NaN_f32(float& to, float a, float b) {
  to = a != a || b != b ? __uint_as_float(0x7fffffffu) : a < b || (a == b && signbit(a)) ? a : b;
}
static inline void max_f32(float& to, float a, float b) {
  if (a != a || b != b) to = a != a ? b : a;
  else max_NaN_f32(to, a, b);
}
static inline void min_f32(float& to, float a, float b) {
  if (a != a || b != b) to = a != a ? b : a;
  else min_NaN_f32(to, a, b);
}
static inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static inline void ex2_approx_f32(float& to, float x) { to = exp2f(x); }
static inline void ex2_approx_ftz_f32(float& to, float x) { to = flushed(exp2f(flushed(x))); }
static inline void rcp_approx_ftz_f32(float& to, float x) { to = flushed(1 / flushed(x)); }
static inline void mul_wide_u32(u64& to, u32 a, u32 b) { to = u64(a) * b; }
static inline void setp_eq_b32(bool& to, u32 a, u32 b) { to = a == b; }
static inline void setp_ne_b32(bool& to, u32 a, u32 b) { to = a != b; }
// Bit i of the table is the answer to bits of a, b and c that are those of i.
static inline void lop3_b32(u32& to, u32 a, u32 b, u32 c, u32 table) {
  u32 found = 0;
  for (u32 i = 0; i < 8; i++)
    if (table >> i & 1) found |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  to = found;
}
static inline void selp_u32(u32& to, u32 a, u32 b, bool which) { to = which ? a : b; }

// Memory.
static inline void ld_global_L2_128B_u16(u32& to, u64 from) { to = *global<const u16>(from); }
static inline void ld_global_L2_128B_b32(u32& to, u64 from) { to = *global<const u32>(from); }
static inline void ld_global_L2_128B_b64(u64& to, u64 from) { to = *global<const u64>(from); }
static inline void ld_global_v4_b32(const Registers<u32, 4>& to, u64 from) {
  const uint4 words = *global<const uint4>(from);
  *to.at[0] = words.x, *to.at[1] = words.y, *to.at[2] = words.z, *to.at[3] = words.w;
}
static inline void ld_acquire_gpu_global_s32(u32& to, u64 from) {
  to = static_cast<u32>(baracuda_host::load_acquire(global<const int>(from)));
}
static inline void st_release_gpu_global_s32(u64 to, u32 value) {
  baracuda_host::store_release(global<int>(to), static_cast<int>(value));
}
template <int N>
static inline void load_shared(const Registers<float, N>& to, u32 from, baracuda_host::Site site) {
  struct alignas(4 * N) Vector {
    float value[N];
  };
  const auto* vector = shared<const Vector>(from, "ld.shared", site);
  if (from % sizeof(Vector)) baracuda_host::misaligned(vector, sizeof(Vector), "ld.shared", site);
  store(to, vector->value);
}
static inline void ld_shared_v2_f32(const Registers<float, 2>& to, u32 from, BARACUDA_SITE) {
  load_shared(to, from, BARACUDA_HERE);
}
static inline void ld_shared_v4_f32(const Registers<float, 4>& to, u32 from, BARACUDA_SITE) {
  load_shared(to, from, BARACUDA_HERE);
}
static inline void st_shared_v4_f32(u32 to, const Registers<const float, 4>& from, BARACUDA_SITE) {
  struct alignas(16) Vector {
    float value[4];
  };
  auto* vector = shared<Vector>(to, "st.shared", BARACUDA_HERE);
  if (to % sizeof(Vector)) baracuda_host::misaligned(vector, sizeof(Vector), "st.shared", BARACUDA_HERE);
  load(vector->value, from);
}

// Copies of a thread, barriers of some warps, dependent launches.
static inline void cp_async_ca_shared_global(u32 to, u64 from, int bytes, u32 source_bytes, BARACUDA_SITE) {
  void* const shared = baracuda_host::shared_pointer(to, bytes, "cp.async to", BARACUDA_HERE);
  baracuda_host::cp_async(shared, global<void>(from), bytes, static_cast<int>(source_bytes), BARACUDA_SITE_ARGS);
}
static inline void cp_async_ca_shared_global(u32 to, u64 from, int bytes, BARACUDA_SITE) {
  cp_async_ca_shared_global(to, from, bytes, static_cast<u32>(bytes), BARACUDA_SITE_ARGS);
}
static inline void cp_async_cg_shared_global(u32 to, u64 from, int bytes, u32 source_bytes, BARACUDA_SITE) {
  cp_async_ca_shared_global(to, from, bytes, source_bytes, BARACUDA_SITE_ARGS);
}
static inline void cp_async_cg_shared_global(u32 to, u64 from, int bytes, BARACUDA_SITE) {
  cp_async_ca_shared_global(to, from, bytes, static_cast<u32>(bytes), BARACUDA_SITE_ARGS);
}
static inline void cp_async_commit_group() { baracuda_host::cp_async_commit(); }
static inline void cp_async_wait_group(int pending) { baracuda_host::cp_async_wait(pending); }
static inline void cp_async_wait_all() { baracuda_host::cp_async_commit(), baracuda_host::cp_async_wait(0); }
static inline void bar_sync(u32 id, u32 threads, BARACUDA_SITE) {
  baracuda_host::barrier_sync(id, threads, BARACUDA_SITE_ARGS);
}
static inline void bar_arrive(u32 id, u32 threads, BARACUDA_SITE) {
  baracuda_host::barrier_arrive(id, threads, BARACUDA_SITE_ARGS);
}
static inline void griddepcontrol_launch_dependents() {}
static inline void griddepcontrol_wait() { baracuda_host::wait_on_dependent_grids(); }

// Matrices.
#define BARACUDA_PTX_LDMATRIX(count, modifier, transposed)                                                       \
  static inline void ldmatrix_sync_aligned_m8n8_x##count##modifier##_shared_b16(const Registers<u32, count>& to, \
                                                                                u32 row, BARACUDA_SITE) {        \
    u32 words[count];                                                                                            \
    const void* const at = baracuda_host::shared_pointer(row, 0, "ldmatrix from", BARACUDA_HERE);                \
    baracuda_host::ldmatrix<count, transposed>(words, at, BARACUDA_SITE_ARGS);                                   \
    store(to, words);                                                                                            \
  }
BARACUDA_PTX_LDMATRIX(1, , false)
BARACUDA_PTX_LDMATRIX(2, , false)
BARACUDA_PTX_LDMATRIX(4, , false)
BARACUDA_PTX_LDMATRIX(1, _trans, true)
BARACUDA_PTX_LDMATRIX(2, _trans, true)
BARACUDA_PTX_LDMATRIX(4, _trans, true)
#undef BARACUDA_PTX_LDMATRIX
#define BARACUDA_PTX_STMATRIX(suffix, transposed)                                                                     \
  static inline void stmatrix_sync_aligned_m8n8_x4##suffix##_shared_b16(u32 row, const Registers<const u32, 4>& from, \
                                                                        BARACUDA_SITE) {                              \
    u32 words[4];                                                                                                     \
    load(words, from);                                                                                                \
    void* const at = baracuda_host::shared_pointer(row, 0, "stmatrix to", BARACUDA_HERE);                             \
    baracuda_host::stmatrix<4, transposed>(at, words, BARACUDA_SITE_ARGS);                                            \
  }
BARACUDA_PTX_STMATRIX(, false)
BARACUDA_PTX_STMATRIX(_trans, true)
#undef BARACUDA_PTX_STMATRIX
static inline void movmatrix_sync_aligned_m8n8_trans_b16(u32& to, u32 from, BARACUDA_SITE) {
  to = baracuda_host::movmatrix_trans(from, BARACUDA_SITE_ARGS);
}
#define BARACUDA_PTX_MMA(opcode, rows, depth, Word, words_a, words_b, Text, Sum, sums, host)          \
  template <int m, int n, int k>                                                                      \
  static inline void mma_sync_aligned_row_col_##opcode(                                               \
      const Registers<Text, sums>& d, const Registers<const Word, words_a>& a,                        \
      const Registers<const Word, words_b>& b, const Registers<Text, sums>& c, BARACUDA_SITE) {       \
    static_assert(m == rows && n == 8 && k == depth, "the shape of an instruction with these types"); \
    Text sum[sums];                                                                                   \
    Word left[words_a], right[words_b];                                                               \
    load(sum, c), load(left, a), load(right, b);                                                      \
    baracuda_host::host(reinterpret_cast<Sum*>(sum), left, right, BARACUDA_SITE_ARGS);                \
    store(d, sum);                                                                                    \
  }
BARACUDA_PTX_MMA(f32_f16_f16_f32, 16, 16, u32, 4, 2, float, float, 4, mma_m16n8k16_f16)
BARACUDA_PTX_MMA(f32_bf16_bf16_f32, 16, 16, u32, 4, 2, float, float, 4, mma_m16n8k16_bf16)
BARACUDA_PTX_MMA(f32_tf32_tf32_f32, 16, 8, u32, 4, 2, float, float, 4, mma_m16n8k8_tf32)
BARACUDA_PTX_MMA(f32_e4m3_e4m3_f32, 16, 32, u32, 4, 2, float, float, 4, mma_m16n8k32_e4m3)
BARACUDA_PTX_MMA(f32_e5m2_e5m2_f32, 16, 32, u32, 4, 2, float, float, 4, mma_m16n8k32_e5m2)
BARACUDA_PTX_MMA(f32_e4m3_e5m2_f32, 16, 32, u32, 4, 2, float, float, 4, mma_m16n8k32_e4m3_e5m2)
BARACUDA_PTX_MMA(f32_e5m2_e4m3_f32, 16, 32, u32, 4, 2, float, float, 4, mma_m16n8k32_e5m2_e4m3)
BARACUDA_PTX_MMA(s32_s8_s8_s32, 16, 32, u32, 4, 2, u32, int, 4, mma_m16n8k32_s8)
BARACUDA_PTX_MMA(s32_u8_u8_s32, 16, 32, u32, 4, 2, u32, int, 4, mma_m16n8k32_u8)
BARACUDA_PTX_MMA(s32_s8_u8_s32, 16, 32, u32, 4, 2, u32, int, 4, mma_m16n8k32_s8_u8)
BARACUDA_PTX_MMA(s32_u8_s8_s32, 16, 32, u32, 4, 2, u32, int, 4, mma_m16n8k32_u8_s8)
#undef BARACUDA_PTX_MMA
template <int m, int n, int k>
static inline void mma_sync_aligned_row_col_f64_f64_f64_f64(const Registers<double, m / 4>& d,
                                                            const Registers<const double, m * k / 32>& a,
                                                            const Registers<const double, k / 4>& b,
                                                            const Registers<double, m / 4>& c, BARACUDA_SITE) {
  static_assert(n == 8 && ((m == 8 && k == 4) || (m == 16 && k == 8)), "the shapes of doubles in use");
  double sum[m / 4], left[m * k / 32], right[k / 4];
  load(sum, c), load(left, a), load(right, b);
  if constexpr (m == 8) baracuda_host::mma_m8n8k4_f64(sum, left, right, BARACUDA_SITE_ARGS);
  else baracuda_host::mma_m16n8k8_f64(sum, left, right, BARACUDA_SITE_ARGS);
  store(d, sum);
}

// wgmma: the sums and registers of A are read and written later, where they are.
static inline void wgmma_fence_sync_aligned(BARACUDA_SITE) { baracuda_host::wgmma_fence(BARACUDA_HERE); }
static inline void wgmma_commit_group_sync_aligned(BARACUDA_SITE) { baracuda_host::wgmma_commit(BARACUDA_HERE); }
static inline void wgmma_wait_group_sync_aligned(int pending, BARACUDA_SITE) {
  baracuda_host::wgmma_wait(pending, BARACUDA_HERE);
}
template <class T, int N>
static inline T* consecutive(const Registers<T, N>& list, baracuda_host::Site site) {
  for (int i = 1; i < N; i++)
    if (list.at[i] != list.at[0] + i) baracuda_host::fail("wgmma needs consecutive elements of an array", site);
  return list.at[0];
}
#define BARACUDA_PTX_WGMMA(kinds, kind)                                                                                \
  template <int m, int n, int k>                                                                                       \
  static inline void wgmma_mma_async_sync_aligned_f32_##kinds(const Registers<float, n / 2>& sum, u64 a, u64 b,        \
                                                              bool add, int scale_a, int scale_b, int a_transposed,    \
                                                              int b_transposed, BARACUDA_SITE) {                       \
    static_assert(m == 64 && k == 16, "the shape of an instruction with these types");                                 \
    baracuda_host::wgmma(                                                                                              \
        {consecutive(sum, BARACUDA_HERE), nullptr, a, b, n, baracuda_host::Factor::kind, baracuda_host::Factor::kind,  \
         !add, a_transposed != 0, b_transposed != 0, scale_a < 0, scale_b < 0},                                        \
        BARACUDA_HERE);                                                                                                \
  }                                                                                                                    \
  template <int m, int n, int k>                                                                                       \
  static inline void wgmma_mma_async_sync_aligned_f32_##kinds(                                                         \
      const Registers<float, n / 2>& sum, const Registers<const u32, 4>& a, u64 b, bool add, int scale_a, int scale_b, \
      int b_transposed, BARACUDA_SITE) {                                                                               \
    static_assert(m == 64 && k == 16, "the shape of an instruction with these types");                                 \
    baracuda_host::wgmma(                                                                                              \
        {consecutive(sum, BARACUDA_HERE), consecutive(a, BARACUDA_HERE), 0, b, n, baracuda_host::Factor::kind,         \
         baracuda_host::Factor::kind, !add, false, b_transposed != 0, scale_a < 0, scale_b < 0},                       \
        BARACUDA_HERE);                                                                                                \
  }
BARACUDA_PTX_WGMMA(f16_f16, F16)
BARACUDA_PTX_WGMMA(bf16_bf16, BF16)
#undef BARACUDA_PTX_WGMMA
// Of 8-bit factors, which no instruction transposes; whole numbers have no scales.
#define BARACUDA_PTX_SCALES_f32 int, int,
#define BARACUDA_PTX_SCALES_s32
#define BARACUDA_PTX_WGMMA_BYTES(sums, kinds, kind_a, kind_b, Sum)                                          \
  template <int m, int n, int k>                                                                            \
  static inline void wgmma_mma_async_sync_aligned_##sums##_##kinds(                                         \
      const Registers<Sum, n / 2>& sum, u64 a, u64 b, bool add, BARACUDA_PTX_SCALES_##sums BARACUDA_SITE) { \
    static_assert(m == 64 && k == 32, "the shape of an instruction with these types");                      \
    baracuda_host::wgmma({consecutive(sum, BARACUDA_HERE), nullptr, a, b, n, baracuda_host::Factor::kind_a, \
                          baracuda_host::Factor::kind_b, !add, false, false},                               \
                         BARACUDA_HERE);                                                                    \
  }
#define BARACUDA_PTX_WGMMA_FLOATS(kinds, a, b) BARACUDA_PTX_WGMMA_BYTES(f32, kinds, a, b, float)
#define BARACUDA_PTX_WGMMA_WHOLE(kinds, a, b) BARACUDA_PTX_WGMMA_BYTES(s32, kinds, a, b, u32)
BARACUDA_PTX_WGMMA_FLOATS(e4m3_e4m3, E4M3, E4M3)
BARACUDA_PTX_WGMMA_FLOATS(e4m3_e5m2, E4M3, E5M2)
BARACUDA_PTX_WGMMA_FLOATS(e5m2_e4m3, E5M2, E4M3)
BARACUDA_PTX_WGMMA_FLOATS(e5m2_e5m2, E5M2, E5M2)
BARACUDA_PTX_WGMMA_WHOLE(s8_s8, S8, S8)
BARACUDA_PTX_WGMMA_WHOLE(s8_u8, S8, U8)
BARACUDA_PTX_WGMMA_WHOLE(u8_s8, U8, S8)
BARACUDA_PTX_WGMMA_WHOLE(u8_u8, U8, U8)
#undef BARACUDA_PTX_WGMMA_WHOLE
#undef BARACUDA_PTX_WGMMA_FLOATS
#undef BARACUDA_PTX_WGMMA_BYTES
#undef BARACUDA_PTX_SCALES_s32
#undef BARACUDA_PTX_SCALES_f32
static inline void setmaxnreg_inc_sync_aligned_u32(int count, BARACUDA_SITE) {
  baracuda_host::set_registers(count, true, BARACUDA_HERE);
}
static inline void setmaxnreg_dec_sync_aligned_u32(int count, BARACUDA_SITE) {
  baracuda_host::set_registers(count, false, BARACUDA_HERE);
}
static inline void elect_sync(bool& won, u32 lanes, BARACUDA_SITE) { won = baracuda_host::elect(lanes, BARACUDA_HERE); }

// mbarriers and fences.
static inline void mbarrier_init_shared_cta_b64(u32 barrier, u32 arrivals, BARACUDA_SITE) {
  baracuda_host::mbarrier_init(barrier, arrivals, BARACUDA_HERE);
}
static inline void mbarrier_inval_shared_cta_b64(u32 barrier, BARACUDA_SITE) {
  baracuda_host::mbarrier_inval(barrier, BARACUDA_HERE);
}
static inline void mbarrier_arrive_shared_cta_b64(u32 barrier, BARACUDA_SITE) {
  baracuda_host::mbarrier_arrive(barrier, 0, BARACUDA_HERE);
}
static inline void mbarrier_arrive_expect_tx_shared_cta_b64(u32 barrier, u32 bytes, BARACUDA_SITE) {
  baracuda_host::mbarrier_arrive(barrier, bytes, BARACUDA_HERE);
}
static inline void mbarrier_arrive_shared_cluster_b64(u32 barrier, BARACUDA_SITE) {
  baracuda_host::mbarrier_arrive(barrier, 0, BARACUDA_HERE);
}
static inline void mbarrier_try_wait_parity_shared_cta_b64(bool& done, u32 barrier, u32 parity, BARACUDA_SITE) {
  baracuda_host::mbarrier_wait(barrier, parity, BARACUDA_HERE);
  done = true;
}
static inline void mbarrier_try_wait_parity_acquire_cluster_shared_cta_b64(bool& done, u32 barrier, u32 parity,
                                                                           BARACUDA_SITE) {
  mbarrier_try_wait_parity_shared_cta_b64(done, barrier, parity, BARACUDA_SITE_ARGS);
}
static inline void fence_mbarrier_init_release_cluster() { baracuda_host::fence_proxy_async(); }
static inline void fence_proxy_async() { baracuda_host::fence_proxy_async(); }
static inline void fence_proxy_async_shared_cta() { baracuda_host::fence_proxy_async(); }

// Clusters.
static inline void barrier_cluster_arrive_release_aligned(BARACUDA_SITE) {
  baracuda_host::cluster_arrive(BARACUDA_HERE);
}
static inline void barrier_cluster_wait_acquire_aligned(BARACUDA_SITE) { baracuda_host::cluster_wait(BARACUDA_HERE); }
static inline void mapa_shared_cluster_u32(u32& to, u32 address, u32 rank, BARACUDA_SITE) {
  to = baracuda_host::mapped_address(address, rank, BARACUDA_HERE);
}
static inline void st_async_weak_shared_cluster_mbarrier_complete_tx_bytes_b32(u32 to, u32 value, u32 barrier,
                                                                               BARACUDA_SITE) {
  baracuda_host::store_async(to, value, 4, barrier, BARACUDA_HERE);
}
static inline void st_async_weak_shared_cluster_mbarrier_complete_tx_bytes_b64(u32 to, u64 value, u32 barrier,
                                                                               BARACUDA_SITE) {
  baracuda_host::store_async(to, value, 8, barrier, BARACUDA_HERE);
}

// TMA. A box begins at an element of a tensor map's tensor.
template <int N>
static inline baracuda_host::BoxAddress box_at(u64 map, const Registers<const u32, N>& place) {
  baracuda_host::BoxAddress box{global<const void>(map), {}, N};
  for (int i = 0; i < N; i++) box.coordinates[i] = static_cast<int>(*place.at[i]);
  return box;
}
#define BARACUDA_PTX_BOX(axes)                                                                                      \
  static inline void cp_async_bulk_tensor_##axes##d_shared_cluster_global_mbarrier_complete_tx_bytes_L2_cache_hint( \
      u32 to, u64 map, const Registers<const u32, axes>& place, u32 barrier, u64, BARACUDA_SITE) {                  \
    baracuda_host::bulk_load_box(to, box_at(map, place), barrier, 0, BARACUDA_HERE);                                \
  }                                                                                                                 \
  static inline void                                                                                                \
  cp_async_bulk_tensor_##axes##d_shared_cluster_global_mbarrier_complete_tx_bytes_multicast_cluster_L2_cache_hint(  \
      u32 to, u64 map, const Registers<const u32, axes>& place, u32 barrier, u16 blocks, u64, BARACUDA_SITE) {      \
    baracuda_host::bulk_load_box(to, box_at(map, place), barrier, blocks, BARACUDA_HERE);                           \
  }                                                                                                                 \
  static inline void cp_async_bulk_tensor_##axes##d_global_shared_cta_bulk_group(                                   \
      u64 map, const Registers<const u32, axes>& place, u32 from, BARACUDA_SITE) {                                  \
    baracuda_host::bulk_store_box(box_at(map, place), from, baracuda_host::Update::Store, BARACUDA_HERE);           \
  }                                                                                                                 \
  static inline void cp_reduce_async_bulk_tensor_##axes##d_global_shared_cta_add_bulk_group(                        \
      u64 map, const Registers<const u32, axes>& place, u32 from, BARACUDA_SITE) {                                  \
    baracuda_host::bulk_store_box(box_at(map, place), from, baracuda_host::Update::Add, BARACUDA_HERE);             \
  }                                                                                                                 \
  static inline void cp_async_bulk_prefetch_tensor_##axes##d_L2_global(                                             \
      u64 map, const Registers<const u32, axes>& place, BARACUDA_SITE) {                                            \
    baracuda_host::bulk_prefetch_box(box_at(map, place), BARACUDA_HERE);                                            \
  }
BARACUDA_PTX_BOX(3)
BARACUDA_PTX_BOX(4)
#undef BARACUDA_PTX_BOX
static inline void prefetch_tensormap(u64 map, BARACUDA_SITE) {
  baracuda_host::prefetch_map(global<const void>(map), BARACUDA_HERE);
}
static inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(u32 to, u64 from, u32 bytes,
                                                                                  u32 barrier, BARACUDA_SITE) {
  baracuda_host::bulk_load(to, global<const void>(from), bytes, barrier, 0, BARACUDA_HERE);
}
static inline void cp_async_bulk_prefetch_L2_global(u64 from, u32 bytes, BARACUDA_SITE) {
  baracuda_host::bulk_prefetch(global<const void>(from), bytes, BARACUDA_HERE);
}
static inline void cp_async_bulk_global_shared_cta_bulk_group(u64 to, u32 from, u32 bytes, BARACUDA_SITE) {
  baracuda_host::bulk_store(global<void>(to), from, bytes, baracuda_host::Update::Store, baracuda_host::Number::F32,
                            BARACUDA_HERE);
}
#define BARACUDA_PTX_REDUCE(text, update, number)                                                          \
  static inline void cp_reduce_async_bulk_global_shared_cta_bulk_group_##text(u64 to, u32 from, u32 bytes, \
                                                                              BARACUDA_SITE) {             \
    baracuda_host::bulk_store(global<void>(to), from, bytes, baracuda_host::Update::update,                \
                              baracuda_host::Number::number, BARACUDA_HERE);                               \
  }
BARACUDA_PTX_REDUCE(add_u32, Add, U32)
BARACUDA_PTX_REDUCE(min_u32, Min, U32)
BARACUDA_PTX_REDUCE(max_u32, Max, U32)
BARACUDA_PTX_REDUCE(and_b32, And, U32)
BARACUDA_PTX_REDUCE(or_b32, Or, U32)
BARACUDA_PTX_REDUCE(xor_b32, Xor, U32)
BARACUDA_PTX_REDUCE(add_s32, Add, S32)
BARACUDA_PTX_REDUCE(min_s32, Min, S32)
BARACUDA_PTX_REDUCE(max_s32, Max, S32)
BARACUDA_PTX_REDUCE(add_u64, Add, U64)
BARACUDA_PTX_REDUCE(add_noftz_f16, Add, F16)
BARACUDA_PTX_REDUCE(min_f16, Min, F16)
BARACUDA_PTX_REDUCE(max_f16, Max, F16)
BARACUDA_PTX_REDUCE(add_noftz_bf16, Add, BF16)
BARACUDA_PTX_REDUCE(min_bf16, Min, BF16)
BARACUDA_PTX_REDUCE(max_bf16, Max, BF16)
BARACUDA_PTX_REDUCE(add_f32, Add, F32)
BARACUDA_PTX_REDUCE(add_f64, Add, F64)
#undef BARACUDA_PTX_REDUCE
static inline void cp_async_bulk_commit_group() { baracuda_host::bulk_commit(); }
static inline void cp_async_bulk_wait_group(int pending) { baracuda_host::bulk_wait(pending, false); }
static inline void cp_async_bulk_wait_group_read(int pending) { baracuda_host::bulk_wait(pending, true); }

}  // namespace baracuda_ptx
