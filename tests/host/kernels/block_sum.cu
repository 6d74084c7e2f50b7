// Sums each row of x[grid, n]; the barrier that a row's first warp needs can be left out.
struct Args { const float* x; float* y; long long n; };

extern "C" __global__ void __launch_bounds__(128) block_sum(const Args args) {
  __shared__ float part[4];
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < args.n; i += blockDim.x) sum += args.x[blockIdx.x * args.n + i];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
#ifndef WITHOUT_BARRIER
  __syncthreads();
#endif
  if (threadIdx.x == SUMMING_THREAD) args.y[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}
