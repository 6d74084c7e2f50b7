// Boxes of tensor maps: where the copy engine finds their bytes in global memory and in shared memory.
#pragma once
#include <algorithm>
#include <string.h>

#include "tensor_map.h"

namespace baracuda_host {

// The engine's bytes of an address with a swizzle: chunks of 16 bytes in the order of the address's upper bits.
inline uint32_t swizzled(uint32_t address, uint32_t swizzle) {
  return address ^ ((address >> 7 & ((1u << swizzle) - 1)) << 4);
}

inline uint32_t box_bytes(const TensorMap& map) {
  uint32_t bytes = map.item_bytes;
  for (uint32_t axis = 0; axis < map.rank; axis++) bytes *= map.box[axis];
  return bytes;
}

// Calls visit(offset in the box, element in memory or null beyond the edges, bytes) for runs of the first axis.
template <class Visit>
void each_run(const TensorMap& map, const int32_t* coordinates, Visit visit) {
  const int64_t box = map.box[0], extent = map.extents[0], start = coordinates[0];
  const int64_t before = std::clamp<int64_t>(-start, 0, box),
                inside = std::clamp<int64_t>(extent - start, before, box) - before;
  uint32_t index[5] = {}, offset = 0;
  for (;;) {
    char* row = map.first;
    bool within = true;
    for (uint32_t axis = 1; axis < map.rank; axis++) {
      const int64_t place = int64_t{coordinates[axis]} + index[axis];
      within &= place >= 0 && place < map.extents[axis];
      row += place * static_cast<int64_t>(map.strides[axis - 1]);
    }
    const uint32_t width = map.item_bytes,
                   ends[] = {0, static_cast<uint32_t>(before) * width, static_cast<uint32_t>(before + inside) * width,
                             static_cast<uint32_t>(box) * width};
    for (int part = 0; part < 3; part++)
      if (ends[part + 1] > ends[part])
        visit(offset + ends[part], part == 1 && within ? row + (start + before) * width : nullptr,
              ends[part + 1] - ends[part]);
    offset += ends[3];
    uint32_t axis = 1;
    while (axis < map.rank && ++index[axis] == map.box[axis]) index[axis++] = 0;
    if (axis >= map.rank) return;
  }
}

// Calls visit(offset, bytes) for the pieces of [offset, offset + bytes) that lie in one chunk of 16 bytes each.
template <class Visit>
void each_chunk(uint32_t offset, uint32_t bytes, Visit visit) {
  for (const uint32_t end = offset + bytes; offset < end;) {
    const uint32_t piece = std::min(end, (offset / 16 + 1) * 16) - offset;
    visit(offset, piece);
    offset += piece;
  }
}

// Calls visit(byte of the box in shared memory, element bytes in memory or null beyond the edges, bytes).
template <class Visit>
void each_piece(uint32_t address, const TensorMap& map, const int32_t* coordinates, Visit visit) {
  each_run(map, coordinates, [&](uint32_t offset, char* memory, uint32_t bytes) {
    each_chunk(offset, bytes, [&](uint32_t at, uint32_t piece) {
      visit(swizzled(address + at, map.swizzle) - address, memory ? memory + (at - offset) : nullptr, piece);
    });
  });
}

}  // namespace baracuda_host
