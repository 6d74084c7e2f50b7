// What a schedule may expect of the L2 cache.
#pragma once

namespace baracuda {

// Bytes of tensors that stay in the cache while blocks take turns with them; results do not depend on it. On the host
// device they are few, so that small problems have more.
#ifdef BARACUDA_HOST
constexpr int L2_BYTES = 8 << 10;
#else
constexpr int L2_BYTES = 32 << 20;
#endif

}  // namespace baracuda
