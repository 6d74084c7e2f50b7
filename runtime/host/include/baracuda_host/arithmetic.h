// Floating-point functions and intrinsics at global scope; <math.h> brings those that C++ has as well.
#pragma once
#include <math.h>
#include <stdlib.h>

namespace baracuda_host {
// The *_rn functions round once per operation. Where the compiler may fuse a product into a sum, the value
// passes through a register the compiler cannot see into.
template <class T>
static inline T rounded(T x) {
#ifdef BARACUDA_HOST_CONTRACTION
#if defined(__x86_64__)
  __asm__("" : "+x"(x));
#elif defined(__aarch64__)
  __asm__("" : "+w"(x));
#else
  volatile T stored = x;
  x = stored;
#endif
#endif
  return x;
}
}  // namespace baracuda_host

#define BARACUDA_HOST_ROUNDED(T, prefix, root)                                           \
  static inline T __##prefix##add_rn(T a, T b) { return baracuda_host::rounded(a + b); } \
  static inline T __##prefix##sub_rn(T a, T b) { return baracuda_host::rounded(a - b); } \
  static inline T __##prefix##mul_rn(T a, T b) { return baracuda_host::rounded(a * b); } \
  static inline T __##prefix##div_rn(T a, T b) { return baracuda_host::rounded(a / b); } \
  static inline T __##prefix##rcp_rn(T a) { return baracuda_host::rounded(T(1) / a); }   \
  static inline T __##prefix##sqrt_rn(T a) { return baracuda_host::rounded(root(a)); }
BARACUDA_HOST_ROUNDED(float, f, sqrtf)
BARACUDA_HOST_ROUNDED(double, d, sqrt)
#undef BARACUDA_HOST_ROUNDED
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
// Through double: 1/sqrt of a float is then rounded correctly except where double rounding bites.
static inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }  // NaN becomes 0
static inline float normcdff(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
static inline double normcdf(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
static inline float sinpif(float x) { return static_cast<float>(sin(fmod(x, 2.0) * 3.14159265358979323846)); }
static inline float cospif(float x) { return static_cast<float>(cos(fmod(x, 2.0) * 3.14159265358979323846)); }
static inline double sinpi(double x) { return sin(fmod(x, 2.0) * 3.14159265358979323846); }
static inline double cospi(double x) { return cos(fmod(x, 2.0) * 3.14159265358979323846); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }

// The fast approximations, computed in full. Macros, because the C library declares some of these names.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)

// fmin and fmax ignore a NaN operand, and so do CUDA's min and max of floating types.
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax(a, b); }
static inline double max(double a, float b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin(a, b); }
static inline double min(double a, float b) { return fmin(a, b); }
#define BARACUDA_HOST_MIN_MAX(A, B, T)                    \
  static inline T max(A x, B y) {                         \
    const T a = static_cast<T>(x), b = static_cast<T>(y); \
    return a > b ? a : b;                                 \
  }                                                       \
  static inline T min(A x, B y) {                         \
    const T a = static_cast<T>(x), b = static_cast<T>(y); \
    return a < b ? a : b;                                 \
  }
#define BARACUDA_HOST_MIN_MAX_OF(T)                         \
  BARACUDA_HOST_MIN_MAX(T, T, T)                            \
  BARACUDA_HOST_MIN_MAX(unsigned T, unsigned T, unsigned T) \
  BARACUDA_HOST_MIN_MAX(T, unsigned T, unsigned T)          \
  BARACUDA_HOST_MIN_MAX(unsigned T, T, unsigned T)
BARACUDA_HOST_MIN_MAX_OF(int)
BARACUDA_HOST_MIN_MAX_OF(long)
BARACUDA_HOST_MIN_MAX_OF(long long)
#undef BARACUDA_HOST_MIN_MAX_OF
#undef BARACUDA_HOST_MIN_MAX
