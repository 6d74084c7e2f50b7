// What runs beside the threads of a block: the barriers in shared memory, the copy engine and the matrix units.
#pragma once
#include "../include/baracuda_host/interface_sm90.h"
#include "state.h"

namespace baracuda_host {

Mbarrier& mbarrier_at(uint32_t address, const char* instruction, Site site);
void mbarrier_receive(uint32_t address, uint32_t bytes, Site site);
std::string lacking(const Mbarrier& barrier);

static std::string shared_name(uint32_t address);

}  // namespace baracuda_host
