// Tensor maps of the host device: what cuTensorMapEncodeTiled is given, checked as it checks, in the size of a
// CUtensorMap.
#pragma once
#include <stdint.h>

namespace baracuda_host {

struct TensorMap {
  uint64_t mark;
  char* first;
  uint64_t strides[4];  // bytes, of all axes but the first
  uint32_t extents[5];  // the first axis varies fastest, the others are as they are given
  uint16_t box[5];
  uint8_t rank, item_bytes, swizzle, fill_nan;
  uint8_t number;  // baracuda_host::Number, or 255 for numbers that nothing is added to
};
constexpr uint64_t tensor_map_mark = 0x70616d5f61727562;
static_assert(sizeof(TensorMap) <= 128, "a CUtensorMap has 128 bytes");

}  // namespace baracuda_host
