// The copy engine of a cluster: bulk copies in flight.
#pragma once
#include <string>
#include <vector>

#include "async_proxy.h"
#include "tensor_map.h"
#include "updates.h"

namespace baracuda_host {

struct Bytes {
  const char *first, *end;
};

struct BulkCopy {
  enum Kind : uint8_t { LoadBox, Load, Send, StoreBox, Store } kind;  // the first three arrive at a barrier
  const char* name;
  char* global;
  TensorMap map;
  int32_t coordinates[5];
  uint32_t address, bytes, barrier, group;
  const Thread* thread;
  uint64_t value;
  Update how;  // of a store
  Number of;
  std::vector<char> source;     // of a store whose source has been read
  std::vector<Bytes> written;   // of a store, sorted
  std::vector<uint32_t> clock;  // of a load, in check mode
  Site site;
};

struct CopyEngine {
  struct Swizzled {
    uint32_t first, end, bytes;  // addresses in shared memory, and the bytes within which chunks change places
  };
  std::vector<BulkCopy> copies;  // in flight, in order of issue
  std::vector<Swizzled> swizzles;
  void note_swizzle(const BulkCopy& copy);
};

bool is_load(const BulkCopy& copy);
void issue(BulkCopy copy);
uint32_t swizzle_of_box(uint32_t address);  // with which a box came that covers it, in bytes; 0 if none did

}  // namespace baracuda_host
