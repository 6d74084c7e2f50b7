// One misdeed with instructions of sm_90 per mode; the tests find a statement's line by the remark behind it.
#include <baracuda/arch/barrier_sm90.cuh>
#include <baracuda/arch/shared_address.cuh>
#include <baracuda/arch/tma_sm90.cuh>
#include <baracuda/arch/wgmma_sm90.cuh>
#include <baracuda/shared.cuh>

using namespace baracuda;

__device__ unsigned* words(unsigned address) { return static_cast<unsigned*>(__cvta_shared_to_generic(address)); }

struct Args { long long mode; const TensorMap* map; float* memory; };

extern "C" __global__ void misbehave(const Args args) {
  DYN_SHARED(unsigned char, dynamic);
  const unsigned base = (shared_address(dynamic) + 1023) & ~1023u, t = threadIdx.x, tile = base + 1024;
  const Barrier barrier = {base}, other = {base + 8}, fresh = {base + 16};
  if (t == 0) {
    barrier.init(1);
    other.init(1);
    fence_barrier_init();
  }
  __syncthreads();
  float sum[32] = {};
  const Matrix a = Matrix::at(tile, 0), b = Matrix::at(tile + 8192, 0);
  const auto multiply = [&]() {
    Wgmma<f16, 64>::shared<false>(sum, a, b, true);  // product
  };
  switch (args.mode) {
    case 0:
      barrier.wait(0);  // nobody arrives
      break;
    case 1:
      if (t == 0) barrier.expect(128);
      barrier.wait(0);  // no bytes come
      break;
    case 2:
      if (t == 0) barrier.init(1);  // twice
      break;
    case 3:
      if (t == 0) fresh.arrive();  // never initialised
      break;
    case 4:
      if (t == 0) {
        barrier.inval();  // inval
        barrier.arrive();  // after inval
      }
      break;
    case 5:
      if (t == 0) {
        *static_cast<unsigned*>(__cvta_shared_to_generic(base)) = 1;
        barrier.arrive();  // overwritten
      }
      break;
    case 6:
      if (t == 0) {
        fresh.init(1);
        fresh.expect(1024);
        load_box(tile, *args.map, fresh, {}, 0);  // unseen
      }
      break;
    case 7:
      if (t == 0) load_box(tile + 64, *args.map, barrier, {}, 0);  // misaligned box
      break;
    case 8:
      if (t == 0) load_bytes(tile, args.memory, 24, barrier);  // no multiple of 16
      break;
    case 9:
      if (t == 0) {
        barrier.expect(1024);
        load_box(tile, *args.map, barrier, {}, 0);  // never waited for
      }
      break;
    case 10:
      if (t == 0) {
        store_bytes(args.memory, tile, 128);  // source still read
        bulk_commit();
      }
      break;
    case 11:
      multiply();
      break;
    case 12:
      wgmma_fence();
      multiply();
      wgmma_commit();
      break;
    case 13:
      wgmma_fence();
      Wgmma<f16, 64>::shared<false>(sum, a + 128, b, true);  // misaligned matrix
      break;
    case 14:
      wgmma_fence();
      Wgmma<f16, 64>::shared<false>(sum, a, b + 65536, true);  // beyond
      wgmma_commit();
      wgmma_wait<0>();
      break;
    case 15:
      if (t >= 128) allocate_registers<248>();  // nobody gives
      break;
    case 16:
      if (t >= 128) deallocate_registers<252>();  // no multiple of 8
      break;
    case 17:
      if (t / 128 == 0) {
        wgmma_fence();
        if (t % 32 < 16) multiply();  // half a warp
        else __syncwarp();
      }
      break;
    case 18:
      if (t == 0) {
        barrier.arrive();
        barrier.arrive();
      }
      if (t == 32) barrier.wait(0);  // lapped
      break;
    case 19:
      if (t == 0) load_box(tile + 99968, *args.map, barrier, {}, 0);  // past the end
      break;
    case 92:
      if (t == 0) load_box(tile, *args.map, barrier, {4, 0, 0, 0}, 0);  // between packs
      break;
    case 91:
      if (t == 32) barrier.wait(0);
      if (t == 0) {
        for (int i = 0; i < 4; i++) __nanosleep(1);
        barrier.arrive();
        barrier.inval();  // before all have seen the end
      }
      break;
    case 90:
      if (t == 0) {
        store_bytes(args.memory, tile, 128);  // first of two
        bulk_commit();
        bulk_wait_read<0>();
        add_bytes(args.memory + 16, tile, 128);  // second of two
      }
      break;
  }
  if (args.mode < 20 || args.mode >= 90) return;

  // From here on: what only check mode finds.
  for (unsigned i = t; i < 4096; i += 384) words(tile)[i] = 0;
  if (args.mode != 20) fence_proxy_async();
  __syncthreads();
  switch (args.mode) {
    case 20:
      if (t >= 128) break;
      wgmma_fence();
      multiply();
      wgmma_commit();
      wgmma_wait<0>();
      break;
    case 21:
      if (t == 0) {
        barrier.expect(1024);
        load_box(tile, *args.map, barrier, {}, 0);
      }
      __syncthreads();
      if (t < 128) {
        wgmma_fence();
        multiply();
        wgmma_commit();
        wgmma_wait<0>();
      }
      barrier.wait(0);
      break;
    case 22:
      if (t >= 128) break;
      wgmma_fence();
      multiply();
      wgmma_commit();
      args.memory[t] = sum[5];  // sum in flight
      wgmma_wait<0>();
      break;
    case 23:
      if (t >= 128) break;
      wgmma_fence();
      sum[3] = args.memory[t];
      multiply();
      wgmma_commit();
      wgmma_wait<0>();
      break;
    case 24:
      if (t >= 128) break;
      wgmma_fence();
      multiply();
      wgmma_commit();
      words(tile)[t * 16] = 7;
      wgmma_wait<0>();  // overwritten operand
      break;
    case 25:
      if (t == 0) {
        words(tile)[3] = 5;
        store_bytes(args.memory, tile, 128);  // no fence
        bulk_commit();
        bulk_wait<0>();
      }
      break;
    case 26:
      if (t == 0) {
        barrier.expect(1024);
        load_box(tile, *args.map, barrier, {}, 0);
      }
      args.memory[t] = words(tile)[t & 255];  // not waited for
      barrier.wait(0);
      break;
    case 27:
      if (t == 0) {
        barrier.expect(1024);
        load_box(tile + 8192, *args.map, barrier, {}, 0);
      }
      barrier.wait(0);
      if (t >= 128) break;
      wgmma_fence();
      Wgmma<f16, 64>::shared<false, false, 32>(sum, a, PanelMatrix<32>::at(tile + 8192, 0), true);  // other swizzle
      wgmma_commit();
      wgmma_wait<0>();
      break;
    case 28:
      if (t == 0) {
        fresh.init(2);
        fence_barrier_init();
      }
      __syncthreads();
      if (t == 32) fresh.arrive();
      if (t == 0) fresh.arrive();
      if (t == 0) fresh.wait(0);
      if (t == 0) fresh.arrive();
      if (t == 0) fresh.wait(1);
      break;
  }
}
