// The entry points that Python calls.
#include <algorithm>
#include <link.h>
#include <mutex>
#include <stdlib.h>
#include <string.h>

#include "../check/checker.h"
#include "state.h"

namespace baracuda_host {

// The extent of the calling thread's static shared memory is the thread-local segment that holds the anchor.
static int find_library(dl_phdr_info* info, size_t, void* argument) {
  Kernel& kernel = *static_cast<Kernel*>(argument);
  const char* segment = static_cast<char*>(info->dlpi_tls_data);
  const char* anchor = kernel.shared_anchor();
  const auto* headers = info->dlpi_phdr;
  const auto* tls = std::find_if(headers, headers + info->dlpi_phnum, [](auto& h) { return h.p_type == PT_TLS; });
  if (!segment || tls == headers + info->dlpi_phnum || anchor < segment || anchor >= segment + tls->p_memsz) return 0;
  kernel.static_shared = tls->p_memsz;
  kernel.anchor_offset = static_cast<size_t>(anchor - segment);
  kernel.library = info->dlpi_name;
  kernel.image = reinterpret_cast<const char*>(info->dlpi_addr);
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (headers[i].p_type == PT_LOAD)
      kernel.image_end = std::max(kernel.image_end, kernel.image + headers[i].p_vaddr + headers[i].p_memsz);
  return 1;
}

}  // namespace baracuda_host

#define BARACUDA_HOST_API extern "C" __attribute__((visibility("default")))

// Completes the description of a freshly loaded kernel.
BARACUDA_HOST_API void baracuda_host_bind(baracuda_host::Kernel* kernel) {
  kernel->shared_anchor();  // allocates the calling thread's segment
  dl_iterate_phdr(baracuda_host::find_library, kernel);
}

// The memory that checked launches may touch, to be released with baracuda_host_unwatch; null for lack of memory.
BARACUDA_HOST_API void* baracuda_host_watch(const baracuda_host::BufferArgument* buffers, size_t count) {
  auto* memory = new baracuda_host::WatchedMemory(buffers, count);
  if (memory->complete()) return memory;
  delete memory;
  return nullptr;
}
BARACUDA_HOST_API void baracuda_host_unwatch(baracuda_host::WatchedMemory* memory) { delete memory; }

// Null, or findings to be released with baracuda_host_free, one per line.
BARACUDA_HOST_API char* baracuda_host_unwritten(const baracuda_host::WatchedMemory* memory) {
  const std::string findings = memory->describe_unwritten();
  return findings.empty() ? nullptr : strdup(findings.c_str());
}

// Null, or findings as above. `memory` is null unless the launch is to be checked.
BARACUDA_HOST_API char* baracuda_host_launch(const baracuda_host::Kernel* kernel, const void* arguments, unsigned x,
                                             unsigned y, unsigned z, unsigned block_threads, unsigned order,
                                             unsigned seed, unsigned asynchrony, unsigned alive, int overlaps,
                                             int workers, double timeout, baracuda_host::WatchedMemory* memory) {
  using namespace baracuda_host;
  const Launch launch{kernel,
                      arguments,
                      dim3(x, y, z),
                      block_threads,
                      static_cast<Order>(order),
                      seed,
                      static_cast<Asynchrony>(asynchrony),
                      std::max(alive, 1u),
                      overlaps != 0,
                      memory};
  const double century = 3e9;  // infinity has no place in a timer
  const std::string findings = run_launch(launch, workers, std::min(timeout, century));
  return findings.empty() ? nullptr : strdup(findings.c_str());
}
BARACUDA_HOST_API void baracuda_host_free(char* findings) { free(findings); }
