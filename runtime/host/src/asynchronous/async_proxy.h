// What runs beside the threads of a block: the barriers in shared memory, the copy engine and the matrix units.
#pragma once
#include "../../include/baracuda_host/interface_sm90.h"
#include "../check/checker.h"
#include "../threads/state.h"

namespace baracuda_host {

Mbarrier& mbarrier_at(uint32_t address, const char* instruction, Site site);
void mbarrier_receive(uint32_t address, uint32_t bytes, Site site);
std::string lacking(const Mbarrier& barrier);
std::string ranges(const std::vector<uint32_t>& sorted);  // "0-3,8"

std::string shared_name(uint32_t address);
uint32_t offset_in_block(uint32_t address);
Worker& block_of(uint32_t address, const char* instruction, Site site);  // which of the cluster
uint32_t absolute_address(uint32_t address);                             // with a rank, in a cluster

struct PlaceInBlock {
  uint32_t rank;
  char* address;  // while that block runs
};
PlaceInBlock place_in_block(uint32_t address);

char* static_shared(const Kernel& kernel);  // of the running block
void switch_to_block(Worker& next);

}  // namespace baracuda_host
