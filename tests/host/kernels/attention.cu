// Attention forward in bf16: tiles of keys and values come asynchronously while the tile before is worked on.
#include <baracuda/arch/async.cuh>
#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/arch/tensor_core.cuh>

#ifndef DYN_SHARED
#define DYN_SHARED(T, name)                                      \
  extern __shared__ __align__(128) unsigned char name##_bytes[]; \
  T* const name = reinterpret_cast<T*>(name##_bytes)
#endif

using namespace baracuda;

constexpr int QUERIES = 64, KEYS = 32, SIZE = 64, CHUNKS = SIZE / 8, THREADS = 128;
constexpr unsigned ALL = 0xffffffffu;

struct Tiles { bf16 query[QUERIES * SIZE], key[2][KEYS * SIZE], value[2][KEYS * SIZE]; };
#define DYN_SHARED_BYTES sizeof(Tiles)

// Where a chunk of 8 elements lies: ldmatrix reads one chunk of 8 rows without a bank conflict.
static __device__ int at(int row, int chunk) { return row * SIZE + (chunk ^ (row & 7)) * 8; }

// Rows from `first` on of matrix[rows, size]; what is beyond its edges becomes zero.
template <int ROWS>
__device__ void load_rows(bf16* tile, const bf16* matrix, long long first, long long rows, long long size) {
  for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS;
    const bool inside = first + row < rows && chunk * 8 < size;
    const bf16* from = inside ? matrix + (first + row) * size + chunk * 8 : matrix;
    cp_async_cg(tile + at(row, chunk), from, inside ? 16 : 0);  // copies a chunk
  }
}

static __device__ unsigned pair(float low, float high) {
  return bf16(low).bits | unsigned(bf16(high).bits) << 16;
}

struct Attention {
  const bf16 *q, *k, *v;
  bf16* o;
  float* lse;
  long long queries, keys, size, causal;
  double scale;
};

// o[heads, queries, size] = softmax(scale q k^T) v, and the logarithm of the sum in each row; size is a multiple of 8,
// 64 at most. If causal, query i sees keys up to i + keys - queries. A row that sees no key becomes zero.
extern "C" __global__ void __launch_bounds__(THREADS) attention(const Attention args) {
  DYN_SHARED(Tiles, tiles);
  const int lane = threadIdx.x % 32, top = threadIdx.x / 32 * 16;
  const long long size = args.size, blocks = (args.queries + QUERIES - 1) / QUERIES;
  const long long head = blockIdx.x / blocks, first = blockIdx.x % blocks * QUERIES;
  const bf16* k = args.k + head * args.keys * size;
  const bf16* v = args.v + head * args.keys * size;
  const long long beyond = args.causal ? first + QUERIES + args.keys - args.queries : args.keys;
  const long long steps = (max(0ll, min(beyond, args.keys)) + KEYS - 1) / KEYS;

  if (steps) {
    load_rows<QUERIES>(tiles->query, args.q + head * args.queries * size, first, args.queries, size);
    load_rows<KEYS>(tiles->key[0], k, 0, args.keys, size);
    load_rows<KEYS>(tiles->value[0], v, 0, args.keys, size);
    cp_async_commit_group();
  }
  unsigned query[4][4];
  float out[8][4] = {}, largest[2] = {-math::infinity<float>(), -math::infinity<float>()}, total[2] = {};
  for (long long step = 0; step < steps; step++) {
    const int turn = step % 2;
    if (step + 1 < steps) {
      load_rows<KEYS>(tiles->key[turn ^ 1], k, (step + 1) * KEYS, args.keys, size);  // next keys
      load_rows<KEYS>(tiles->value[turn ^ 1], v, (step + 1) * KEYS, args.keys, size);  // next values
    }
    cp_async_commit_group();
    cp_async_wait_group<1>();
    __syncthreads();  // this step's tiles are there
    if (step == 0)
      for (int d = 0; d < 4; d++)
        ldmatrix_x4(query[d], tiles->query + at(top + lane % 16, 2 * d + lane / 16));  // reads queries

    float score[4][4] = {};
    for (int n = 0; n < 4; n++)
      for (int d = 0; d < 4; d += 2) {
        unsigned key[4];
        ldmatrix_x4(key, tiles->key[turn] + at(8 * n + lane % 8, 2 * d + lane / 8));  // reads keys
        mma_m16n8k16_bf16(score[n], query[d], key);
        mma_m16n8k16_bf16(score[n], query[d + 1], key + 2);
      }

    for (int h = 0; h < 2; h++) {  // the lane's rows: lane / 4 and 8 below
      const long long row = first + top + lane / 4 + 8 * h;
      const long long seen = args.causal ? min(args.keys, row + 1 + args.keys - args.queries) : args.keys;
      float high = largest[h];
      for (int n = 0; n < 4; n++)
        for (int j = 0; j < 2; j++) {
          float& s = score[n][2 * h + j];
          const long long col = step * KEYS + 8 * n + lane % 4 * 2 + j;
          s = col < seen ? s * float(args.scale * 1.4426950408889634) : -math::infinity<float>();
          high = fmaxf(high, s);
        }
      high = fmaxf(high, __shfl_xor_sync(ALL, high, 1));
      high = fmaxf(high, __shfl_xor_sync(ALL, high, 2));  // the largest of the row
      const float base = high == -math::infinity<float>() ? 0 : high, keep = exp2f(largest[h] - base);
      largest[h] = high;
      total[h] *= keep;
      for (int n = 0; n < 8; n++)
        for (int j = 0; j < 2; j++) out[n][2 * h + j] *= keep;
      for (int n = 0; n < 4; n++)
        for (int j = 0; j < 2; j++) total[h] += score[n][2 * h + j] = exp2f(score[n][2 * h + j] - base);
    }

    for (int s = 0; s < 2; s++) {  // 16 keys at a time
      const unsigned weight[4] = {pair(score[2 * s][0], score[2 * s][1]), pair(score[2 * s][2], score[2 * s][3]),
                                  pair(score[2 * s + 1][0], score[2 * s + 1][1]),
                                  pair(score[2 * s + 1][2], score[2 * s + 1][3])};
      for (int n = 0; n < 4; n++) {
        unsigned value[4];
        ldmatrix_x4_trans(value, tiles->value[turn] + at(16 * s + lane % 16, 2 * n + lane / 16));  // reads values
        mma_m16n8k16_bf16(out[2 * n], weight, value);
        mma_m16n8k16_bf16(out[2 * n + 1], weight, value + 2);
      }
    }
    __syncthreads();  // this step's tiles are used
  }

  for (int h = 0; h < 2; h++) {
    total[h] += __shfl_xor_sync(ALL, total[h], 1);
    total[h] += __shfl_xor_sync(ALL, total[h], 2);  // the sum of the row
    const long long row = first + top + lane / 4 + 8 * h;
    if (row >= args.queries) continue;
    const float inverse = total[h] > 0 ? 1 / total[h] : 0;
    for (int n = 0; n < 8; n++) {
      const int col = 8 * n + lane % 4 * 2;
      if (col >= size) break;
      Pack<bf16, 2> both = {bf16(out[n][2 * h] * inverse), bf16(out[n][2 * h + 1] * inverse)};
      both.store(args.o + (head * args.queries + row) * size + col);  // writes two elements
    }
    if (lane % 4 == 0)
      args.lse[head * args.queries + row] = (largest[h] + log2f(total[h])) * 0.6931471805599453f;  // writes the sum
  }
}
