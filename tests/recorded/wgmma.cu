// One wgmma, in PTX of its own: sum[64, 8] += a[64] b[8], whose rows are 32 bytes of what is multiplied.
struct Answer { const uint4 *a, *b; SUM* sum; };

#define TEXT(...) #__VA_ARGS__
#define INSTRUCTION(shape, sum, type) "wgmma.mma_async.sync.aligned." TEXT(shape) "." TEXT(sum) "." TEXT(type) "." TEXT(type)

extern "C" __global__ void answer(const Answer args) {
  // Without a swizzle a matrix is in blocks of 8 rows of 16 bytes: here two along a row, then the next eight rows.
  __shared__ __align__(128) uint4 a[128], b[16];
  const int t = threadIdx.x;
  a[t / 16 * 16 + t % 2 * 8 + t / 2 % 8] = args.a[t];
  if (t < 16) b[t % 2 * 8 + t / 2] = args.b[t];
  SUM d[4];
  SUM* const own = args.sum + (t / 32 * 16 + t % 32 / 4) * 8 + t % 4 * 2;
  for (int i = 0; i < 4; i++) d[i] = own[i / 2 * 64 + i % 2];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const unsigned long long blocks = 8ull << 16 | 16ull << 32;
  const unsigned long long of_a = blocks | (unsigned(__cvta_generic_to_shared(a)) & 0x3ffff) >> 4;
  const unsigned long long of_b = blocks | (unsigned(__cvta_generic_to_shared(b)) & 0x3ffff) >> 4;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(INSTRUCTION(SHAPE, PTX_SUM, TYPE) " {%0, %1, %2, %3}, %4, %5, 1" REST ";"
               : KIND(d[0]), KIND(d[1]), KIND(d[2]), KIND(d[3]) : "l"(of_a), "l"(of_b));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) own[i / 2 * 64 + i % 2] = d[i];
}
