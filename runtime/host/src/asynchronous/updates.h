// What a bulk copy does to the numbers at its destination in global memory.
#pragma once
#include <stdint.h>

#include "../../include/baracuda_host/interface_sm90.h"

namespace baracuda_host {

void update(Update how, Number of, char* to, const char* from, uint32_t bytes);

}  // namespace baracuda_host
