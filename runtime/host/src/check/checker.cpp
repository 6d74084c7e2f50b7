// What check mode looks for, and how it says so.
#include "checker.h"

#include <string.h>

namespace baracuda_host {

Checker* checker = nullptr;

static const char* verb(Access kind) {
  static const char* const verbs[] = {"read",           "write",         "atomic read", "atomic write", "volatile read",
                                      "volatile write", "atomic update", "__ldg",       "read",         "read"};
  return verbs[static_cast<int>(kind)];
}
static bool is_atomic(Access kind) { return kind >= Access::AtomicRead && kind <= Access::Atomic; }
static bool writes(Access kind) {
  return kind == Access::Write || kind == Access::AtomicWrite || kind == Access::VolatileWrite ||
         kind == Access::Atomic;
}
static bool reads(Access kind) { return !writes(kind) || kind == Access::Atomic; }

Checker::Checker(WatchedMemory& memory, const Launch& launch)
    : memory_(memory),
      kernel_(*launch.kernel),
      objects_(kernel_.library ? shared_objects_of(kernel_.library) : std::vector<SharedObject>{}),
      overlaps_(launch.overlaps),
      first_block_(memory.blocks_so_far + 1),
      first_before_(memory.first_of_launch) {
  memory.first_of_launch = first_block_;
}

Checker::~Checker() {
  for (auto& cluster : clusters_)
    for (auto& regions : cluster->shared)
      for (Region& region : regions) release_cells(region);
}

void Checker::switch_to(const Worker& w) {
  now_ = clusters_[w.slot].get();
  look_at_rank(w.rank);
}

void Checker::begin_blocks(const Worker& lead, uint64_t number) {
  if (clusters_.size() <= lead.slot) clusters_.push_back(std::make_unique<Cluster>(words_));
  Cluster& cluster = *clusters_[lead.slot];
  cluster.number = first_block_ + static_cast<uint32_t>(number);
  memory_.blocks_so_far = std::max(memory_.blocks_so_far, cluster.number);
  cluster.clocks.reset(lead.thread_count, static_cast<uint32_t>(lead.blocks.size()));
  cluster.publications.begin_block(cluster.number);
  cluster.proxies.reset(lead.thread_count * static_cast<uint32_t>(lead.blocks.size()));
  cluster.grid_waits.clear();
  switch_to(*worker);
  if (!cluster.shared.empty()) return;
  const char* segment = kernel_.shared_anchor() - kernel_.anchor_offset;
  for (const Worker* w : lead.blocks) {
    std::vector<Region> regions;
    for (const SharedObject& object : objects_)
      regions.push_back({object.name, segment + object.offset, object.bytes, 1, -1, true, nullptr});
    if (kernel_.dynamic_shared)
      regions.push_back({"dynamic shared memory", reinterpret_cast<const char*>(w->view.dynamic_shared),
                         kernel_.dynamic_shared, 1, -1, true, nullptr});
    std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.low < b.low; });
    for (Region& region : regions)
      if (!reserve_cells(region)) report(block_name() + ": out of memory for check mode"), abandon();
    cluster.shared.push_back(std::move(regions));
  }
}

static uint32_t actor_in_cluster() { return in_cluster(*worker, running().linear); }

// The kernel library is compiled with frame pointers, as this library is.
Calls Checker::calls() const {
  const Fiber* fiber = running().fiber;
  const auto* frame = static_cast<const void* const*>(__builtin_frame_address(0));
  Calls calls;
  for (size_t found = 0; found < sizeof calls.pc / sizeof *calls.pc && fiber->holds(frame);
       frame = static_cast<const void* const*>(frame[0])) {
    const char* pc = static_cast<const char*>(frame[1]);
    if (pc >= kernel_.image && pc < kernel_.image_end) calls.pc[found++] = pc;
  }
  return calls;
}

std::string Checker::at(const Calls& calls) const {
  std::string text;
  for (const char* pc : calls.pc) {
    if (!pc) break;
    char address[32];
    snprintf(address, sizeof address, "pc 0x%zx", static_cast<size_t>(pc - kernel_.image));
    text += (text.empty() ? " at " : " <- ") + std::string(address);
  }
  return text;
}

void Checker::say(const std::string& what) {
  const std::string spot = at(calls());
  if (said_.insert(what.substr(0, what.find('\'')) + spot).second) report(whoami() + ": " + what + spot);
}

Region* Checker::find(const char* address) {
  if (last_ && address >= last_->low && address < last_->high()) return last_;
  Region* region = find_region(memory_.regions, address);
  if (!region) region = find_region(now_->shared[rank_], address);
  return region ? last_ = region : nullptr;
}

bool Checker::is_parameter(const char* address) const {
  const char* parameter = static_cast<const char*>(worker->launch->arguments);
  return address >= parameter && address < parameter + kernel_.argument_bytes;
}

// A thread's own local memory, the kernel's parameter and the library's constants are free to use.
bool Checker::is_local(const char* address, Access kind) {
  if (address >= kernel_.image && address < kernel_.image_end) return true;
  if (is_parameter(address)) return true;
  const Thread& self = running();
  for (uint32_t i = 0; i < worker->thread_count; i++) {
    const Fiber* fiber = worker->threads[i].fiber;
    if (&worker->threads[i] == &self || !fiber || !fiber->holds(address)) continue;
    say(std::string(verb(kind)) + " of local memory of thread " + std::to_string(i));
    return true;
  }
  return false;
}

std::string Checker::nearest(const char* address) const {
  for (const int beside : {0, 64})
    for (const Region& region : now_->shared[rank_])
      if (address >= region.low - beside && address < region.high() + beside)
        return relative_to(address, region.low, region.bytes, region.name);
  return memory_.describe_nearest(address);
}

void Checker::out_of_bounds(const char* address, size_t bytes, Access kind) {
  const std::string near = nearest(address);
  char text[64];
  snprintf(text, sizeof text, "at address %p", static_cast<const void*>(address));
  say(std::string(verb(kind)) + " of " + std::to_string(bytes) + " bytes out of bounds, " +
      (near.empty() ? text : near) + (find(address) ? ", between its elements" : ""));
  abandon();
}

std::string Checker::name_of(const Region& region, const Cell& cell, const char* at) const {
  if (region.shared) return "'" + region.name + "' byte " + std::to_string(at - region.low);
  const Buffer& buffer = memory_.buffer_of(region, cell);
  return "'" + buffer.name + "' byte " + std::to_string(at - buffer.first);
}

void Checker::race(const char* what, const Region& region, const Cell& cell, const char* at, uint32_t block,
                   uint32_t thread) {
  const uint32_t threads = worker->thread_count;
  const std::string in =
      worker->launch->cluster() == 1 ? "the block" : "block " + std::to_string(thread / threads) + " of the cluster";
  const std::string who =
      block == now_->number
          ? "thread " + std::to_string(thread % threads) + " of " + in + ", no barrier in between"
          : "block " + std::to_string(block - first_block_) + ", not ordered by a fence and an atomic";
  say("race (" + std::string(what) + ") on " + name_of(region, cell, at) + " with " + who);
}

bool Checker::ordered(bool shared, uint32_t block, uint32_t thread, uint32_t time, const Actor& actor) const {
  if (block == now_->number) return now_->clocks.knows(actor.thread, thread, time);
  return shared || block < first_block_ || now_->publications.knows(actor.thread, block, thread, time);
}

// Whether an access comes after the last write that it would conflict with.
bool Checker::after_write(const Region& region, const Cell& cell, const Actor& actor, Access kind) const {
  if (!cell.write_block || (region.shared && cell.write_block != now_->number)) return true;
  if (cell.atomic && is_atomic(kind)) return true;
  return ordered(region.shared, cell.write_block, cell.write_thread, cell.write_time, actor);
}

void Checker::enter_constant(const Region& region, Cell& cell, const char* at) {
  if (region.shared) return;
  cell.constant_in = first_block_;
  if (cell.write_block >= first_block_)
    say("__ldg of " + name_of(region, cell, at) + ", which the same kernel writes; needs an ordinary load");
}

// Whether a lane reads what another lane of its warp has stored as if they were in lockstep.
bool Checker::lockstep(const Region& region, const Cell& cell, const Actor& actor) const {
  return region.shared && cell.by_volatile && cell.write_block == now_->number &&
         cell.write_thread / 32 == actor.thread / 32 &&
         !now_->clocks.knows(actor.thread, cell.write_thread, cell.write_time);
}

void Checker::enter(Region& region, size_t index, bool whole, Access kind) {
  Cell& cell = region.cells[index];
  const char* at = region.low + index * region.granule;
  const uint32_t thread = actor_in_cluster();
  const Actor actor{thread, now_->clocks.now(thread)};
  const bool stale = region.shared && cell.write_block != now_->number;  // what another block left in shared memory
  if (!region.shared) {
    if (region.sole < 0 && !cell.owner) out_of_bounds(at, region.granule, kind);
    if (writes(kind) && memory_.buffer_of(region, cell).readonly)
      say("write to the input " + name_of(region, cell, at)), abandon();
  }
  if (kind == Access::Bounds) return;
  if (kind == Access::Constant) return enter_constant(region, cell, at);
  if (writes(kind) && cell.constant_in == first_block_)
    say(std::string(verb(kind)) + " to " + name_of(region, cell, at) +
        ", which the same kernel reads by __ldg; needs an ordinary load there");
  if (overlaps_ && !region.shared) {
    const auto of_grid_before = [&](uint32_t block) { return block && block >= first_before_ && block < first_block_; };
    const bool written = of_grid_before(cell.write_block);
    if ((written || (writes(kind) && of_grid_before(cell.read_block))) && !waited_for_grid(actor))
      say(std::string(verb(kind)) + " of " + name_of(region, cell, at) + ", which the kernel before " +
          (written ? "writes" : "reads") + ", without a griddepcontrol.wait before it");
  }
  if (cell.in_flight && cell.write_block == now_->number)
    say(std::string(verb(kind)) + " of " + name_of(region, cell, at) + " while a cp.async of thread " +
        std::to_string(cell.write_thread) + " may be writing there");
  else if (whole && kind == Access::VolatileRead && lockstep(region, cell, actor))
    race("volatile read after write in a warp", region, cell, at, cell.write_block, cell.write_thread);
  else if (whole && !after_write(region, cell, actor, kind))
    race(writes(kind) ? "write after write" : "read after write", region, cell, at, cell.write_block,
         cell.write_thread);
  else if (whole && cell.earlier_block && !region.shared && !is_atomic(kind) &&
           !ordered(false, cell.earlier_block, 0, 0, actor))
    race(writes(kind) ? "write after atomic" : "read after atomic", region, cell, at, cell.earlier_block, 0);
  if (kind == Access::Peek && region.shared && cell.write_block == now_->number && !cell.by_engine && !cell.in_flight &&
      !now_->proxies.sees(thread, cell.write_thread, cell.write_time))
    say("read of " + name_of(region, cell, at) + ", which thread " +
        std::to_string(cell.write_thread % worker->thread_count) +
        " stored, by the copy engine or a matrix unit; needs fence.proxy.async between store and barrier");
  const bool filled = region.shared
                          ? !stale && cell.written
                          : cell.written || cell.filled || (region.sole >= 0 && memory_.buffer_of(region, cell).filled);
  if (reads(kind) && !filled)
    say(std::string(verb(kind)) + " of " + name_of(region, cell, at) + ", which was never written");
  if (!writes(kind)) {
    if (is_atomic(kind) || kind == Access::Peek) return;
    if (cell.read_block != now_->number) {
      if (cell.read_block >= first_block_) cell.earlier_reader = cell.read_block;
      cell.read_block = now_->number;
      cell.read_thread[0] = cell.read_thread[1] = static_cast<uint16_t>(thread);
      cell.read_time[0] = cell.read_time[1] = actor.time;
      return;
    }
    const bool first = now_->clocks.knows(thread, cell.read_thread[0], cell.read_time[0]);
    cell.read_thread[!first] = static_cast<uint16_t>(thread);
    cell.read_time[!first] = actor.time;
    return;
  }
  if (whole && cell.read_block && !(region.shared && cell.read_block != now_->number))
    for (int i = 0; i < 2; i++)
      if (!ordered(region.shared, cell.read_block, cell.read_thread[i], cell.read_time[i], actor)) {
        race("write after read", region, cell, at, cell.read_block, cell.read_thread[i]);
        break;
      }
  if (whole && cell.earlier_reader && !region.shared && !ordered(false, cell.earlier_reader, 0, 0, actor))
    race("write after read", region, cell, at, cell.earlier_reader, 0);
  if (cell.write_block != now_->number)
    cell.earlier_block = cell.atomic && is_atomic(kind) && cell.write_block >= first_block_ ? cell.write_block : 0;
  cell.write_block = now_->number;
  cell.write_thread = static_cast<uint16_t>(thread);
  cell.write_time = actor.time;
  cell.atomic = is_atomic(kind);
  cell.by_volatile = kind == Access::VolatileWrite;
  cell.written = true;
  cell.in_flight = cell.by_engine = false;
  cell.read_block = cell.earlier_reader = 0;
}

void Checker::access(const char* address, size_t bytes, Access kind) {
  if (aborting) say("stopped by the launch timeout"), abandon();  // here, where no lock is held
  if (running().fiber->holds(address)) return look_at_registers(address, bytes, writes(kind));
  Region* region = find(address);
  if (!region) {
    if (is_local(address, kind)) return;
    out_of_bounds(address, bytes, kind);
  }
  if (address + bytes > region->high()) out_of_bounds(region->high(), bytes, kind);
  if (is_atomic(kind)) now_->publications.atomic(actor_in_cluster(), address, reads(kind), writes(kind));
  if (writes(kind)) running().stored = true;
  const size_t offset = static_cast<size_t>(address - region->low), granule = region->granule;
  const bool whole = bytes >= granule;  // of a part of an element it is not known which bytes others touched
  for (size_t cell = offset / granule; cell <= (offset + bytes - 1) / granule; cell++)
    enter(*region, cell, whole, kind);
}

// Of what lies in no region, the access that follows says more.
void Checker::need(Space space, const char* address, const char* instruction) {
  const char* const name[] = {"global memory", "shared memory"};
  const bool local = running().fiber->holds(address) || is_parameter(address);
  const Region* region = local ? nullptr : find(address);
  if (!local && (!region || region->shared == (space == Space::Shared))) return;
  say(std::string(instruction) + " " + (local ? "local memory" : nearest(address) + " in " + name[region->shared]) +
      ": needs " + name[static_cast<int>(space)]);
  abandon();
}

void Checker::fence(bool between_blocks) { now_->publications.fence(actor_in_cluster(), between_blocks); }

void Checker::wait_for_grid() {
  const uint32_t thread = actor_in_cluster();
  now_->grid_waits.emplace_back(thread, now_->clocks.pass(thread));
}

bool Checker::waited_for_grid(const Actor& actor) const {
  return std::any_of(now_->grid_waits.begin(), now_->grid_waits.end(),
                     [&](const auto& wait) { return now_->clocks.knows(actor.thread, wait.first, wait.second); });
}

void Checker::fence_proxy() { now_->proxies.fence(actor_in_cluster()); }

void Checker::lanes_meet(uint32_t first, uint32_t lanes) {
  Clocks::Clock meeting;
  first = in_cluster(*worker, first);
  for (uint32_t left = lanes; left; left &= left - 1) now_->clocks.tell(first + __builtin_ctz(left), meeting);
  for (uint32_t left = lanes; left; left &= left - 1) now_->clocks.learn(first + __builtin_ctz(left), meeting);
}

void Checker::bulk_copy_begins(uint32_t rank, char* shared, size_t bytes, Clocks::Clock& clock) {
  look_at_rank(rank);
  copy_begins(shared, bytes);
  if (Region* region = find(shared); region && region->shared)
    for (size_t i = 0; i < bytes; i++) region->cells[shared - region->low + i].by_engine = true;
  look_at_rank(worker->rank);
  now_->clocks.tell(actor_in_cluster(), clock);
}

void Checker::bulk_copy_ends(uint32_t rank, const char* shared, size_t bytes) {
  look_at_rank(rank);
  if (Region* region = find(shared); region && region->shared)
    for (size_t i = 0; i < bytes; i++) region->cells[shared - region->low + i].in_flight = false;
  look_at_rank(worker->rank);
}

bool Checker::by_engine(const char* shared) {
  const Region* region = find(shared);
  return region && region->shared && region->cells[shared - region->low].by_engine;
}

void Checker::warp_knows(uint32_t first) {
  const uint32_t reader = actor_in_cluster();
  first = in_cluster(*worker, first);
  const uint32_t time = now_->clocks.pass(reader);
  for (uint32_t lane = first; lane < first + 32; lane++) now_->clocks.learn(lane, reader, time);
}

void Checker::copy_begins(const char* shared, size_t bytes) {
  access(shared, bytes, Access::Write);
  if (Region* region = find(shared); region && region->shared)
    for (size_t i = 0; i < bytes; i++) region->cells[shared - region->low + i].in_flight = true;
}

void Checker::copy_ends(const char* shared, size_t bytes) {
  const uint32_t thread = actor_in_cluster();
  if (Region* region = find(shared); region && region->shared)
    for (size_t i = 0; i < bytes; i++) {
      Cell& cell = region->cells[shared - region->low + i];
      cell.in_flight = false;
      cell.write_time = now_->clocks.now(thread);
    }
}

}  // namespace baracuda_host
