// Windows that slide along time, over x[batch, length, channels]: what a tile shares with its neighbour is a halo.
#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>

using namespace baracuda;

constexpr int WIDE = 32;  // channels of a block

#ifndef TAPS
#define TAPS 4
#endif

struct Convolve { const float *x, *weight, *bias; float* y; long long length, channels, batch; };

// y[t] = bias + sum over k of weight[k] x[t - TAPS + 1 + k], each channel by itself; channels is a multiple of 4, and
// what lies before the beginning is zero. A block walks along the time of one batch element, and the rows that the next
// tile needs as well stay in shared memory.
extern "C" __global__ void __launch_bounds__(128) convolve(const Convolve args) {
  constexpr int TIMES = 16, HALO = TAPS - 1;
  static_assert(HALO * WIDE <= 128 && HALO <= TIMES, "each thread carries one element");
  __shared__ __align__(16) float rows[HALO + TIMES][WIDE];
  const int c = threadIdx.x % WIDE, lane = threadIdx.x / WIDE;
  const long long groups = (args.channels + WIDE - 1) / WIDE;
  const long long batch = blockIdx.x / groups, channel0 = blockIdx.x % groups * WIDE, channel = channel0 + c;
  const float* x = args.x + batch * args.length * args.channels;
  float* y = args.y + batch * args.length * args.channels;
  float weight[TAPS], bias = 0;
  if (channel < args.channels) {
    for (int k = 0; k < TAPS; k++) weight[k] = args.weight[k * args.channels + channel];  // reads the weights
    bias = args.bias[channel];
  }
  for (long long t0 = 0; t0 < args.length; t0 += TIMES) {
    if (lane < HALO) rows[lane][c] = t0 ? rows[TIMES + lane][c] : 0;  // carries the halo
    __syncthreads();  // the halo is saved
    for (int i = threadIdx.x; i < TIMES * WIDE / 4; i += 128) {
      const int r = i / (WIDE / 4), c4 = i % (WIDE / 4) * 4;
      Pack<float, 4> pack = {};
      if (t0 + r < args.length && channel0 + c4 < args.channels)
        pack.load(x + (t0 + r) * args.channels + channel0 + c4);  // reads four channels
      *reinterpret_cast<Pack<float, 4>*>(&rows[HALO + r][c4]) = pack;  // fills the window
    }
    __syncthreads();  // the window is full
    for (int r = lane; r < TIMES; r += 4) {
      float sum = bias;
      for (int k = 0; k < TAPS; k++) sum += weight[k] * rows[r + k][c];  // applies the taps
      if (t0 + r < args.length && channel < args.channels)
        y[(t0 + r) * args.channels + channel] = sum;  // writes a sum
    }
    __syncthreads();  // the window is used
  }
}

#ifndef WINDOW
#define WINDOW 5
#define STRIDE 2
#define BEFORE 2
#endif

struct Pool { const float* x; float* y; int* where; long long length, channels, outputs; };

// y[batch, outputs, channels] = the largest of WINDOW values from time o * STRIDE - BEFORE on, and where in time the
// first such lies. Threads of channels that do not exist leave at once.
extern "C" __global__ void __launch_bounds__(128) max_pool(const Pool args) {
  constexpr int OUTPUTS = 12, ROWS = (OUTPUTS - 1) * STRIDE + WINDOW;
  __shared__ float rows[ROWS][WIDE];
  const int c = threadIdx.x % WIDE, lane = threadIdx.x / WIDE;
  const long long groups = (args.channels + WIDE - 1) / WIDE, tiles = (args.outputs + OUTPUTS - 1) / OUTPUTS;
  const long long channel = blockIdx.x % groups * WIDE + c, first = blockIdx.x / groups % tiles * OUTPUTS;
  const long long batch = blockIdx.x / groups / tiles;
  if (channel >= args.channels) return;  // leaves at once
  const long long t0 = first * STRIDE - BEFORE;
  for (int r = lane; r < ROWS; r += 4) {
    const long long t = t0 + r;
    float value = -math::infinity<float>();
    if (t >= 0 && t < args.length) value = args.x[(batch * args.length + t) * args.channels + channel];  // reads a row
    rows[r][c] = value;  // fills a row
  }
  __syncthreads();  // rows are there
  for (int o = lane; o < OUTPUTS && first + o < args.outputs; o += 4) {
    int best = 0;
    for (int k = 1; k < WINDOW; k++)
      if (rows[o * STRIDE + k][c] > rows[o * STRIDE + best][c]) best = k;  // compares
    const long long out = (batch * args.outputs + first + o) * args.channels + channel;
    args.y[out] = rows[o * STRIDE + best][c];  // writes the largest
    args.where[out] = int(t0 + o * STRIDE + best);
  }
}
