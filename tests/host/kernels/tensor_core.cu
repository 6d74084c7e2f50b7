// One matrix instruction on fragments from memory; the tests lay them out and read them back.
#include <baracuda/arch/async.cuh>
#include <baracuda/arch/tensor_core.cuh>

using namespace baracuda;

#ifdef MMA
struct Product { const WORD *a, *b; SUM* d; };

// d[32, D_VALUES] += the product of a[32, A_WORDS] and b[32, B_WORDS]; a row is what a lane holds.
extern "C" __global__ void product(const Product args) {
  WORD a[A_WORDS], b[B_WORDS];
  SUM d[D_VALUES];
  const int lane = threadIdx.x;
  for (int i = 0; i < A_WORDS; i++) a[i] = args.a[lane * A_WORDS + i];
  for (int i = 0; i < B_WORDS; i++) b[i] = args.b[lane * B_WORDS + i];
  for (int i = 0; i < D_VALUES; i++) d[i] = args.d[lane * D_VALUES + i];
  MMA(d, a, b);
  for (int i = 0; i < D_VALUES; i++) args.d[lane * D_VALUES + i] = d[i];
}
#endif

struct Load { const unsigned short* matrices; unsigned* out; };

// out[14, 32]: the registers of each ldmatrix of matrices[32, 8], whose rows are 16 bytes at every third 16 bytes.
extern "C" __global__ void load(const Load args) {
  __shared__ __align__(16) unsigned short rows[32][24];
  const int lane = threadIdx.x;
  cp_async_cg(rows[lane], args.matrices + lane * 8);
  cp_async_wait_all();
  __syncwarp();
  unsigned fragment[14];
  ldmatrix_x1(fragment, rows[lane % 8]);
  ldmatrix_x1_trans(fragment + 1, rows[lane % 8]);
  ldmatrix_x2(fragment + 2, rows[lane % 16]);
  ldmatrix_x2_trans(fragment + 4, rows[lane % 16]);
  ldmatrix_x4(fragment + 6, rows[lane]);
  ldmatrix_x4_trans(fragment + 10, rows[lane]);
  for (int i = 0; i < 14; i++) args.out[i * 32 + lane] = fragment[i];
}

struct Copy { const unsigned char* from; unsigned char* to; };

// to[17, 64]: of row i, what copies of 4, 8, 16 and 16 bytes leave in 16 bytes each if i bytes are taken from memory.
extern "C" __global__ void copy(const Copy args) {
  __shared__ __align__(16) unsigned char bytes[64];
  const int size = blockIdx.x;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 64; i++) bytes[i] = 255;
    cp_async_ca<4>(bytes, args.from, size < 4 ? size : 4);
    cp_async_ca<8>(bytes + 16, args.from, size < 8 ? size : 8);
    cp_async_commit_group();
    cp_async_ca<16>(bytes + 32, args.from, size);
    cp_async_cg(bytes + 48, args.from, size);
    cp_async_commit_group();
    cp_async_wait_group<1>();
    for (int i = 0; i < 32; i++) args.to[blockIdx.x * 64 + i] = bytes[i];
    cp_async_wait_group<0>();
    for (int i = 32; i < 64; i++) args.to[blockIdx.x * 64 + i] = bytes[i];
  }
}

struct Rounding { const float* x; unsigned* bits; };

extern "C" __global__ void round_to_tf32(const Rounding args) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  args.bits[i] = cvt_rna_tf32_f32(args.x[i]);
}
