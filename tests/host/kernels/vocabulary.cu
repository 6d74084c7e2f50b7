// Entry points that exercise one part of the device vocabulary each.
#ifndef PENDING
#define PENDING 0
#endif
#define DYN_SHARED_BYTES 1024

struct Words { unsigned* out; long long n; };

extern "C" __global__ void warp_operations(const Words args) {
  const unsigned t = threadIdx.x, all = 0xffffffffu;
  unsigned* out = args.out + t;
  out[0 * 32] = __shfl_sync(all, t, 3, 8);
  out[1 * 32] = __shfl_up_sync(all, t, 2, 16);
  out[2 * 32] = __shfl_down_sync(all, t, 2, 16);
  out[3 * 32] = __shfl_xor_sync(all, t, 5);
  out[4 * 32] = __ballot_sync(all, t % 3 == 0);
  out[5 * 32] = __any_sync(all, t == 7) + 2 * __all_sync(all, t < 32) + 4 * __all_sync(all, t < 31);
  out[6 * 32] = __match_any_sync(all, t % 5);
  out[7 * 32] = __reduce_add_sync(all, t);
  out[8 * 32] = static_cast<unsigned>(__reduce_min_sync(all, static_cast<int>(t) - 9));
  out[9 * 32] = __reduce_max_sync(all, t ^ 21u);
  const unsigned half = t < 16 ? 0x0000ffffu : 0xffff0000u;
  out[10 * 32] = __reduce_or_sync(half, 1u << t);
  out[11 * 32] = __syncthreads_count(t > 20) + 100 * __syncthreads_and(t < 32) + 1000 * __syncthreads_or(t == 40);
  const double wide = __shfl_sync(all, 1.0 / (t + 1), 2);
  out[12 * 32] = wide == 1.0 / 3.0;
}

extern "C" __global__ void atomics(const Words args) {
  unsigned* out = args.out;
  atomicAdd(&out[0], 1u);
  atomicMax(reinterpret_cast<int*>(&out[1]), static_cast<int>(threadIdx.x));
  atomicAdd(reinterpret_cast<float*>(&out[2]), 0.5f);
  atomicInc(&out[3], 6u);
  while (atomicCAS(&out[4], 0u, 1u)) {}  // a lock: its holder must get to run
  out[5] = out[5] + 1;
  __threadfence();
  atomicExch(&out[4], 0u);
  baracuda_host::read_modify_write(reinterpret_cast<unsigned short*>(&out[6]) + 1,
                                   [](unsigned short old) { return static_cast<unsigned short>(old + 3); });
}

// Thread 0 waits for thread 31 of its own warp, and every block for the one before it.
extern "C" __global__ void spins(const Words args) {
  unsigned* flag = args.out;
  unsigned* mine = args.out + 1;
  if (threadIdx.x == 0) {
    while (baracuda_host::load_acquire(mine + blockIdx.x) == 0) {}
    while (baracuda_host::load_acquire(flag) != blockIdx.x) {}
    baracuda_host::store_release(flag, blockIdx.x + 1);
  } else if (threadIdx.x == 31) {
    baracuda_host::store_release(mine + blockIdx.x, 1u);
  }
}

// Warp 0 produces, warp 1 consumes; barrier 1 says "full", barrier 2 "empty".
extern "C" __global__ void pipeline(const Words args) {
  __shared__ unsigned slot[32];
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < args.n; i++) {
    if (threadIdx.x < 32) {
      if (i) baracuda_host::barrier_sync(2, 64);
      slot[lane] = i * 32 + lane;
      baracuda_host::barrier_arrive(1, 64);
    } else {
      baracuda_host::barrier_sync(1, 64);
      args.out[i * 32 + lane] = slot[31 - lane];
      if (i + 1 < args.n) baracuda_host::barrier_arrive(2, 64);
    }
  }
}

// What a block finds in shared memory; the first block of a worker leaves a value for the next one.
extern "C" __global__ void stale_shared(const Words args) {
  __shared__ unsigned fixed[8];
  DYN_SHARED(unsigned, dynamic);
  args.out[blockIdx.x * 2] = fixed[3];
  args.out[blockIdx.x * 2 + 1] = dynamic[DYN_SHARED_BYTES / 4 - 1];
  fixed[3] = dynamic[DYN_SHARED_BYTES / 4 - 1] = 5;
}

struct Floats { const float* x; float* y; long long n; };

extern "C" __global__ void fused(const Floats args) {
  const float a = args.x[0], b = args.x[1], c = args.x[2];
  args.y[0] = a * b + c;
  args.y[1] = __fadd_rn(__fmul_rn(a, b), c);
  args.y[2] = __fmaf_rn(a, b, c);
  args.y[3] = static_cast<float>(__dadd_rn(__dmul_rn(a, b), c));
}

extern "C" __global__ void conversions(const Floats args) {
  int* y = reinterpret_cast<int*>(args.y);
  y[0] = __float2int_rn(2.5f), y[1] = __float2int_rz(-2.9f), y[2] = __float2int_rd(-2.1f);
  y[3] = __float2int_rn(3e9f), y[4] = __float2int_rn(-3e9f), y[5] = __float2int_rn(args.x[0]);
  y[6] = static_cast<int>(__float2uint_rn(-1.0f)), y[7] = static_cast<int>(__double2uint_ru(4294967294.5));
  y[8] = isnan(args.x[0]) + 2 * isinf(1e30f * 1e30f) + 4 * signbit(-0.0f) + 8 * isfinite(1.0);
  y[9] = static_cast<int>(__byte_perm(0x33221100u, 0x77665544u, 0x7521u));
  y[10] = __clz(1) + 100 * __ffs(8) + 10000 * __popc(255u), y[11] = max(-1, 1) + min(3u, 4u);
  args.y[12] = baracuda_host::half_bits_to_float(0x0001), args.y[13] = baracuda_host::half_bits_to_float(0xc100);
  args.y[14] = fmaxf(args.x[0], 1.0f) + erff(0.0f) + rsqrtf(4.0f) + __saturatef(7.0f);
  y[15] = static_cast<int>(__float_as_uint(1e-45f)) + static_cast<int>(__double_as_longlong(5e-324));
}

struct Halves { const float* x; unsigned short* encoded; long long n; float* decoded; };

extern "C" __global__ void halves(const Halves args) {
  for (long long i = threadIdx.x; i < args.n; i += blockDim.x)
    args.encoded[i] = baracuda_host::float_to_half_bits(args.x[i]);
  for (unsigned i = threadIdx.x; i < 65536; i += blockDim.x)
    args.decoded[i] = baracuda_host::half_bits_to_float(static_cast<unsigned short>(i));
}

struct Product { const unsigned short *a, *b; float* d; };

// d[16, 8] = a[16, 16] b[16, 8], all row-major, a and b bfloat16.
extern "C" __global__ void matrix_product(const Product args) {
  __shared__ __align__(16) unsigned short a[16][16], b[16][8];
  const int lane = threadIdx.x;
  baracuda_host::cp_async(&a[lane / 2][lane % 2 * 8], args.a + lane * 8, 16, 16);
  baracuda_host::cp_async(&b[lane % 16][0], args.b + lane % 16 * 8, 16, 16);
  baracuda_host::cp_async_commit();
  baracuda_host::cp_async_wait(PENDING);
  __syncwarp();
  unsigned a_part[4], b_part[2];
  baracuda_host::ldmatrix<4>(a_part, &a[lane % 16][lane / 16 * 8]);
  baracuda_host::ldmatrix<2, true>(b_part, &b[lane % 16][0]);
  float d[4] = {};
  baracuda_host::mma_m16n8k16_bf16(d, a_part, b_part);
  for (int i = 0; i < 4; i++) args.d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
