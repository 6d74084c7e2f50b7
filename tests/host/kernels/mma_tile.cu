// The product of two small matrices by one warp, each operand straight or transposed in shared memory.
#include <baracuda/matrix/mma_tile.cuh>
#include <baracuda/shared.cuh>

using namespace baracuda;

constexpr int M = SIZE_M, N = SIZE_N, K = SIZE_K;
struct Tiles { ELEMENT a[M * K], a_t[K * M], b[K * N], b_t[N * K], e[N * 16]; };
#define DYN_SHARED_BYTES sizeof(Tiles)

// Operands are of ELEMENT; M, N and K are multiples of what Mma takes. c = a b, then d = c e, c rounded in registers.
struct Product { const ELEMENT *a, *a_t, *b, *b_t, *e; acc_of<ELEMENT> *c[4], *d; long long rows, cols; };

template <class Tile> __device__ void copy(Tile tile, const ELEMENT* from) {
  copy_rows<32, IN_CHUNKS>(tile, from, Tile::COLS, Tile::ROWS, Tile::COLS);
}

template <class Op, int ROWS, int COLS>
__device__ void store(acc_of<ELEMENT>* to, const typename Op::Sum (&sum)[ROWS / Op::ROWS][COLS / 8]) {
#pragma unroll
  for (int m = 0; m < ROWS / Op::ROWS; m++)
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
      for (int i = 0; i < Op::VALUES; i++)
        to[(m * Op::ROWS + Op::row(i)) * COLS + n * 8 + Op::col(i)] = sum[m][n].value[i];
}

extern "C" __global__ void __launch_bounds__(32) product(const Product args) {
  using Op = Mma<ELEMENT>;
  DYN_SHARED(Tiles, tiles);
  const SharedTile<ELEMENT, M, K> a{tiles->a};
  const SharedTile<ELEMENT, K, M> a_t{tiles->a_t};
  const SharedTile<ELEMENT, K, N> b{tiles->b};
  const SharedTile<ELEMENT, N, K> b_t{tiles->b_t};
  const SharedTile<ELEMENT, N, 16> e{tiles->e};
  copy(a, args.a);
  copy(a_t, args.a_t);
  copy(b, args.b);
  copy(b_t, args.b_t);
  copy_rows<32, IN_CHUNKS>(e, args.e, 16, args.rows, args.cols);  // the rest is zero
  cp_async_wait_all();
  __syncthreads();

  for (int way = 0; way < 4; way++) {
    typename Op::Sum sum[M / Op::ROWS][N / 8] = {};
#pragma unroll
    for (int m = 0; m < M; m += Op::ROWS)
#pragma unroll
      for (int k = 0; k < K; k += Op::DEPTH) {
        const typename Op::Left left = way & 1 ? Op::left_transposed(a_t, m, k) : Op::left(a, m, k);
#pragma unroll
        for (int n = 0; n < N; n += 16)
          Op::multiply(&sum[m / Op::ROWS][n / 8], left, way & 2 ? Op::right_transposed(b_t, k, n) : Op::right(b, k, n));
      }
    store<Op, M, N>(args.c[way], sum);
    if (way) continue;
    typename Op::Sum second[M / Op::ROWS][2] = {};
#pragma unroll
    for (int m = 0; m < M / Op::ROWS; m++)
#pragma unroll
      for (int n = 0; n < N; n += Op::DEPTH) Op::multiply(second[m], Op::left_of(&sum[m][n / 8]), Op::right(e, n, 0));
    store<Op, M, 16>(args.d, second);
  }
}
