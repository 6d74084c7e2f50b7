// Buffers as regions of cells.
#include "watched_memory.h"

#include <algorithm>
#include <numeric>
#include <sys/mman.h>

namespace baracuda_host {

struct Span {
  const char *low, *high;
  size_t elements;
};

static Span span_of(const Buffer& b) {
  int64_t low = 0, high = 0;
  size_t elements = 1;
  for (size_t axis = 0; axis < b.shape.size(); axis++) {
    elements *= static_cast<size_t>(b.shape[axis]);
    const int64_t reach = (b.shape[axis] - 1) * b.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const auto item = static_cast<int64_t>(b.item_bytes);
  if (!elements) return {b.first, b.first, 0};
  return {b.first + low * item, b.first + (high + 1) * item, elements};
}

// Calls visit(address) for each element; stops when it returns false.
template <class Visit>
static void each_element(const Buffer& b, Visit visit) {
  if (!span_of(b).elements) return;
  std::vector<int64_t> index(b.shape.size());
  int64_t offset = 0;
  for (;;) {
    visit(b.first + offset * static_cast<int64_t>(b.item_bytes));
    size_t axis = b.shape.size();
    for (; axis > 0; axis--) {
      const size_t a = axis - 1;
      offset += b.strides[a];
      if (++index[a] < b.shape[a]) break;
      offset -= b.shape[a] * b.strides[a];
      index[a] = 0;
    }
    if (!axis) return;
  }
}

bool reserve_cells(Region& region) {
  const size_t bytes = (region.bytes / region.granule + 1) * sizeof(Cell);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  region.cells = memory == MAP_FAILED ? nullptr : static_cast<Cell*>(memory);
  return region.cells;
}

void release_cells(Region& region) {
  if (region.cells) munmap(region.cells, (region.bytes / region.granule + 1) * sizeof(Cell));
  region.cells = nullptr;
}

Region* find_region(std::vector<Region>& sorted, const char* address) {
  const auto beyond =
      std::upper_bound(sorted.begin(), sorted.end(), address, [](const char* a, const Region& r) { return a < r.low; });
  if (beyond == sorted.begin()) return nullptr;
  Region& region = *(beyond - 1);
  return address < region.high() ? &region : nullptr;
}

// Arrays whose ranges overlap share a region: one array in two roles, or arrays interleaved with each other. An
// element that is read and written belongs to the array that is written.
WatchedMemory::WatchedMemory(const BufferArgument* buffers, size_t count) : buffers_(buffers, buffers + count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return span_of(buffers_[a]).low < span_of(buffers_[b]).low; });
  std::vector<std::vector<size_t>> members;
  for (const size_t i : order) {
    const Span span = span_of(buffers_[i]);
    if (!span.elements) continue;
    const auto granule = static_cast<uint32_t>(buffers_[i].item_bytes);
    const bool whole = span.elements * granule == static_cast<size_t>(span.high - span.low);
    if (regions.empty() || span.low >= regions.back().high()) {
      regions.push_back({"", span.low, static_cast<size_t>(span.high - span.low), granule,
                         whole ? static_cast<int32_t>(i) : -1, false, nullptr});
      members.push_back({i});
      continue;
    }
    Region& region = regions.back();
    region.bytes = std::max<size_t>(region.bytes, static_cast<size_t>(span.high - region.low));
    region.granule = std::gcd(std::gcd(region.granule, granule), static_cast<uint32_t>(span.low - region.low));
    region.sole = -1;
    members.back().push_back(i);
  }
  for (size_t r = 0; r < regions.size(); r++) {
    Region& region = regions[r];
    if (!reserve_cells(region) || region.sole >= 0) continue;
    std::stable_sort(members[r].begin(), members[r].end(),
                     [&](size_t a, size_t b) { return buffers_[a].readonly > buffers_[b].readonly; });
    for (const size_t i : members[r]) {
      const Buffer& b = buffers_[i];
      each_element(b, [&](const char* element) {
        Cell* cell = region.cells + static_cast<size_t>(element - region.low) / region.granule;
        for (size_t c = 0; c < b.item_bytes / region.granule; c++) {
          cell[c].owner = static_cast<uint8_t>(i + 1);
          cell[c].filled |= b.filled;
        }
      });
    }
  }
}

bool WatchedMemory::complete() const {
  return std::all_of(regions.begin(), regions.end(), [](const Region& region) { return region.cells; });
}

WatchedMemory::~WatchedMemory() {
  for (Region& region : regions) release_cells(region);
}

std::string WatchedMemory::describe_unwritten() const {
  std::string text;
  for (const Buffer& b : buffers_) {
    if (!b.complete) continue;
    size_t missing = 0, index = 0, first = 0;
    each_element(b, [&](const char* element) {
      const Region& region = *find_region(const_cast<WatchedMemory*>(this)->regions, element);
      if (!region.cells[static_cast<size_t>(element - region.low) / region.granule].written && !missing++)
        first = index;
      index++;
    });
    if (missing)
      text += (text.empty() ? "" : "\n") + std::to_string(missing) + " of " + std::to_string(index) + " elements of '" +
              b.name + "' never written, the first is element " + std::to_string(first);
  }
  return text;
}

std::string relative_to(const char* address, const char* low, size_t bytes, const std::string& name) {
  const char* high = low + bytes;
  const std::string what = "'" + name + "' of " + std::to_string(bytes) + " bytes";
  if (address < low) return std::to_string(low - address) + " bytes before " + what;
  if (address >= high) return std::to_string(address - high) + " bytes past the end of " + what;
  return "byte " + std::to_string(address - low) + " of " + what;
}

std::string WatchedMemory::describe_nearest(const char* address) const {
  const Buffer* nearest = nullptr;
  size_t least = size_t{1} << 20;
  for (const Buffer& b : buffers_) {
    const Span span = span_of(b);
    const size_t distance = static_cast<size_t>(address < span.low     ? span.low - address
                                                : address >= span.high ? address - span.high + 1
                                                                       : 0);
    if (span.elements && distance < least) nearest = &b, least = distance;
  }
  if (!nearest) return "";
  const Span span = span_of(*nearest);
  return relative_to(address, span.low, static_cast<size_t>(span.high - span.low), nearest->name);
}

}  // namespace baracuda_host
