// What check mode alone sees: a statement of each kind that is wrong if `broken`, and right otherwise.
struct Args { int* x; int* y; long long mode, broken; };

static __device__ __noinline__ void meet() {
  __syncthreads();  // waits
}

extern "C" __global__ void unordered(const Args args) {
  __shared__ int cells[64];
  const int t = threadIdx.x, lane = t % 32;
  const bool broken = args.broken;
  switch (args.mode) {
    case 0:  // a helper with a barrier, called from both sides of a branch
      if (broken && t < 32) meet();  // one side
      else meet();  // other side
      break;
    case 1:  // one barrier more for half of the block
      for (int i = 0; i < (broken && t < 32 ? 2 : 1); i++) __syncthreads();  // counts
      break;
    case 2:  // lanes in lockstep
      if (t < 32) {
        volatile int* sums = cells;
        sums[t] = t;
        for (int step = 16; step > 0; step /= 2) {
          if (!broken) __syncwarp();
          const int other = sums[(t + step) % 32];  // reads the sum of a lane
          if (!broken) __syncwarp();
          sums[t] = sums[t] + other;
        }
        args.y[t] = sums[t];
      }
      break;
    case 3:  // half of a warp waits for all of it
      cells[t] = t;
      if (lane < 16 || !broken) __syncwarp();  // waits for the warp
      if (lane < 16) args.y[t] = cells[t + 16];
      break;
    case 4:  // a constant that is stored
      args.y[t] = 1;
      args.y[t] = broken ? __ldg(args.y + t) : __ldcg(args.y + t);  // loads what it stored
      break;
    case 5:  // stored after it was read as a constant
      args.x[t] = (broken ? __ldg(args.x + t) : args.x[t]) + 1;  // stores what it loaded
      break;
    case 6:  // early exit: legal
      if (t >= 40) return;
      cells[t] = t;
      __syncwarp();
      __syncthreads();
      args.y[t] = cells[39 - t];
      break;
  }
}
