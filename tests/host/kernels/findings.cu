// One misdeed per mode; the tests find a statement's line by the remark behind it.
struct Args { long long mode; int* out; long long zero; };

static __device__ __noinline__ int recurse(int depth, int* out) {
  volatile char frame[1024];
  frame[depth % 1024] = static_cast<char>(depth);
  return depth ? recurse(depth - 1, out) + frame[depth % 1024] : *out;
}

static __device__ __noinline__ int large_frame(long long index) {
  volatile char frame[256 << 10];
  frame[index] = 1;
  return frame[0];
}

extern "C" __global__ void misbehave(const Args args) {
  const int t = threadIdx.x;
  switch (args.mode) {
    case 0:
      if (t < 32) __syncthreads();  // first barrier
      else __syncthreads();  // second barrier
      break;
    case 1:
      if (t < 32) __shfl_xor_sync(0xffffffffu, t, 1);  // warp 0 shuffles
      if (t != 5) __syncthreads();  // all but thread 5
      else __syncwarp();  // thread 5 alone
      break;
    case 2:
      if (t % 32 < 16) __syncwarp(0xffffffffu);  // half a syncwarp
      else __shfl_sync(0xffffffffu, t, 0);  // half a shuffle
      break;
    case 3:
      __ballot_sync(0x0000ffffu, 1);  // not in mask
      break;
    case 4:
      if (t % 32 < 16) args.out[t] = __shfl_sync(0x0000ffffu, t, 20);  // reads lane 20
      break;
    case 5:
      args.out[t] = 7 / static_cast<int>(args.zero);
      break;
    case 6:
      for (volatile int i = 0; args.zero == 0; i = i + 1) {}
      break;
    case 7:
      while (args.zero == 0) __syncthreads();
      break;
    case 8:
      args.out[t] = recurse(1000, args.out);
      break;
    case 9:
      __trap();  // trap
      break;
    case 10:
      if (t < 32) baracuda_host::barrier_sync(3, 96);  // half of barrier 3
      break;
    case 11: {
      DYN_SHARED(int, dynamic);
      dynamic[64 + 4096 * t] = 1;
      break;
    }
    case 12:
      args.out[t] = large_frame(args.zero);
      break;
    case 13:
      baracuda_host::cp_async(args.out, reinterpret_cast<char*>(args.out) + 4, 16, 16);  // misaligned copy
      break;
    case 14:
      baracuda_host::require_aligned(args.out + 1, 16);  // misaligned pack
      break;
  }
}
