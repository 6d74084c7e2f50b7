// setmaxnreg: a block has as many registers as its launch gave to all of its threads; warps pass them on.
#include "async_proxy.h"

namespace baracuda_host {

static constexpr uint32_t most_registers = 65536, most_of_thread = 255;

// What the assembler gives to a thread: as many as `__launch_bounds__` leaves, in steps of 8.
static uint32_t registers_at_launch(const Worker& w) {
  const uint32_t blocks = w.launch->kernel->blocks_per_multiprocessor;
  return std::min(most_registers / (w.warp_count * 32 * blocks), most_of_thread + 1) / 8 * 8;
}

void reset_registers(Worker& w) {
  w.registers.assign(w.warp_count, 0);  // 0: as launched
  w.free_registers = 0;
}

struct RegisterRequest {
  uint32_t count;
  bool more;
};

static void change_registers(void** arguments, uint32_t) {
  Worker& w = *worker;
  const auto& request = *static_cast<const RegisterRequest*>(arguments[0]);
  const Site site = running().site;
  const char* name = request.more ? "setmaxnreg.inc" : "setmaxnreg.dec";
  if (request.count % 8 || request.count < 24 || request.count > 256)
    fail(
        std::string(name) + " to " + std::to_string(request.count) + " registers; needs a multiple of 8 from 24 to 256",
        site);
  uint32_t& has = w.registers[running().linear / 32];
  if (!has) has = registers_at_launch(w);
  if (request.more ? request.count < has : request.count > has)
    fail(std::string(name) + " to " + std::to_string(request.count) + " registers of a thread that has " +
             std::to_string(has),
         site);
  if (request.more) return;
  w.free_registers += (has - request.count) * 32;
  has = request.count;
  for (uint32_t i = 0; i < w.thread_count; i++)
    if (w.threads[i].state == State::AtRegisters) make_ready(w, i);
}

void set_registers(uint32_t count, bool more, Site site) {
  static const Operation inc{"setmaxnreg.inc", change_registers, true}, dec{"setmaxnreg.dec", change_registers, true};
  Worker& w = *worker;
  Thread& t = running();
  RegisterRequest request{count, more};
  collective(more ? inc : dec, ~0u, &request, site);
  if (!more) return;
  uint32_t& has = w.registers[t.linear / 32];
  while (has != count && (count - has) * 32 > w.free_registers) {
    t.what = "setmaxnreg.inc";
    t.site = site;
    t.state = State::AtRegisters;
    park(w, t);
  }
  if (has == count) return;  // another lane has taken them for the warp
  w.free_registers -= (count - has) * 32;
  has = count;
}

// "for 232 registers a thread: 5120 are free, the warp needs 2048 more"
std::string registers_lacking(const Worker& w, const Thread& t) {
  return "where " + std::to_string(w.free_registers) +
         " registers of the block are free and a thread of the warp has " + std::to_string(w.registers[t.linear / 32]);
}

}  // namespace baracuda_host
