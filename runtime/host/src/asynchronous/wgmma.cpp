// wgmma: products that run beside the four warps of a warpgroup, each of which has 16 of the 64 rows.
#include <string.h>

#include "../../include/baracuda_host/elements.h"
#include "async_proxy.h"
#include "copy_engine.h"
#include "../check/checker.h"

namespace baracuda_host {

static constexpr int rows = 16, most_columns = 256, most_depth = 32;

// Sums that products in flight add to. Their registers read as NaN until a wait covers the last of them.
struct Accumulator {
  void* registers[32];
  int columns = 0;
  bool integers = false;
  uint32_t in_flight = 0;
  union {
    float sum[rows][most_columns];
    int32_t integer_sum[rows][most_columns];
  };
};

struct Product {
  MatrixProduct64 of;
  const uint32_t* a_registers[32];
  Accumulator* accumulator;
  uint32_t group;
  bool done;
  Site site;
  std::vector<char> operands;  // in check mode, as they were when it was issued
};

struct WarpProducts {
  std::vector<Product> queue;  // in order
  std::vector<std::unique_ptr<Accumulator>> accumulators;
  std::vector<std::unique_ptr<Accumulator>> spare;
  uint32_t group = 0;
  bool fenced = false;  // since the last wait that ended a product
};

static WarpProducts& products_of(uint32_t warp) {
  Worker& w = *worker;
  if (w.products.size() <= warp) w.products.resize(warp + 1);
  if (!w.products[warp]) w.products[warp] = new WarpProducts;
  return *w.products[warp];
}

static uint32_t warp_of_running() { return running().linear / 32; }

// Register i of lane l holds row l / 4 + 8 (i / 2 % 2) and column 8 (i / 4) + 2 (l % 4) + i % 2.
template <class Visit>
static void each_register(int columns, Visit visit) {
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < columns / 2; i++) visit(lane, i, lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
}

static void require_fenced_registers(const Thread& t, const void* registers, size_t bytes, const char* name, Site site);

static Accumulator& take_accumulator(WarpProducts& products, void** arguments, Site site) {
  const auto& first = *static_cast<const MatrixProduct64*>(arguments[0]);
  const auto* low = static_cast<const char*>(first.sum);
  for (const auto& entry : products.accumulators) {
    const auto* other = static_cast<const char*>(entry->registers[0]);
    if (low == other && entry->columns == first.columns) return *entry;
    if (low < other + 2 * entry->columns && other < low + 2 * first.columns)
      fail("wgmma.mma_async adds to registers that a product of another shape in flight adds to", site);
  }
  if (!products.fenced) fail("wgmma.mma_async without a wgmma.fence since its sums were last accessible", site);
  if (products.spare.empty()) products.spare.push_back(std::make_unique<Accumulator>());
  products.accumulators.push_back(std::move(products.spare.back()));
  products.spare.pop_back();
  Accumulator& made = *products.accumulators.back();
  made.columns = first.columns;
  made.integers = first.of_a == Factor::S8 || first.of_a == Factor::U8;
  made.in_flight = 0;
  const Thread* lanes = &worker->threads[warp_of_running() * 32];
  for (int lane = 0; lane < 32; lane++) {
    made.registers[lane] = static_cast<const MatrixProduct64*>(arguments[lane])->sum;
    if (checker)
      require_fenced_registers(lanes[lane], made.registers[lane], 2 * static_cast<size_t>(made.columns), "sums", site);
  }
  each_register(made.columns, [&](int lane, int i, int row, int column) {
    memcpy(&made.sum[row][column], static_cast<char*>(made.registers[lane]) + 4 * i, 4);
  });
  for (void* registers : made.registers) memset(registers, 0xff, 2 * static_cast<size_t>(made.columns));
  return made;
}

static void give_back(WarpProducts& products, Accumulator& accumulator) {
  each_register(accumulator.columns, [&](int lane, int i, int row, int column) {
    memcpy(static_cast<char*>(accumulator.registers[lane]) + 4 * i, &accumulator.sum[row][column], 4);
  });
  for (auto& entry : products.accumulators) {
    if (entry.get() != &accumulator) continue;
    products.spare.push_back(std::move(entry));
    entry = std::move(products.accumulators.back());
    products.accumulators.pop_back();
    return;
  }
}

// A matrix descriptor. A matrix is `lines` of `depth` elements that are multiplied; `along` says that neighbours in
// memory are of one column of the product rather than of one line.
struct Descriptor {
  uint32_t start, leading, stride, base, swizzle_bytes;
  explicit Descriptor(uint64_t bits)
      : start((bits & 0x3fff) << 4),
        leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4),
        base(bits >> 49 & 7),
        swizzle_bytes(bits >> 62 == 0 ? 16 : 256u >> (bits >> 62)) {}

  uint32_t swizzled(uint32_t address) const {
    const uint32_t phase = (address >> 7) - base;
    return address ^ (phase & (swizzle_bytes / 16 - 1)) << 4;
  }
  // The address of 16 bytes: of line `line`, the `chunk`th; `along` the other way.
  uint32_t chunk(uint32_t line, uint32_t chunk, bool along) const {
    if (!along) {
      const uint32_t group = start + line / 8 * stride;
      return swizzle_bytes == 16 ? group + line % 8 * 16 + chunk * leading
                                 : swizzled(group + line % 8 * swizzle_bytes + chunk * 16);
    }
    // `line` counts eights of lines, `chunk` what is multiplied.
    const uint32_t eights = swizzle_bytes / 16;
    if (swizzle_bytes == 16) return start + line * stride + chunk / 8 * leading + chunk % 8 * 16;
    return swizzled(start + line / eights * leading + line % eights * 16 + chunk / 8 * stride +
                    chunk % 8 * swizzle_bytes);
  }
};

// The start of the swizzle's pattern, and in check mode the swizzle with which the copy engine has stored it.
static void require_laid_out(const Descriptor& matrix, const char* name, Site site) {
  const uint32_t stored = checker ? swizzle_of_box(matrix.start) : 0;
  if (stored && stored != matrix.swizzle_bytes &&
      checker->by_engine(static_cast<const char*>(shared_pointer(matrix.start, 16, "wgmma.mma_async of", site))))
    fail("wgmma.mma_async with " + std::string(name) + " at " + shared_name(matrix.start) + " and a swizzle of " +
             std::to_string(matrix.swizzle_bytes) + " bytes, which cp.async.bulk.tensor stored with one of " +
             std::to_string(stored),
         site);
  if (matrix.swizzle_bytes == 16) return;
  const uint32_t pattern = 8 * matrix.swizzle_bytes, beyond = (matrix.start - matrix.base * 128) % pattern;
  if (beyond < matrix.swizzle_bytes) return;
  fail("wgmma.mma_async with " + std::string(name) + " at " + shared_name(matrix.start) + ", " +
           std::to_string(beyond) + " bytes beyond a multiple of " + std::to_string(pattern) + ", as its swizzle of " +
           std::to_string(matrix.swizzle_bytes) + " bytes needs",
       site);
}

// Lines [first, first + count) of a matrix in shared memory; visits (line, chunk, 16 bytes), `along` (eight lines, what
// is multiplied, 16 bytes).
template <class Visit>
static void each_chunk_of(const Descriptor& matrix, int first, int count, int depth_bytes, int depth, bool along,
                          Site site, Visit visit) {
  const auto at = [&](int line, int chunk) {
    const uint32_t address = matrix.chunk(static_cast<uint32_t>(line), static_cast<uint32_t>(chunk), along);
    visit(line - (along ? first / 8 : first), chunk,
          static_cast<const char*>(shared_pointer(address, 16, "wgmma.mma_async of", site)));
  };
  if (along)
    for (int line = first / 8; line < (first + count) / 8; line++)
      for (int k = 0; k < depth; k++) at(line, k);
  else
    for (int line = first; line < first + count; line++)
      for (int chunk = 0; chunk < depth_bytes / 16; chunk++) at(line, chunk);
}

static int least_exponent_of(Factor kind) {
  switch (kind) {
    case Factor::F16: return F16::least_exponent;
    case Factor::E4M3: return E4M3::least_exponent;
    case Factor::E5M2: return E5M2::least_exponent;
    default: return BF16::least_exponent;
  }
}
static int bytes_of(Factor kind) { return kind == Factor::TF32 ? 4 : kind <= Factor::BF16 ? 2 : 1; }

template <class Kind, class Number>
static void decode_run(const char* from, Number* to, int step) {
  constexpr int words = 4;
  typename Kind::Word word[words];
  memcpy(word, from, sizeof word);
  for (int w = 0; w < words; w++)
    for (int i = 0; i < Kind::per_word; i++) to[(w * Kind::per_word + i) * step] = Kind::decode(word[w], i);
}

// `by_line`: to[line][k], else to[k][line]; `pitch` is the distance of the first index.
template <class Kind, class Number>
static void decode(const Descriptor& matrix, int first, int count, int depth, bool along, bool by_line, int pitch,
                   Number* to, Site site) {
  constexpr int per_chunk = 4 * Kind::per_word;
  const int of_line = by_line ? pitch : 1, of_depth = by_line ? 1 : pitch;
  each_chunk_of(matrix, first, count, depth * (4 / Kind::per_word), depth, along, site,
                [&](int line, int chunk, const char* from) {
                  if (along) decode_run<Kind>(from, to + line * 8 * of_line + chunk * of_depth, of_line);
                  else decode_run<Kind>(from, to + line * of_line + chunk * per_chunk * of_depth, of_depth);
                });
}

template <class Number, class Body>
static void with_kind(Factor kind, Body body) {
  switch (kind) {
    case Factor::F16: return body(F16{});
    case Factor::BF16: return body(BF16{});
    case Factor::TF32: return body(TF32{});
    case Factor::E4M3: return body(E4M3{});
    case Factor::E5M2: return body(E5M2{});
    case Factor::S8: return body(S8{});
    case Factor::U8: return body(U8{});
  }
}

template <class Number>
static void multiply_warp(const Product& product, uint32_t warp, Number (*sum)[most_columns]) {
  const MatrixProduct64& of = product.of;
  const int depth = 32 / bytes_of(of.of_a);
  alignas(64) Number a[rows][most_depth], b[most_depth][most_columns];
  const auto decode_a = [&](auto kind) {
    using Kind = decltype(kind);
    if (of.a_registers) {
      // As A of mma.sync: a register holds neighbours of a row; then 8 rows further, then as deep again.
      constexpr int run = Kind::per_word;
      for (int lane = 0; lane < 32; lane++)
        for (int piece = 0; piece < 4; piece++)
          for (int i = 0; i < run; i++)
            a[lane / 4 + piece % 2 * 8][(piece / 2 * 4 + lane % 4) * run + i] =
                static_cast<Number>(Kind::decode(product.a_registers[lane][piece], i));
    } else {
      decode<Kind>(Descriptor(of.a), static_cast<int>(warp % 4) * rows, rows, depth, of.a_transposed, true, most_depth,
                   &a[0][0], product.site);
    }
  };
  const auto decode_b = [&](auto kind) {
    decode<decltype(kind)>(Descriptor(of.b), 0, of.columns, depth, of.b_transposed, false, most_columns, &b[0][0],
                           product.site);
  };
  with_kind<Number>(of.of_a, decode_a);
  with_kind<Number>(of.of_b, decode_b);
  if (of.a_negated != of.b_negated)
    for (auto& row : a)
      for (Number& value : row) value = -value;
  if (of.fresh)
    for (int row = 0; row < rows; row++) std::fill_n(sum[row], of.columns, Number(0));
  if constexpr (std::is_same_v<Number, float>) {
    const bool narrow = bytes_of(of.of_a) == 1;
    const Summation rule{narrow ? 13 : 25, narrow ? 14 : 24, least_exponent_of(of.of_a), least_exponent_of(of.of_b)};
    add_products(rule, &sum[0][0], most_columns, &a[0][0], most_depth, &b[0][0], most_columns, rows, of.columns, depth);
  } else {
    for (int row = 0; row < rows; row++)
      for (int k = 0; k < depth; k++)
        for (int column = 0; column < of.columns; column++) sum[row][column] += a[row][k] * b[k][column];
  }
}

static void run_product(Product& product, uint32_t warp) {
  if (product.done) return;
  product.done = true;
  if (product.accumulator->integers) multiply_warp<int32_t>(product, warp, product.accumulator->integer_sum);
  else multiply_warp<float>(product, warp, product.accumulator->sum);
}

// Check mode, when the product is issued and when it is waited for.
static void look_at(Product& product, uint32_t warp, Access kind) {
  std::vector<char> now;
  const MatrixProduct64& of = product.of;
  const auto looked_at = [&](uint64_t descriptor, int first, int count, bool along) {
    each_chunk_of(Descriptor(descriptor), first, count, 32, 32 / bytes_of(of.of_a), along, product.site,
                  [&](int, int, const char* from) {
                    checker->access(from, 16, kind);
                    now.insert(now.end(), from, from + 16);
                  });
  };
  if (!of.a_registers) looked_at(of.a, static_cast<int>(warp % 4) * rows, rows, of.a_transposed);
  looked_at(of.b, 0, of.columns, of.b_transposed);
  if (of.a_registers)
    for (const uint32_t* registers : product.a_registers)
      now.insert(now.end(), reinterpret_cast<const char*>(registers), reinterpret_cast<const char*>(registers + 4));
  if (product.operands.empty()) product.operands = std::move(now);
  else if (now != product.operands)
    checker->say("an operand of wgmma.mma_async in flight was overwritten, issued at " + place(product.site));
}

static bool overlap(const char* a, size_t a_bytes, const void* b, size_t b_bytes) {
  return a < static_cast<const char*>(b) + b_bytes && static_cast<const char*>(b) < a + a_bytes;
}

// A thread's words on its stack are its registers.
void look_at_registers(const char* address, size_t bytes, bool writes) {
  Thread& t = running();
  const Worker& w = *worker;
  const uint32_t warp = t.linear / 32, lane = t.linear % 32;
  if (writes) {
    if (t.written_words.empty()) t.written_words.resize(FiberStacks::bytes / 4);
    const auto first = static_cast<size_t>(address - t.fiber->low) / 4,
               end = (static_cast<size_t>(address - t.fiber->low) + bytes + 3) / 4;
    for (size_t word = first; word < end; word++) t.written_words[word] = true;
  }
  if (w.products.size() <= warp || !w.products[warp]) return;
  for (const auto& accumulator : w.products[warp]->accumulators)
    if (overlap(address, bytes, accumulator->registers[lane], 2 * static_cast<size_t>(accumulator->columns)))
      checker->say(std::string(writes ? "write" : "read") +
                   " of a sum that wgmma.mma_async in flight adds to; needs wgmma.wait_group");
}

static void require_fenced_registers(const Thread& t, const void* registers, size_t bytes, const char* name,
                                     Site site) {
  if (t.written_words.empty() || !t.fiber->holds(registers)) return;
  const auto first = static_cast<size_t>(static_cast<const char*>(registers) - t.fiber->low) / 4;
  for (size_t word = first; word < first + bytes / 4; word++)
    if (t.written_words[word])
      fail(std::string("wgmma.mma_async with ") + name + " that the thread has written since its last wgmma.fence",
           site);
}

static void require_whole_warp(uint32_t lanes) {
  if (~lanes) fail(std::string(running().what) + " by a part of a warp", running().site);
}

static void issue_product(void** arguments, uint32_t lanes) {
  require_whole_warp(lanes);
  const uint32_t warp = warp_of_running();
  WarpProducts& products = products_of(warp);
  const auto& first = *static_cast<const MatrixProduct64*>(arguments[0]);
  const Site site = running().site;
  for (int lane = 1; lane < 32; lane++) {
    const auto& other = *static_cast<const MatrixProduct64*>(arguments[lane]);
    if (other.b != first.b || other.a != first.a || other.fresh != first.fresh)
      fail("wgmma.mma_async with other operands in lane " + std::to_string(lane) + " than in lane 0", site);
  }
  if (!first.a_registers) require_laid_out(Descriptor(first.a), "A", site);
  require_laid_out(Descriptor(first.b), "B", site);
  Product product{first, {}, &take_accumulator(products, arguments, site), products.group, false, site, {}};
  for (int lane = 0; lane < 32; lane++)
    product.a_registers[lane] = static_cast<const MatrixProduct64*>(arguments[lane])->a_registers;
  product.accumulator->in_flight++;
  if (checker && first.a_registers)
    for (uint32_t lane = 0; lane < 32; lane++)
      require_fenced_registers(worker->threads[warp * 32 + lane], product.a_registers[lane], 16, "A in registers",
                               site);
  if (checker) look_at(product, warp, Access::Peek);
  products.queue.push_back(std::move(product));
  if (happens_now(*worker))
    for (Product& earlier : products.queue) run_product(earlier, warp);
}

static void fence_products(void**, uint32_t) {
  products_of(warp_of_running()).fenced = true;
  Thread* lanes = &worker->threads[warp_of_running() * 32];
  for (uint32_t lane = 0; lane < 32; lane++) lanes[lane].written_words.clear();
}
static void commit_products(void**, uint32_t) { products_of(warp_of_running()).group++; }

static void wait_for_products(void** arguments, uint32_t lanes) {
  require_whole_warp(lanes);
  const uint32_t warp = warp_of_running();
  WarpProducts& products = products_of(warp);
  const uint32_t pending = *static_cast<const uint32_t*>(arguments[0]);
  size_t covered = 0;
  for (; covered < products.queue.size(); covered++) {
    Product& product = products.queue[covered];
    if (products.group - product.group <= pending) break;
    run_product(product, warp);
    if (checker) look_at(product, warp, Access::Read);
    if (--product.accumulator->in_flight) continue;
    give_back(products, *product.accumulator);
    products.fenced = false;
  }
  if (checker && covered) checker->warp_knows(warp * 32);
  products.queue.erase(products.queue.begin(), products.queue.begin() + static_cast<ptrdiff_t>(covered));
}

static const Operation wgmma_operation{"wgmma.mma_async", issue_product, true},
    wgmma_fence_operation{"wgmma.fence", fence_products, true},
    wgmma_commit_operation{"wgmma.commit_group", commit_products, true},
    wgmma_wait_operation{"wgmma.wait_group", wait_for_products, true};

void wgmma(const MatrixProduct64& product, Site site) {
  collective(wgmma_operation, ~0u, const_cast<MatrixProduct64*>(&product), site);
}
void wgmma_fence(Site site) { collective(wgmma_fence_operation, ~0u, nullptr, site); }
void wgmma_commit(Site site) { collective(wgmma_commit_operation, ~0u, nullptr, site); }
void wgmma_wait(int groups_still_pending, Site site) {
  auto pending = static_cast<uint32_t>(groups_still_pending);
  if (worker->launch->asynchrony == Asynchrony::Late) yield();
  collective(wgmma_wait_operation, ~0u, &pending, site);
}

void require_products_awaited(uint32_t warp) {
  const Worker& w = *worker;
  if (w.products.size() <= warp || !w.products[warp] || w.products[warp]->queue.empty()) return;
  report(whoami() + ": the thread exits while wgmma.mma_async is in flight, issued at " +
         place(w.products[warp]->queue[0].site));
  abandon();
}

void forget_products(Worker& w) {
  for (WarpProducts* products : w.products) {
    if (!products) continue;
    products->queue.clear();
    for (auto& entry : products->accumulators) products->spare.push_back(std::move(entry));
    products->accumulators.clear();
    products->group = 0;
    products->fenced = false;
  }
}

}  // namespace baracuda_host
