// The objects in a kernel library's static shared memory, by name.
#pragma once
#include <stddef.h>
#include <string>
#include <vector>

namespace baracuda_host {

struct SharedObject {
  std::string name;
  size_t offset, bytes;  // within the thread-local segment
};

// Read from the symbol table of the library's file; empty if it has none.
std::vector<SharedObject> shared_objects_of(const char* library);

}  // namespace baracuda_host
