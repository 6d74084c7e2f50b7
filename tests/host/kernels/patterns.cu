// Patterns within a block that look odd and are allowed.
#include <baracuda/arch/async.cuh>
#include <baracuda/arch/barrier.cuh>

#ifndef DYN_SHARED
#define DYN_SHARED(T, name)                                      \
  extern __shared__ __align__(128) unsigned char name##_bytes[]; \
  T* const name = reinterpret_cast<T*>(name##_bytes)
#endif
#define DYN_SHARED_BYTES 1600

using namespace baracuda;

constexpr unsigned ALL = 0xffffffffu;

struct Pair { const int* x; int* y; long long n; };

// Warp 0 reads two slots ahead of warps 1 and 2, which add up. Barriers 1 and 2: slot is full; 3 and 4: slot is free.
extern "C" __global__ void producer_consumer(const Pair args) {
  __shared__ int slot[2][64];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp == 0) {
    for (int i = 0; i < args.n; i++) {
      if (i >= 2) bar_sync(3 + i % 2, 96);
      slot[i % 2][lane] = args.x[i * 64 + lane];
      slot[i % 2][lane + 32] = args.x[i * 64 + 32 + lane];
      bar_arrive(1 + i % 2, 96);
    }
  } else {
    int sum = 0;
    for (int i = 0; i < args.n; i++) {
      bar_sync(1 + i % 2, 96);
      sum += slot[i % 2][95 - threadIdx.x];
      if (i + 2 < args.n) bar_arrive(3 + i % 2, 96);
    }
    args.y[threadIdx.x - 32] = sum;
  }
}

// Each half of a warp goes its own way, with its own mask, through shuffles and shared memory.
extern "C" __global__ void halves(const Pair args) {
  __shared__ int of_half[2][16];
  const int t = threadIdx.x, lane = t % 16;
  int value = args.x[t];
  if (t < 16) {
    for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(0x0000ffffu, value, step);
    of_half[0][lane] = value + lane;
    __syncwarp(0x0000ffffu);
    args.y[t] = of_half[0][15 - lane];
  } else {
    of_half[1][lane] = value;
    __syncwarp(0xffff0000u);
    const int next = of_half[1][(lane + 1) % 16];
    args.y[t] = next + __popc(__ballot_sync(0xffff0000u, next & 1));
  }
}

// Each warp turns its 32x32 tile around twice in the same shared memory; warps never wait for each other.
extern "C" __global__ void warp_transpose(const Pair args) {
  __shared__ int tiles[3][32][33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int (*tile)[33] = tiles[warp];
  const int* x = args.x + (blockIdx.x * 3 + warp) * 1024;
  int* y = args.y + (blockIdx.x * 3 + warp) * 1024;
  for (int i = 0; i < 32; i++) tile[i][lane] = x[i * 32 + lane];
  __syncwarp();
  int column[32];
  for (int i = 0; i < 32; i++) column[i] = tile[lane][i];
  __syncwarp();
  for (int i = 0; i < 32; i++) tile[lane][(i + 1) % 32] = column[i];
  __syncwarp();
  for (int i = 0; i < 32; i++) y[i * 32 + lane] = tile[lane][i];
}

// Threads without work leave before the barriers of the others, some of them between two.
extern "C" __global__ void early_exit(const Pair args) {
  __shared__ int row[128];
  const int t = threadIdx.x;
  if (t >= args.n) return;
  row[t] = args.x[t];
  __syncthreads();
  const int turned = row[args.n - 1 - t];
  if (t % 3 == 2) args.y[t] = turned;
  if (t % 3 == 2) return;
  __syncthreads();
  row[t] = turned;
  __syncthreads();
  args.y[t] = turned + row[t % 3 == 0 ? t : t - 1];
}

// Lanes that take a branch learn of each other by a vote and shuffle among themselves; the loop ends lane by lane.
extern "C" __global__ void divergent_shuffles(const Pair args) {
  const int lane = threadIdx.x;
  int value = args.x[lane];
  const unsigned odd = __ballot_sync(ALL, value & 1);
  if (value & 1) {
    const int first = __ffs(odd) - 1;
    value += 1000 * __shfl_sync(odd, lane, first);
    if (__popc(odd & ((1u << lane) - 1)) % 2 == 0) value += 1;
  } else {
    value = -__reduce_add_sync(~odd, value);
  }
  unsigned left = ALL;
  for (int round = 0;; round++) {
    left = __ballot_sync(left, lane % 4 > round);
    if (lane % 4 <= round) break;
    value += __shfl_sync(left, lane, __ffs(left) - 1);
  }
  args.y[lane] = value;
}

// Warps 0 and 1 exchange data over barrier 1, warps 2 and 3 over barrier 2, a different number of times.
extern "C" __global__ void barriers_of_pairs(const Pair args) {
  __shared__ int slot[128];
  const int t = threadIdx.x, pair = t / 64;
  int value = args.x[t];
  for (int i = 0; i < 2 + pair; i++) {
    slot[t] = value;
    bar_sync(1 + pair, 64);
    value += slot[t ^ 32];
    bar_sync(1 + pair, 64);
  }
  args.y[t] = value;
}

struct InPlace { const float* x; float* y; long long n; };

// x and y are the same memory.
extern "C" __global__ void in_place(const InPlace args) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < args.n) args.y[i] = args.x[i] * 2 + 1;
}

__constant__ int squares[8] = {0, 1, 4, 9, 16, 25, 36, 49};
static __device__ const float thirds[3] = {0.25f, 0.5f, 0.75f};

extern "C" __global__ void constant_tables(const InPlace args) {
  const int t = threadIdx.x;
  args.y[t] = args.x[t] + squares[t % 8] * thirds[t % 3];
}

// A different static array for each instance of the template.
template <int COUNT, typename T> static __device__ T turned_around(T value) {
  __shared__ T all[COUNT];
  all[threadIdx.x % COUNT] = value;
  __syncthreads();
  return all[COUNT - 1 - threadIdx.x % COUNT];
}

extern "C" __global__ void shared_in_templates(const Pair args) {
  const int t = threadIdx.x;
  args.y[t] = int(turned_around<64>(double(args.x[t]))) * 64 + turned_around<64>(short(t));
}

// One piece of dynamic shared memory: floats, then 16-bit words, then bytes; later all of it as one array.
extern "C" __global__ void sliced_shared(const Pair args) {
  DYN_SHARED(unsigned char, all);
  float* wide = reinterpret_cast<float*>(all);
  unsigned short* half = reinterpret_cast<unsigned short*>(wide + 64);
  unsigned char* byte = reinterpret_cast<unsigned char*>(half + 64);
  const int t = threadIdx.x;
  wide[t] = args.x[t];
  half[t] = t;
  byte[t] = 2 * t;
  __syncthreads();
  const int other = 63 - t, value = int(wide[other]) + half[other] + byte[other];
  __syncthreads();
  int* again = reinterpret_cast<int*>(all);
  for (int k = 0; k < 6; k++) again[k * 64 + t] = value + k;
  __syncthreads();
  int sum = 0;
  for (int k = 0; k < 6; k++) sum += again[k * 64 + (t + k) % 64];
  args.y[t] = sum;
}

// A row of cells moves from one buffer to the other; one barrier a step is enough.
extern "C" __global__ void ping_pong(const Pair args) {
  __shared__ int cells[2][64];
  const int t = threadIdx.x;
  cells[0][t] = args.x[t];
  int from = 0;
  for (int step = 0; step < args.n; step++, from ^= 1) {
    __syncthreads();
    cells[from ^ 1][t] = cells[from][(t + 63) % 64] - cells[from][t] + cells[from][(t + 1) % 64];
  }
  args.y[t] = cells[from][t];
}

// The block decides together whether to go on, by a barrier that counts.
extern "C" __global__ void until_settled(const Pair args) {
  __shared__ int cells[64];
  const int t = threadIdx.x;
  cells[t] = args.x[t];
  bool moved;
  do {
    __syncthreads();
    const int left = cells[t > 0 ? t - 1 : 0], own = cells[t];
    moved = left > own;
    __syncthreads();
    if (moved) cells[t] = left;
  } while (__syncthreads_or(moved));
  args.y[t] = cells[t];
}

// One warp copies asynchronously for the others, two groups in flight; a thread reads its own copy without a barrier.
extern "C" __global__ void copied_by_one_warp(const Pair args) {
  __shared__ __align__(16) int rows[2][128], own[96];
  const int t = threadIdx.x;
  cp_async_ca<4>(&own[t], args.x + t);
  cp_async_commit_group();
  if (t < 32) {
    for (int r = 0; r < 2; r++) {
      cp_async_cg(&rows[r][4 * t], args.x + 128 * r + 4 * t);
      cp_async_commit_group();
    }
    cp_async_wait_group<1>();
  } else {
    cp_async_wait_group<0>();
  }
  int sum = own[t];
  __syncthreads();
  sum += rows[0][127 - t];
  if (t < 32) cp_async_wait_all();
  __syncthreads();
  args.y[t] = sum + rows[1][127 - t];
}

// Warps of a block pass a value on through flags in shared memory, without any barrier after the first.
extern "C" __global__ void flags_in_shared(const Pair args) {
  __shared__ volatile int flag[3];
  __shared__ int value[3][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < 3) flag[threadIdx.x] = 0;
  __syncthreads();
  int sum = args.x[threadIdx.x];
  if (warp > 0) {
    if (lane == 0) {
      while (flag[warp - 1] == 0) __nanosleep(20);
      __threadfence_block();
    }
    __syncwarp();
    sum += value[warp - 1][31 - lane];
  }
  value[warp][lane] = sum;
  __threadfence_block();
  __syncwarp();
  if (lane == 0) flag[warp] = 1;
  args.y[threadIdx.x] = sum;
}
