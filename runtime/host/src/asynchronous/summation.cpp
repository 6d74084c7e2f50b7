// Sums of matrix units, equal in every bit to what an H200 gives for the instructions named below.
//
// Halves and tf32: fraction 25, significant 24, all products of an instruction at once; wgmma and mma.sync alike. 8-bit
// floats in wgmma: fraction 13, significant 14. In mma.sync they are converted to halves, and the sum of their
// products, of which each register's low halves come first, is added to the sum as an f32 is. f64: a chain of fused
// multiply-adds.
#include <string.h>

#include <algorithm>
#include <cmath>

#include "../../include/baracuda_host/interface.h"

#pragma GCC push_options
#pragma GCC optimize("O3")
namespace baracuda_host {

static constexpr int exponent_of_zero = -1000;

static int32_t exponent_of(float value, int least) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const int32_t exponent = static_cast<int32_t>(bits >> 23 & 255) - 127;
  return value == 0 ? exponent_of_zero : std::max(exponent, least);
}

static double power_of_two(int64_t exponent) {
  const int64_t bits = (exponent + 1023) << 52;
  double power;
  memcpy(&power, &bits, 8);
  return power;
}

// Cut off after `significant` bits, and after 2^-149, the last bit of the smallest f32.
static float cut_off(double value, int significant) {
  int64_t bits;
  memcpy(&bits, &value, 8);
  const int64_t exponent = (bits >> 52 & 2047) - 1023;
  const int64_t drop = std::max<int64_t>(53 - significant, 52 - (exponent + 149));
  bits &= drop > 52 ? INT64_MIN : -(int64_t(1) << drop);
  memcpy(&value, &bits, 8);
  return static_cast<float>(value);  // exact, or infinite
}

// What the sum is if a term is infinite or no number.
static float special_sum(float sum, const float* a, const float* b, int pitch_b, int depth) {
  double total = sum;
  for (int k = 0; k < depth; k++) total += static_cast<double>(a[k]) * b[k * pitch_b];
  const uint32_t nan = 0x7fffffffu;
  float result = static_cast<float>(total);
  if (std::isnan(total)) memcpy(&result, &nan, 4);
  return result;
}

static bool is_special(float value) { return !(std::fabs(value) <= 3.4028235e38f); }

// At most `most` columns: what is needed of them fits in the first cache, and on the stack of a thread.
static constexpr int most = 64;
static void add_to_columns(const Summation& rule, float* sum, int pitch_sum, const float* a, int pitch_a,
                           const float* b, int pitch_b, int rows, int columns, int depth) {
  int32_t exponents[32][most];
  bool special_column[most] = {}, any_special = false;
  for (int k = 0; k < depth; k++)
    for (int column = 0; column < columns; column++) {
      const float value = b[k * pitch_b + column];
      exponents[k][column] = exponent_of(value, rule.least_b);
      special_column[column] |= is_special(value);
    }
  for (int column = 0; column < columns; column++) any_special |= special_column[column];
  for (int row = 0; row < rows; row++) {
    float* const sums = sum + row * pitch_sum;
    const float* const factors = a + row * pitch_a;
    int32_t largest[most];
    double scale[most], total[most];
    bool special_row = false, special_sums = any_special;
    for (int column = 0; column < columns; column++) {
      largest[column] = exponent_of(sums[column], -126);
      special_sums |= is_special(sums[column]);
    }
    for (int k = 0; k < depth; k++) {
      const int32_t exponent = exponent_of(factors[k], rule.least_a);
      special_row |= is_special(factors[k]);
      for (int column = 0; column < columns; column++)
        largest[column] = std::max(largest[column], exponent + exponents[k][column]);
    }
    for (int column = 0; column < columns; column++) {
      largest[column] = std::max(largest[column], -900);
      scale[column] = power_of_two(rule.fraction - largest[column]);
      total[column] = static_cast<int32_t>(sums[column] * scale[column]);
    }
    for (int k = 0; k < depth; k++) {
      const double factor = factors[k];
      for (int column = 0; column < columns; column++)
        total[column] += static_cast<int32_t>(factor * b[k * pitch_b + column] * scale[column]);
    }
    for (int column = 0; column < columns; column++) {
      const float result = cut_off(total[column] * power_of_two(largest[column] - rule.fraction), rule.significant);
      const bool special = special_row || (special_sums && (is_special(sums[column]) || special_column[column]));
      sums[column] = special ? special_sum(sums[column], factors, b + column, pitch_b, depth) : result;
    }
  }
}

void add_products(const Summation& rule, float* sum, int pitch_sum, const float* a, int pitch_a, const float* b,
                  int pitch_b, int rows, int columns, int depth) {
  for (int first = 0; first < columns; first += most)
    add_to_columns(rule, sum + first, pitch_sum, a, pitch_a, b + first, pitch_b, rows, std::min(most, columns - first),
                   depth);
}

}  // namespace baracuda_host
#pragma GCC pop_options
