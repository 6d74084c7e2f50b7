// What a compiled kernel and the runtime know of each other for the instructions of sm_90; included by both.
//
// Shared memory is addressed by 32 bits: an offset within the block's window, which is below 256 KiB since matrix
// descriptors hold 18 bits of it, and above bit 24 the rank of the block in its cluster, from 1; 0 is the block itself.
#pragma once
#include "interface.h"

#pragma GCC visibility push(default)
namespace baracuda_host {

uint32_t shared_address(const void* pointer, Site site);
void* shared_pointer(uint32_t address, size_t bytes, const char* instruction,
                     Site site);  // in any block of the cluster

// mbarrier: `bytes` more are expected by the phase that an arrival belongs to.
void mbarrier_init(uint32_t address, uint32_t arrivals, Site site);
void mbarrier_inval(uint32_t address, Site site);
void mbarrier_arrive(uint32_t address, uint32_t bytes, Site site);
void mbarrier_wait(uint32_t address, uint32_t parity, Site site);
void fence_proxy_async();  // what this thread wrote is there for the copy engine and the matrix units

// cp.async.bulk: copies of a thread. Loads arrive at a barrier; stores are waited for by group.
struct BoxAddress {
  const void* map;
  int32_t coordinates[5];
  uint32_t rank;
};
// `blocks`: those of the cluster that get the bytes, each at the same offset with its own barrier; 0: where `to` is.
void bulk_load_box(uint32_t to, const BoxAddress& box, uint32_t barrier, uint16_t blocks, Site site);
void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, uint16_t blocks, Site site);
enum class Update : uint8_t { Store, Add, Min, Max, Inc, Dec, And, Or, Xor };
enum class Number : uint8_t { U32, S32, U64, S64, F16, BF16, F32, F64 };
void bulk_store_box(const BoxAddress& box, uint32_t from, Update how, Site site);
void bulk_store(void* to, uint32_t from, uint32_t bytes, Update how, Number of, Site site);
void bulk_prefetch_box(const BoxAddress& box, Site site);
void bulk_prefetch(const void* from, uint32_t bytes, Site site);
void prefetch_map(const void* map, Site site);
void bulk_commit();
void bulk_wait(uint32_t groups_still_pending, bool only_read);

// wgmma.mma_async as one lane gives it; all lanes of a warp meet.
enum class Factor : uint8_t { F16, BF16, TF32, E4M3, E5M2, S8, U8 };
struct MatrixProduct64 {
  void* sum;                    // this lane's, `columns` / 2 of 32 bits
  const uint32_t* a_registers;  // four, or null if `a` describes the matrix in shared memory
  uint64_t a, b;
  int columns;
  Factor of_a, of_b;
  bool fresh, a_transposed, b_transposed, a_negated, b_negated;
};
void wgmma(const MatrixProduct64& product, Site site);
void wgmma_fence(Site site);
void wgmma_commit(Site site);
void wgmma_wait(int groups_still_pending, Site site);

bool elect(uint32_t lanes, Site site);  // elect.sync: true for one of them, the same whenever they are the same

uint32_t cluster_rank();
uint32_t mapped_address(uint32_t address, uint32_t rank, Site site);  // mapa
void cluster_arrive(Site site);
void cluster_wait(Site site);
void store_async(uint32_t to, uint64_t value, uint32_t bytes, uint32_t barrier, Site site);  // st.async

void set_registers(uint32_t count, bool more, Site site);  // setmaxnreg

}  // namespace baracuda_host
#pragma GCC visibility pop
