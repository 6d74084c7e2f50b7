// Bit patterns of numbers, and integer intrinsics.
#pragma once
#include <stdint.h>
#include <string.h>

namespace baracuda_host {
template <class To, class From>
static inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  __builtin_memcpy(static_cast<void*>(&to), &from, sizeof to);
  return to;
}
}  // namespace baracuda_host

static inline int __float_as_int(float x) { return baracuda_host::bit_cast<int>(x); }
static inline unsigned __float_as_uint(float x) { return baracuda_host::bit_cast<unsigned>(x); }
static inline float __int_as_float(int x) { return baracuda_host::bit_cast<float>(x); }
static inline float __uint_as_float(unsigned x) { return baracuda_host::bit_cast<float>(x); }
static inline long long __double_as_longlong(double x) { return baracuda_host::bit_cast<long long>(x); }
static inline double __longlong_as_double(long long x) { return baracuda_host::bit_cast<double>(x); }
static inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
static inline double __hiloint2double(int hi, int lo) {
  return __longlong_as_double(
      static_cast<long long>(static_cast<uint64_t>(static_cast<unsigned>(hi)) << 32 | static_cast<unsigned>(lo)));
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned long long __brevll(unsigned long long x) {
  unsigned long long reversed = 0;
  for (int i = 0; i < 64; i++) reversed |= (x >> i & 1) << (63 - i);
  return reversed;
}
static inline unsigned __brev(unsigned x) { return static_cast<unsigned>(__brevll(x) >> 32); }

static inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
static inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
static inline int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }

static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>(((static_cast<uint64_t>(hi) << 32 | lo) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> (shift & 31));
}
// Nibble i of `selector` names the source of result byte i; its high bit asks for that byte's sign instead.
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned nibble = selector >> (4 * i) & 15;
    const unsigned byte = bytes >> (8 * (nibble & 7)) & 255;
    result |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}

static inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; i++) sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 4; i++) sum += (a >> (8 * i) & 255u) * (b >> (8 * i) & 255u);
  return sum;
}
