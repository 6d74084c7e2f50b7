#include "tensor_map.h"

#include <string.h>

#include "../../include/baracuda_host/interface_sm90.h"

namespace baracuda_host {

enum { success = 0, invalid_value = 1, not_supported = 801 };  // CUresult

// Bytes of the elements of a CUtensorMapDataType, 0 for an unknown one.
static uint32_t item_bytes_of(int type) {
  static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return type >= 0 && type < 13 ? bytes[type] : 0;
}
// The numbers that its elements are.
static uint8_t number_of(int type) {
  constexpr auto none = static_cast<Number>(255);
  static const Number of[] = {none,        none,        Number::U32, Number::S32, Number::U64,
                              Number::S64, Number::F16, Number::F32, Number::F64, Number::BF16,
                              Number::F32, none,        none};
  return static_cast<uint8_t>(of[type]);
}
static bool is_floating(int type) { return type >= 6; }

}  // namespace baracuda_host

// As cuTensorMapEncodeTiled of the CUDA driver; element strides other than 1 and interleaved layouts are not modelled.
extern "C" __attribute__((visibility("default"))) int baracuda_host_tensor_map(
    void* to, int type, uint32_t rank, void* first, const uint64_t* extents, const uint64_t* strides,
    const uint32_t* box, const uint32_t* element_strides, int interleave, int swizzle, int promotion, int fill) {
  using namespace baracuda_host;
  const uint32_t item_bytes = item_bytes_of(type);
  if (!item_bytes || rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(to) % 64) return invalid_value;
  if (!first || reinterpret_cast<uintptr_t>(first) % 16) return invalid_value;
  if (swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill < 0 || fill > 1) return invalid_value;
  if (fill && !is_floating(type)) return invalid_value;
  if (interleave) return not_supported;
  TensorMap map{};
  for (uint32_t axis = 0; axis < rank; axis++) {
    if (!extents[axis] || extents[axis] > uint64_t{1} << 32 || !box[axis] || box[axis] > 256) return invalid_value;
    if (!element_strides[axis] || element_strides[axis] > 8) return invalid_value;
    if (element_strides[axis] != 1 || extents[axis] >> 32) return not_supported;
    if (axis && (strides[axis - 1] % 16 || strides[axis - 1] >> 40)) return invalid_value;
    map.extents[axis] = static_cast<uint32_t>(extents[axis]);
    map.box[axis] = static_cast<uint16_t>(box[axis]);
    if (axis) map.strides[axis - 1] = strides[axis - 1];
  }
  const uint32_t row = box[0] * item_bytes;
  if (row % 16 || (swizzle && row > 16u << swizzle)) return invalid_value;
  map.mark = tensor_map_mark;
  map.first = static_cast<char*>(first);
  map.rank = static_cast<uint8_t>(rank);
  map.item_bytes = static_cast<uint8_t>(item_bytes);
  map.swizzle = static_cast<uint8_t>(swizzle);
  map.fill_nan = static_cast<uint8_t>(fill);
  map.number = number_of(type);
  memset(to, 0, 128);
  memcpy(to, &map, sizeof map);
  return success;
}
