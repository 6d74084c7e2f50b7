// What a compiled kernel and the runtime know of each other; included by both.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "vector_types.h"

// Check mode tells calls of a barrier apart, so the compiler must not make two of one.
#ifdef __clang__
#define BARACUDA_HOST_CONVERGENT __attribute__((convergent))
#else
#define BARACUDA_HOST_CONVERGENT
#endif

#pragma GCC visibility push(default)
namespace baracuda_host {

struct Site {  // a place in the kernel text, for findings
  const char* file;
  int line;
};

struct ThreadView {  // a CUDA thread, as the kernel sees it
  uint3 index;
  unsigned linear;     // index within the block
  unsigned unchanged;  // atomics in a row that changed nothing: a spin loop?
};

struct BlockView {
  uint3 index;
  dim3 block, grid;
  unsigned char* dynamic_shared;
};

struct Kernel {  // exported by a kernel library, completed by bind()
  void (*entry)(const void* arguments);
  char* (*shared_anchor)();  // some address in the calling thread's static shared memory
  size_t argument_bytes, dynamic_shared;
  size_t static_shared, anchor_offset;      // extent of static shared memory, where the anchor is in it
  const char *library, *image, *image_end;  // its file, and where that is mapped
  uint32_t blocks_per_multiprocessor;       // that it promises to fit, which bounds its registers
  uint32_t cluster;                         // blocks of a cluster
};

// Library-local thread storage would cost a call per access to threadIdx.
#define BARACUDA_HOST_FAST_TLS __attribute__((tls_model("initial-exec")))
extern __thread ThreadView* thread BARACUDA_HOST_FAST_TLS;
extern __thread BlockView* block BARACUDA_HOST_FAST_TLS;

// A warp-level operation: each lane posts an argument, the last to arrive combines those of all lanes.
struct Operation {
  const char* name;
  void (*combine)(void** arguments, uint32_t lanes);  // arguments of absent lanes are undefined
  bool aligned = false;                               // all lanes must execute the same instruction
};
struct Shuffle {
  uint64_t value, result;
  int source;
};
struct Vote {
  uint64_t value;
  uint32_t result;
};

extern const Operation syncwarp, shfl, shfl_xor, shfl_up, shfl_down, vote_ballot, vote_any, vote_all, match_any,
    reduce_add, reduce_min, reduce_max, reduce_min_signed, reduce_max_signed, reduce_and, reduce_or, reduce_xor;
void collective(const Operation& operation, unsigned mask, void* argument, Site site);

// How a matrix unit adds the products of one instruction to a sum. The terms, which are the products and what the sum
// was, are aligned to the largest exponent among them and cut off `fraction` bits below it; their sum is cut off after
// `significant` bits. A product's exponent is the sum of its factors', which are at least `least_a` and `least_b`. Cut
// off is rounded toward zero.
struct Summation {
  int fraction, significant, least_a, least_b;
};
// sum[row][column] += a[row][k] b[k][column]; a pitch is the floats from one row to the next.
void add_products(const Summation& rule, float* sum, int pitch_sum, const float* a, int pitch_a, const float* b,
                  int pitch_b, int rows, int columns, int depth);

enum class Predicate { Count, And, Or };
BARACUDA_HOST_CONVERGENT void block_barrier(Site site);
BARACUDA_HOST_CONVERGENT int block_barrier_reduce(bool predicate, Predicate combine, Site site);
void named_barrier(unsigned id, unsigned threads, bool arrive_only, Site site);

// The copy happens at the wait that covers it; until then the destination reads as NaN.
void copy_async(void* shared, const void* global, int bytes, int source_bytes, Site site);
void copy_async_commit();
void copy_async_wait(int groups_still_pending);

// What check mode is told of memory; the compiler reports plain loads and stores by itself.
// Atomic does both; Constant is a read of what no thread writes as long as the kernel runs, and an ordinary read comes
// with it; Bounds is a read of what is then discarded; Peek is the read of the copy engine or a matrix unit,
// of which it is not yet known when it ends.
enum class Access : uint8_t {
  Read,
  Write,
  AtomicRead,
  AtomicWrite,
  VolatileRead,
  VolatileWrite,
  Atomic,
  Constant,
  Bounds,
  Peek
};
void access(const void* address, size_t bytes, Access kind);
enum class Space : uint8_t { Global, Shared };
void need(Space space, const void* address, const char* instruction);  // its name and a preposition, for findings
[[noreturn]] void misaligned(const void* address, size_t alignment, const char* type, Site site);
void* copy(void* to, const void* from, size_t bytes);  // they may overlap
void* fill(void* to, int value, size_t bytes);
void fence(bool between_blocks);  // what atomics before it found and after it publish holds; else within the block

void wait_on_dependent_grids();  // griddepcontrol.wait: only check mode looks at it

[[noreturn]] void fail(const char* what, Site site);
void yield();           // lets every other runnable thread of the block go first
void let_blocks_run();  // where several are alive: what follows, or went before, is to be seen by other blocks

}  // namespace baracuda_host
#pragma GCC visibility pop

// Default arguments, evaluated where the kernel calls (in braces GCC 12 would use the definition).
#define BARACUDA_SITE const char *site_file = __builtin_FILE(), int site_line = __builtin_LINE()
#define BARACUDA_HERE (::baracuda_host::Site{site_file, site_line})
// BARACUDA_HOST_UNCHECKED marks functions that work for the host device rather than the kernel: check mode looks
// only at those of their accesses that they tell with BARACUDA_HOST_ACCESS, as made by their caller.
#ifndef BARACUDA_HOST_CHECK
#define BARACUDA_HOST_UNCHECKED
#define BARACUDA_HOST_ACCESS(address, bytes, kind) ((void)0)
#define BARACUDA_HOST_NEED(space, address, instruction) ((void)0)
#define BARACUDA_HOST_FENCE(between_blocks) ((void)0)
#elif defined(__clang__)
#define BARACUDA_HOST_UNCHECKED __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define BARACUDA_HOST_UNCHECKED __attribute__((no_sanitize("thread"), no_sanitize("undefined"), noinline))
#endif
#ifdef BARACUDA_HOST_CHECK
#define BARACUDA_HOST_ACCESS(address, bytes, kind) \
  ::baracuda_host::access(address, bytes, ::baracuda_host::Access::kind)
#define BARACUDA_HOST_NEED(space, address, instruction) \
  ::baracuda_host::need(::baracuda_host::Space::space, address, instruction)
#define BARACUDA_HOST_FENCE(between_blocks) ::baracuda_host::fence(between_blocks)
#endif
#define BARACUDA_SITE_ARGS site_file, site_line  // hands the place on to a function that ends in BARACUDA_SITE
