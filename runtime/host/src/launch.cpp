// The entry points that Python calls.
#include <algorithm>
#include <link.h>
#include <mutex>
#include <stdlib.h>
#include <string.h>

#include "state.h"

namespace baracuda_host {

// The extent of the calling thread's static shared memory is the thread-local segment that holds the anchor.
static int find_static_shared(dl_phdr_info* info, size_t, void* argument) {
  Kernel& kernel = *static_cast<Kernel*>(argument);
  const char* segment = static_cast<char*>(info->dlpi_tls_data);
  const char* anchor = kernel.shared_anchor();
  for (int i = 0; segment && i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS || anchor < segment || anchor >= segment + header.p_memsz) continue;
    kernel.static_shared = header.p_memsz;
    kernel.anchor_offset = static_cast<size_t>(anchor - segment);
    return 1;
  }
  return 0;
}

}  // namespace baracuda_host

#define BARACUDA_HOST_API extern "C" __attribute__((visibility("default")))

// Completes the description of a freshly loaded kernel.
BARACUDA_HOST_API void baracuda_host_bind(baracuda_host::Kernel* kernel) {
  kernel->shared_anchor();  // allocates the calling thread's segment
  dl_iterate_phdr(baracuda_host::find_static_shared, kernel);
}

// Null, or findings to be released with baracuda_host_free, one per line.
BARACUDA_HOST_API char* baracuda_host_launch(const baracuda_host::Kernel* kernel, const void* arguments,
                                             unsigned x, unsigned y, unsigned z, unsigned block_threads,
                                             unsigned order, unsigned seed, int workers, double timeout) {
  using namespace baracuda_host;
  const Launch launch{kernel, arguments, dim3(x, y, z), block_threads, static_cast<Order>(order), seed};
  const double century = 3e9;  // infinity has no place in a timer
  const std::string findings = run_launch(launch, workers, std::min(timeout, century));
  return findings.empty() ? nullptr : strdup(findings.c_str());
}
BARACUDA_HOST_API void baracuda_host_free(char* findings) { free(findings); }
