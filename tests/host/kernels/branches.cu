// Branches that launches of 32 threads take both ways, one way, or never.
struct Args {
    float* y;
    long long n;
};

__device__ __forceinline__ float signed_one(long long n) {
    if (n > 100) return -1.0f;  // never
    return 1.0f;
}

template <int COUNT> __device__ float sum_of(const float* y) {
    float sum = 0.0f;
    for (int i = 0; i < COUNT; ++i) sum += y[i];
    return sum;
}

extern "C" __global__ void branches(const Args args) {
    if (threadIdx.x < args.n) args.y[threadIdx.x] = signed_one(args.n);  // both ways
    for (long long i = 64; i < args.n; ++i) args.y[0] += 1.0f;           // no iteration
    __syncthreads();
    if (threadIdx.x == 0) args.y[0] = sum_of<4>(args.y) + sum_of<2>(args.y);
    if (args.n == 0) {
        if (threadIdx.x == 0) args.y[0] = 2.0f;  // not reached
    }
}
