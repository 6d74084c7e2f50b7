// Moving data: transposes through shared memory, packs with a tail, rows gathered and scattered by index.
#include <baracuda/pack.cuh>

using namespace baracuda;

constexpr int TILE = 32;

struct Transpose { const float* x; float* y; long long rows, cols; };

// y[cols, rows] is the transpose of x[rows, cols]; a block takes every gridDim.x-th tile.
extern "C" __global__ void __launch_bounds__(256) transpose(const Transpose args) {
  __shared__ float tile[TILE][TILE + 1];
  const int lane = threadIdx.x % TILE, first = threadIdx.x / TILE;
  const long long across = (args.cols + TILE - 1) / TILE, down = (args.rows + TILE - 1) / TILE;
  for (long long t = blockIdx.x; t < across * down; t += gridDim.x) {
    const long long row0 = t / across * TILE, col0 = t % across * TILE;
    for (int r = first; r < TILE; r += 8)
      if (row0 + r < args.rows && col0 + lane < args.cols)
        tile[r][lane] = args.x[(row0 + r) * args.cols + col0 + lane];  // fills the tile
    __syncthreads();  // the tile is full
    for (int r = first; r < TILE; r += 8)
      if (col0 + r < args.cols && row0 + lane < args.rows)
        args.y[(col0 + r) * args.rows + row0 + lane] = tile[lane][r];  // empties the tile
    __syncthreads();  // the tile is empty
  }
}

// The same with a tile for each warp, which no other warp touches.
extern "C" __global__ void __launch_bounds__(96) transpose_by_warp(const Transpose args) {
  __shared__ float tiles[3][TILE][TILE + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long across = (args.cols + TILE - 1) / TILE, down = (args.rows + TILE - 1) / TILE;
  for (long long t = blockIdx.x * 3 + warp; t < across * down; t += gridDim.x * 3) {
    const long long row0 = t / across * TILE, col0 = t % across * TILE;
    for (int r = 0; r < TILE; r++)
      if (row0 + r < args.rows && col0 + lane < args.cols)
        tiles[warp][r][lane] = args.x[(row0 + r) * args.cols + col0 + lane];  // fills the warp's tile
    __syncwarp();  // the warp's tile is full
    for (int r = 0; r < TILE; r++)
      if (col0 + r < args.cols && row0 + lane < args.rows)
        args.y[(col0 + r) * args.rows + row0 + lane] = tiles[warp][lane][r];  // empties the warp's tile
    __syncwarp();  // the warp's tile is empty
  }
}

struct Widen { const bf16* x; float* y; long long n; };

// y[n] = x[n], both beginning at a multiple of 16 bytes.
extern "C" __global__ void __launch_bounds__(128) widen(const Widen args) {
  const long long step = gridDim.x * 128ll * 8;
  for (long long i = (blockIdx.x * 128ll + threadIdx.x) * 8; i < args.n; i += step) {
    if (i + 8 <= args.n) {
      Pack<bf16, 8> in;
      Pack<float, 4> low, high;
      in.load(args.x + i);  // reads a pack
      for (int k = 0; k < 4; k++) {
        low.lane[k] = float(in.lane[k]);
        high.lane[k] = float(in.lane[k + 4]);
      }
      low.store(args.y + i);
      high.store(args.y + i + 4);  // writes the second half
    } else {
      for (long long k = i; k < args.n; k++) args.y[k] = float(args.x[k]);  // copies the tail
    }
  }
}

struct Gather { const float* table; const int* index; float* y; long long rows, cols; };

// y[rows, cols] holds the rows of `table` that `index` names; cols is a multiple of 4, and a row belongs to a warp.
extern "C" __global__ void __launch_bounds__(128) gather(const Gather args) {
  const long long row = (blockIdx.x * 128ll + threadIdx.x) / 32;
  if (row >= args.rows) return;
  const float* from = args.table + args.index[row] * args.cols;  // finds the row
  for (long long c = threadIdx.x % 32 * 4; c < args.cols; c += 128) {
    Pack<float, 4> pack;
    pack.load(from + c);  // reads the row
    pack.store(args.y + row * args.cols + c);
  }
}

constexpr int BINS = 40;

struct Scatter { const float* x; const int* index; float* sums; unsigned* counts; long long rows, cols; };

// Adds the rows of x[rows, cols] to the rows of sums[BINS, cols] that `index` names, and counts them.
extern "C" __global__ void __launch_bounds__(128) scatter_add(const Scatter args) {
  __shared__ unsigned seen[BINS];
  for (int bin = threadIdx.x; bin < BINS; bin += 128) seen[bin] = 0;  // clears the counts
  __syncthreads();  // counts are zero
  for (long long row = blockIdx.x * 4 + threadIdx.x / 32; row < args.rows; row += gridDim.x * 4) {
    const int bin = args.index[row];
    if (threadIdx.x % 32 == 0) atomicAdd(&seen[bin], 1u);  // counts a row
    for (long long c = threadIdx.x % 32; c < args.cols; c += 32)
      atomicAdd(&args.sums[bin * args.cols + c], args.x[row * args.cols + c]);  // adds an element
  }
  __syncthreads();  // counts are complete
  for (int bin = threadIdx.x; bin < BINS; bin += 128)
    if (seen[bin]) atomicAdd(&args.counts[bin], seen[bin]);  // publishes a count
}
