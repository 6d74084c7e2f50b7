// Patterns between blocks that look odd and are allowed.
constexpr unsigned ALL = 0xffffffffu;

struct LookBack { const int* x; int* y; int* aggregate; int* prefix; volatile int* status; long long n; };

// A running sum of x[n], a tile of 64 a block. Sums lie beside a flag, which a fence separates from them on both sides.
extern "C" __global__ void look_back(const LookBack args) {
  __shared__ int tile[64], before;
  const int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = i < args.n ? args.x[i] : 0;
  for (int step = 1; step < 64; step *= 2) {
    __syncthreads();
    const int lower = threadIdx.x >= step ? tile[threadIdx.x - step] : 0;
    __syncthreads();
    tile[threadIdx.x] += lower;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const int b = blockIdx.x, total = tile[63];
    int sum = 0;
    args.aggregate[b] = total;
    __threadfence();
    args.status[b] = 1;
    for (int j = b - 1; j >= 0; j--) {
      int status;
      while ((status = args.status[j]) == 0) __nanosleep(20);
      __threadfence();
      sum += status == 2 ? args.prefix[j] : args.aggregate[j];
      if (status == 2) break;
    }
    args.prefix[b] = sum + total;
    __threadfence();
    args.status[b] = 2;
    before = sum;
  }
  __syncthreads();
  if (i < args.n) args.y[i] = tile[threadIdx.x] + before;
}

struct Turns { const float* x; float* sum; unsigned* turn; long long n; };

// sum[64] = x[gridDim.x, 64] added up by the blocks one after the other, each when the semaphore says so.
extern "C" __global__ void semaphore(const Turns args) {
  if (threadIdx.x == 0)
    while (atomicAdd(args.turn, 0u) != blockIdx.x) __nanosleep(50);
  __syncthreads();
  __threadfence();
  const float x = args.x[blockIdx.x * 64 + threadIdx.x];
  args.sum[threadIdx.x] = blockIdx.x ? args.sum[threadIdx.x] + x : x;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicExch(args.turn, blockIdx.x + 1);
}

// The same under a lock, in whatever order; sum is zero before.
extern "C" __global__ void lock(const Turns args) {
  if (threadIdx.x == 0)
    while (atomicCAS(args.turn, 0u, 1u) != 0) __nanosleep(50);
  __syncthreads();
  __threadfence();
  args.sum[threadIdx.x] += args.x[blockIdx.x * 64 + threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicExch(args.turn, 0u);
}

struct Relay { const int* x; int* mail; volatile int* flag; int* y; long long n; };

// A message passes from block to block: plain words, a fence, a volatile flag; a volatile flag, a fence, plain words.
extern "C" __global__ void relay(const Relay args) {
  const int b = blockIdx.x;
  if (threadIdx.x == 0 && b > 0) {
    while (args.flag[b - 1] == 0) __nanosleep(20);
    __threadfence();
  }
  __syncthreads();
  const int came = b ? args.mail[(b - 1) * 32 + threadIdx.x] : 0;
  args.mail[b * 32 + threadIdx.x] = came + args.x[b * 32 + threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) args.flag[b] = 1;
  args.y[b * 32 + threadIdx.x] = came;
}

struct Words { int* words; float* sum; long long n; };

// All threads of all blocks hit the same words, through every kind of atomic; a loop around atomicCAS adds floats.
extern "C" __global__ void same_word(const Words args) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  __shared__ int of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  atomicAdd(&of_block, 1);
  atomicAdd(&args.words[0], i);
  atomicMax(&args.words[1], i);
  atomicMin(&args.words[2], i);
  atomicOr(&args.words[3], 1 << i % 31);
  atomicXor(&args.words[4], i);
  unsigned* bits = reinterpret_cast<unsigned*>(args.sum);
  unsigned seen = atomicAdd(bits, 0u), expected;
  do {
    expected = seen;
    seen = atomicCAS(bits, expected, __float_as_uint(__uint_as_float(expected) + 0.5f));
  } while (seen != expected);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&args.words[5], of_block);
}

struct Ranges { const int* x; int* y; unsigned* taken; long long n; };

// Lanes that keep an element agree on its place and mark it: a vote, an atomic of the first, a shuffle from it.
extern "C" __global__ void compact(const Ranges args) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const int value = i < args.n ? args.x[i] : 0;
  const unsigned kept = __ballot_sync(ALL, value > 0);
  if (value > 0) {
    const int leader = __ffs(kept) - 1;
    unsigned first = 0;
    if (lane == leader) first = atomicAdd(args.taken, __popc(kept));
    first = __shfl_sync(kept, first, leader);
    args.y[first + __popc(kept & ((1u << lane) - 1))] = 1;
  }
}

struct LastBlock { const int* x; int* part; int* y; unsigned* ticket; long long n; };

// One thread fences for its block, between the barrier that follows the writes and the ticket; and likewise for what
// the last block reads.
extern "C" __global__ void fence_of_one_thread(const LastBlock args) {
  __shared__ bool last;
  const int t = threadIdx.x;
  args.part[blockIdx.x * 64 + t] = 2 * args.x[blockIdx.x * 64 + t];
  __syncthreads();
  if (t == 0) {
    __threadfence();
    last = atomicAdd(args.ticket, 1u) + 1 == gridDim.x;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  int sum = 0;
  for (unsigned block = 0; block < gridDim.x; block++) sum += args.part[block * 64 + t];
  args.y[t] = sum;
}

struct Bytes { const unsigned char* x; unsigned char* y; long long n; };

// Neighbouring bytes, in shared and in global memory, belong to different threads and blocks.
extern "C" __global__ void neighbouring_bytes(const Bytes args) {
  __shared__ unsigned char row[64];
  const int t = threadIdx.x;
  row[t] = args.x[t * gridDim.x + blockIdx.x];
  __syncthreads();
  args.y[t * gridDim.x + blockIdx.x] = row[63 - t] + 1;
}

struct GridBarrier { const int* x; int* part; int* y; unsigned* arrived; long long n; };

// All blocks wait for each other, which works as long as they are alive at once.
extern "C" __global__ void grid_barrier(const GridBarrier args) {
  if (threadIdx.x == 0) {
    args.part[blockIdx.x] = args.x[blockIdx.x];
    __threadfence();
    atomicAdd(args.arrived, 1u);
    while (atomicAdd(args.arrived, 0u) != gridDim.x) __nanosleep(20);
    __threadfence();
    int sum = 0;
    for (unsigned block = 0; block < gridDim.x; block++) sum += args.part[block];
    args.y[blockIdx.x] = sum;
  }
}
