// Instructions of sm_90, one at a time; the tests lay out what they work on.
#include <baracuda/arch/barrier_sm90.cuh>
#include <baracuda/arch/shared_address.cuh>
#include <baracuda/arch/tma_sm90.cuh>
#include <baracuda/arch/wgmma_sm90.cuh>
#include <baracuda/shared.cuh>

using namespace baracuda;

// Dynamic shared memory from a multiple of 1024 on.
__device__ unsigned base_address() {
  DYN_SHARED(unsigned char, dynamic);
  return (shared_address(dynamic) + 1023) & ~1023u;
}
__device__ unsigned char* at(unsigned address) {
  return static_cast<unsigned char*>(__cvta_shared_to_generic(address));
}

struct Box { const TensorMap* map; long long coordinates[5], rank, bytes; unsigned char* out; };

// out[bytes]: shared memory after a box came.
extern "C" __global__ void load_a_box(const Box args) {
  const unsigned base = base_address();
  const Barrier barrier = {base};
  baracuda_host::BoxAddress box = {args.map, {}, unsigned(args.rank)};
  for (int i = 0; i < 5; i++) box.coordinates[i] = int(args.coordinates[i]);
  if (threadIdx.x == 0) {
    barrier.init(1);
    fence_barrier_init();
    barrier.expect(unsigned(args.bytes));
    baracuda_host::bulk_load_box(base + 1024, box, barrier.address, 0, {"sm90.cu", 1});
  }
  __syncthreads();
  barrier.wait(0);
  for (int i = threadIdx.x; i < args.bytes; i += blockDim.x) args.out[i] = at(base + 1024)[i];
}

struct Product {
  const unsigned char *a, *b;
  long long a_descriptor, b_descriptor;
  const unsigned* a_registers;  // null, or [128, 4]
  int* sum;                     // [128, columns / 2]
  long long columns, a_kind, b_kind, a_along, b_along, fresh, negated;
};

// sum (+)= A B, from operands of 32 KiB each that the test has laid out; descriptors count from where they lie.
extern "C" __global__ void multiply(const Product args) {
  const unsigned base = base_address(), thread = threadIdx.x;
  for (int i = thread * 16; i < 32768; i += 128 * 16) {
    *reinterpret_cast<uint4*>(at(base + i)) = *reinterpret_cast<const uint4*>(args.a + i);
    *reinterpret_cast<uint4*>(at(base + 32768 + i)) = *reinterpret_cast<const uint4*>(args.b + i);
  }
  fence_proxy_async();
  __syncthreads();
  int sum[128];
  unsigned a[4] = {};
  int* const own = args.sum + thread * (args.columns / 2);
  for (int i = 0; i < args.columns / 2; i++) sum[i] = own[i];
  for (int i = 0; i < 4; i++) a[i] = args.a_registers ? args.a_registers[thread * 4 + i] : 0;
  wgmma_fence();
  baracuda_host::wgmma({sum, args.a_registers ? a : nullptr, u64(args.a_descriptor) + (base >> 4),
                        u64(args.b_descriptor) + ((base + 32768) >> 4), int(args.columns),
                        baracuda_host::Factor(args.a_kind), baracuda_host::Factor(args.b_kind), args.fresh != 0,
                        args.a_along != 0, args.b_along != 0, args.negated != 0, false},
                       {"sm90.cu", 2});
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < args.columns / 2; i++) own[i] = sum[i];
}

struct Store { const float* from; float* to; long long add; };

// to[64] becomes or grows by from[64], through shared memory.
extern "C" __global__ void store_from_shared(const Store args) {
  const unsigned base = base_address();
  store_shared_4(base + threadIdx.x * 16, args.from + threadIdx.x * 4);
  fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (args.add) add_bytes(args.to, base, 256);
    else store_bytes(args.to, base, 256);
    bulk_commit();
    bulk_wait_read<0>();
  }
}

struct Matrices { const unsigned* fragments; unsigned short* out; unsigned* transposed; };

// out[4, 8, 8]: the matrices whose fragments are [32, 4]; transposed[32]: of the first.
extern "C" __global__ void store_matrices(const Matrices args) {
  const unsigned base = base_address(), lane = threadIdx.x;
  unsigned fragment[4], back[4];
  for (int i = 0; i < 4; i++) fragment[i] = args.fragments[lane * 4 + i];
  stmatrix_x4(base + lane * 48, fragment);
  __syncwarp();
  for (int i = 0; i < 8; i++)
    args.out[lane * 8 + i] = reinterpret_cast<const unsigned short*>(at(base + lane * 48))[i];
  ldmatrix_x4(back, base + lane * 48);
  args.transposed[lane] = baracuda_host::movmatrix_trans(back[0]);
}

#ifdef BARACUDA_CLUSTER
#include <baracuda/arch/cluster_sm90.cuh>

struct Exchanged { float* out; long long turns; };

// out[blocks, turns, cluster]: what each block has received from each of its cluster, the sum of both their numbers.
extern "C" __global__ void exchange(const Exchanged args) {
  __shared__ float received[2][BARACUDA_CLUSTER];
  __shared__ unsigned long long barriers[2];
  const unsigned rank = cluster_rank(), t = threadIdx.x;
  const Barrier arrived[2] = {{shared_address(&barriers[0])}, {shared_address(&barriers[1])}};
  if (t == 0) {
    arrived[0].init(1);
    arrived[1].init(1);
    fence_barrier_init();
  }
  cluster_sync();
  for (int turn = 0; turn < args.turns; turn++) {
    const Barrier barrier = arrived[turn % 2];
    if (t == 0) barrier.expect(sizeof received[0]);
    if (t < BARACUDA_CLUSTER) store_async(&received[turn % 2][rank], t, 1000.0f * blockIdx.x + turn, barrier);
    barrier.wait_cluster(turn / 2 % 2);
    if (t < BARACUDA_CLUSTER)
      args.out[(blockIdx.x * args.turns + turn) * BARACUDA_CLUSTER + t] = received[turn % 2][t];
  }
}

// One misdeed per mode.
extern "C" __global__ void misuse_a_cluster(const Exchanged args) {
  DYN_SHARED(float, dynamic);
  const unsigned rank = cluster_rank(), t = threadIdx.x;
  const Barrier barrier = {shared_address(dynamic)};
  if (t == 0) {
    barrier.init(1);
    fence_barrier_init();
  }
  cluster_sync();
  switch (args.turns) {
    case 0:
      if (rank == 0 && t < 32) return;
      if (rank == 1 && t == 0) store_async(dynamic + 8, 0, 1.0f, barrier);  // sent to whom may have ended
      if (rank == 0) barrier.wait(0);
      break;
    case 1:
      if (rank == 1) cluster_sync();  // half of the cluster
      else barrier.wait(0);  // other half
      break;
    case 2:
      if (t == 0) mapped_address(0, 2);  // no such block
      break;
    case 3:
      if (rank == 0 && t == 0) {
        const Barrier other = {mapped_address(barrier.address, 1)};
        other.wait(0);  // of another block
      }
      cluster_sync();
      break;
    case 4:
      baracuda_host::cluster_wait({"sm90.cu", 3});
      break;
    case 5:
      if (rank == 1 && t == 0) store_async(dynamic + 8, 0, 1.0f, barrier);  // nobody waits
      break;
    case 6:
      if (rank == 0) return;
      for (int i = 0; i < 4; i++) __nanosleep(1);
      if (t == 0) store_async(dynamic + 8, 0, 1.0f, barrier);  // to a block that has ended
      break;
  }
}
#endif

#include <baracuda/arch/async.cuh>

struct Chain { int *a, *b; long long mode; };

extern "C" __global__ void produce(const Chain args) { args.a[threadIdx.x] = int(threadIdx.x); }

// Launched as overlapping with `produce`; mode: who waits.
extern "C" __global__ void consume(const Chain args) {
  if (args.mode == 1 || (args.mode == 2 && threadIdx.x == 0)) wait_on_dependent_grids();
  if (args.mode == 2) __syncthreads();
  args.b[threadIdx.x] = args.a[threadIdx.x];  // reads
}
