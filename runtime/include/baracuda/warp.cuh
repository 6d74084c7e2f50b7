// The threads of a warp.
#pragma once

namespace baracuda {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

}  // namespace baracuda
