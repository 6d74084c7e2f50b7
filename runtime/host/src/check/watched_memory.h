// The memory that a run may touch, and what happened to each part of it.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

namespace baracuda_host {

// An array that plans hand to kernels, as Python describes it. Strides count elements.
struct BufferArgument {
  const char* name;
  const char* first;
  size_t item_bytes;
  uint32_t rank, readonly, filled, complete;
  const int64_t *shape, *strides;
};

struct Buffer {
  std::string name;
  const char* first;  // the element at index (0, ..., 0)
  size_t item_bytes;
  bool readonly, filled, complete;  // filled: may be read at once; complete: every element gets written
  std::vector<int64_t> shape, strides;
  explicit Buffer(const BufferArgument& a)
      : name(a.name),
        first(a.first),
        item_bytes(a.item_bytes),
        readonly(a.readonly),
        filled(a.filled),
        complete(a.complete),
        shape(a.shape, a.shape + a.rank),
        strides(a.strides, a.strides + a.rank) {}
};

struct Cell {                                       // one element; zeros say that nothing happened
  uint32_t write_block, write_time, earlier_block;  // block numbers count from 1, through all launches of a run
  uint32_t read_block, read_time[2], earlier_reader;
  uint32_t constant_in;  // the last launch that read it as a constant, by its first block
  uint16_t write_thread, read_thread[2];
  uint8_t owner;  // number of the buffer, from 1; 0 lies between elements
  bool filled, atomic, in_flight, written;
  bool by_engine, by_volatile;  // written by the copy engine rather than by a store; by a volatile store
};

struct Region {
  std::string name;
  const char* low;
  size_t bytes;
  uint32_t granule;  // bytes of a cell
  int32_t sole;      // the one buffer that fills the region; -1 if cells say whose they are
  bool shared;
  Cell* cells;
  const char* high() const { return low + bytes; }
};

// Lazily zeroed cells for a region, however large; `release_cells` gives them back. False if the system has none.
bool reserve_cells(Region& region);
void release_cells(Region& region);

Region* find_region(std::vector<Region>& sorted, const char* address);  // null if it lies in none

class WatchedMemory {
 public:
  WatchedMemory(const BufferArgument* buffers, size_t count);
  ~WatchedMemory();
  WatchedMemory(const WatchedMemory&) = delete;

  const Buffer& buffer_of(const Region& region, const Cell& cell) const {
    return buffers_[region.sole >= 0 ? static_cast<size_t>(region.sole) : cell.owner - 1u];
  }
  std::string describe_unwritten() const;  // a line for each buffer that should be complete and is not
  std::string describe_nearest(const char* address) const;

  bool complete() const;  // does every region have its cells?

  std::vector<Region> regions;                      // by address
  uint32_t blocks_so_far = 0, first_of_launch = 0;  // the first block of the latest launch

 private:
  std::vector<Buffer> buffers_;
};

// "12 bytes past the end of 'x' of 4096 bytes"
std::string relative_to(const char* address, const char* low, size_t bytes, const std::string& name);

}  // namespace baracuda_host
