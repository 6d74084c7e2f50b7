// Tiles of matrices by TMA: to all blocks of a cluster, back to memory, added to what is there.
#include <baracuda/arch/shared_address.cuh>
#include <baracuda/arch/tiles_sm90.cuh>
#include <baracuda/shared.cuh>

using namespace baracuda;

// Dynamic shared memory from a multiple of 1024 on.
__device__ unsigned base_address() {
  DYN_SHARED(unsigned char, dynamic);
  return (shared_address(dynamic) + 1023) & ~1023u;
}
__device__ float* floats(unsigned address) { return static_cast<float*>(__cvta_shared_to_generic(address)); }

#ifdef BARACUDA_CLUSTER
#ifndef BARACUDA_HOST
#define CLUSTERS __cluster_dims__(BARACUDA_CLUSTER, 1, 1)
#else
#define CLUSTERS
#endif
struct Tiles {
  const TensorMap *in, *out;
  long long turns, defect;
};

// out[turn, rank] = in[turn] + rank in boxes of 8 rows of 32 columns, and with `defect` 5 all ranks add up in out[turn].
// The first block loads for all, once all have told it that they are done with the tile before.
extern "C" __global__ void CLUSTERS pass_around(const Tiles args) {
  constexpr unsigned BYTES = 1024;
  constexpr unsigned short ALL = (1 << BARACUDA_CLUSTER) - 1;
  const unsigned base = base_address(), tile = base + 1024, t = threadIdx.x, rank = cluster_rank();
  const Barrier full = {base}, empty = {base + 8};
  if (t == 0) {
    full.init(1);
    empty.init(BARACUDA_CLUSTER);
    fence_barrier_init();
  }
  cluster_sync();
  const bool leads = t < 32 && elect_one();
  if (leads && rank == 0) prefetch_map(*args.in);
  for (int turn = 0; turn < args.turns; turn++) {
    if (leads) full.expect(BYTES);
    if (leads && rank == 0) {
      prefetch_tile(*args.in, 0, 0, turn);
      if (args.defect != 1) empty.wait(turn % 2 ^ 1);
      load_tile_to_blocks(tile, *args.in, full, args.defect == 2 ? 1 : ALL, 0, 0, turn, EVICT_FIRST);  // to all
    }
    if (args.defect == 3 && rank == 1) return;
    full.wait(turn & 1);  // for the tile
    for (unsigned i = t; i < BYTES / 4; i += blockDim.x) floats(tile)[i] += float(rank);
    if (args.defect != 4) fence_proxy_async_shared();
    __syncthreads();
    if (!leads) continue;
    if (args.defect == 5) add_tile(*args.out, tile, 0, 0, turn);
    else store_tile(*args.out, tile, 0, 0, turn * BARACUDA_CLUSTER + int(rank));  // from each
    bulk_commit();
    bulk_wait_read<0>();
    arrive_at(empty, 0);
  }
  if (leads) bulk_wait<0>();
  cluster_sync();
}
#endif

struct Combination {
  const float* from;
  void* to;
  long long which;
};

// to[256 bytes] is combined with from[64], whatever numbers these bytes are, by the operation of that place in the table.
extern "C" __global__ void combine(const Combination args) {
  const unsigned base = base_address();
  store_shared_4(base + threadIdx.x * 16, args.from + threadIdx.x * 4);
  fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x > 0) return;
  prefetch_bytes(args.to, 256);
  int place = 0;
#define COMBINE(how, T, text, update, number) \
  if (args.which == place++) Combining<Combine::how, T>::bytes(static_cast<T*>(args.to), base, 256);
  BARACUDA_COMBINES(COMBINE)
#undef COMBINE
  bulk_commit();
  bulk_wait<0>();
}
