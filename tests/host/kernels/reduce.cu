// Sums: over a row by one block, over the depth of a product by blocks in turn, over rows by the block that comes last,
// and over everything before an element by looking back.
constexpr unsigned ALL = 0xffffffffu;

template <typename T> __device__ T warp_sum(T value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL, value, step);  // a butterfly
  return value;
}

// The sum over a block of 128 threads, in every thread.
static __device__ float block_sum(float value) {
  __shared__ float of_warp[4];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;  // leaves the sum of a warp
  __syncthreads();  // sums of warps are there
  value = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];  // adds the sums of warps
  __syncthreads();  // sums of warps are used
  return value;
}

struct Normalize { const float* x; const float* scale; float* y; long long rows, cols; };

// y[rows, cols]: each row of x less its mean, divided by its standard deviation, times scale[cols].
extern "C" __global__ void __launch_bounds__(128) normalize(const Normalize args) {
  for (long long row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const float* x = args.x + row * args.cols;
    float sum = 0, squares = 0;
    for (long long c = threadIdx.x; c < args.cols; c += 128) sum += x[c];  // first pass
    const float mean = block_sum(sum) / args.cols;
    for (long long c = threadIdx.x; c < args.cols; c += 128) squares += (x[c] - mean) * (x[c] - mean);
    const float inverse = rsqrtf(block_sum(squares) / args.cols + 1e-5f);
    for (long long c = threadIdx.x; c < args.cols; c += 128)
      args.y[row * args.cols + c] = (x[c] - mean) * inverse * args.scale[c];  // writes the row
  }
}

struct SplitK { const float *a, *b; float* c; unsigned* turn; long long rows, cols, depth, splits; };

// c[rows, cols] = a[rows, depth] b[depth, cols]. A 16x16 tile is summed by `splits` blocks, one after the other in
// their order; turn[tiles], zero before and after, says whose turn it is.
extern "C" __global__ void __launch_bounds__(256) split_k(const SplitK args) {
  __shared__ float a[16][17], b[16][17];
  const int i = threadIdx.x / 16, j = threadIdx.x % 16;
  const long long across = (args.cols + 15) / 16, tile = blockIdx.x / args.splits;
  const long long row = tile / across * 16 + i, col = tile % across * 16 + j;
  const unsigned split = blockIdx.x % args.splits;
  const long long steps = (args.depth + 15) / 16, share = (steps + args.splits - 1) / args.splits;
  const long long last = min(steps, (split + 1) * share);
  float sum = 0;
  for (long long step = split * share; step < last; step++) {
    const long long k = step * 16;
    a[i][j] = row < args.rows && k + j < args.depth ? args.a[row * args.depth + k + j] : 0;  // a tile of a
    b[i][j] = k + i < args.depth && col < args.cols ? args.b[(k + i) * args.cols + col] : 0;  // a tile of b
    __syncthreads();  // tiles are full
    for (int p = 0; p < 16; p++) sum += a[i][p] * b[p][j];  // multiplies the tiles
    __syncthreads();  // tiles are used
  }
  if (threadIdx.x == 0)
    while (atomicAdd(&args.turn[tile], 0u) != split) __nanosleep(50);  // waits for its turn
  __syncthreads();  // it is this block's turn
  __threadfence();  // sees the sum so far
  if (row < args.rows && col < args.cols) {
    float* c = args.c + row * args.cols + col;
    *c = split ? *c + sum : sum;  // adds its share
  }
  __threadfence();  // shows the sum
  __syncthreads();  // the sum is written
  if (threadIdx.x == 0) atomicExch(&args.turn[tile], split + 1 < args.splits ? split + 1 : 0u);  // next turn
}

struct ColumnSums { const float* x; float* part; float* y; unsigned* ticket; long long rows, cols; };

// y[cols] = the column sums of x[rows, cols]; part[gridDim.x, cols] is added up by the last block, which sets the
// ticket back to zero.
extern "C" __global__ void __launch_bounds__(128) column_sums(const ColumnSums args) {
  __shared__ bool last;
  for (long long c = threadIdx.x; c < args.cols; c += 128) {
    float sum = 0;
    for (long long row = blockIdx.x; row < args.rows; row += gridDim.x) sum += args.x[row * args.cols + c];
    args.part[blockIdx.x * args.cols + c] = sum;  // leaves the sums of a block
  }
  __threadfence();  // shows the sums of a block
  __syncthreads();  // sums of the block are written
  if (threadIdx.x == 0) last = atomicAdd(args.ticket, 1u) + 1 == gridDim.x;  // draws a ticket
  __syncthreads();  // the ticket is known
  if (!last) return;
  __threadfence();  // sees the sums of all blocks
  for (long long c = threadIdx.x; c < args.cols; c += 128) {
    float sum = 0;
    for (unsigned block = 0; block < gridDim.x; block++) sum += args.part[block * args.cols + c];  // adds up
    args.y[c] = sum;
  }
  if (threadIdx.x == 0) *args.ticket = 0;
}

constexpr unsigned long long AGGREGATE = 1, PREFIX = 2;

// The sum of all tiles before `tile`, in every lane of the warp that calls; `total` is the sum of the tile itself. A
// word of `state` holds AGGREGATE or PREFIX, or 0, in its upper half and a sum in its lower half.
static __device__ int look_back(unsigned long long* state, int tile, int total) {
  const int lane = threadIdx.x % 32;
  int prefix = 0;
  if (lane == 0) atomicExch(&state[tile], (tile ? AGGREGATE : PREFIX) << 32 | unsigned(total));  // publishes its sum
  for (int last = tile - 1; last >= 0; last -= 32) {
    unsigned long long seen = PREFIX << 32;
    if (last - lane >= 0)
      while ((seen = atomicAdd(&state[last - lane], 0ull)) >> 32 == 0) __nanosleep(20);  // looks at a tile
    const unsigned complete = __ballot_sync(ALL, seen >> 32 == PREFIX);  // tiles with a prefix
    const int nearest = complete ? __ffs(complete) - 1 : 31;
    prefix += warp_sum(lane <= nearest ? int(unsigned(seen)) : 0);
    if (complete) break;
  }
  if (lane == 0 && tile) atomicExch(&state[tile], PREFIX << 32 | unsigned(prefix + total));  // publishes its prefix
  return prefix;
}

struct Scan { const int* x; int* y; unsigned long long* state; unsigned* next; long long n; };

// y[i] = x[0] + ... + x[i]. A tile is 512 elements; state[tiles] and *next are zero before.
extern "C" __global__ void __launch_bounds__(128) scan(const Scan args) {
  __shared__ int of_warp[4], before;
  __shared__ unsigned tile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) tile = atomicAdd(args.next, 1u);  // takes a tile
  __syncthreads();  // the tile is known
  const long long first = (tile * 128ll + threadIdx.x) * 4;
  int item[4], own = 0;
  for (int k = 0; k < 4; k++) item[k] = own += first + k < args.n ? args.x[first + k] : 0;  // reads four items
  int inclusive = own;
  for (int step = 1; step < 32; step *= 2) {
    const int lower = __shfl_up_sync(ALL, inclusive, step);
    if (lane >= step) inclusive += lower;  // adds lower lanes
  }
  if (lane == 31) of_warp[warp] = inclusive;  // leaves the total of a warp
  __syncthreads();  // totals of warps are there
  if (warp == 0) {
    const int prefix = look_back(args.state, tile, of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3]);
    if (lane == 0) before = prefix;  // leaves the prefix
  }
  __syncthreads();  // the prefix is there
  int base = before + inclusive - own;
  for (int w = 0; w < warp; w++) base += of_warp[w];
  for (int k = 0; k < 4; k++)
    if (first + k < args.n) args.y[first + k] = base + item[k];  // writes an item
}
