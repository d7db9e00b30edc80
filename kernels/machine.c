// Runs a program: every thread walks the same list of operations and takes their tiles one by one until none is left.
//
// - A tile's result depends on nothing but its inputs, so results are the same for any number of threads.
// - Before an operation marked SYNC a thread waits until all tiles before it are done. Nobody waits for a thread that has
//   nothing in hand: one that the system has put aside costs nothing but its help, and catches up when it comes back.
//   (With barriers that all threads must reach, two threads beside another busy process were slower than one.)
// - Waiting spins for some tens of microseconds, then sleeps, so that a thread that was put aside in the middle of a tile
//   finds a free core.
// - Claims and the count of finished tiles carry the run's number: a thread that comes back when its run is over can
//   neither take a tile of the next one nor mistake its progress.
// - All state is in the arena: several can be alive at once. Thread 0 is the caller of `run`; helpers call `helper` once
//   and return from it when they are dismissed.

#include "kernels.h"
#include "platform.h"

typedef uint64_t u64;

static u64 of_run(u32 job, u32 n) { return (u64)job << 32 | n; }
static u32 run_of(u64 v) { return (u32)(v >> 32); }

// ---- waiting ----

static void wait_for_job(Control *c, i32 seen) {
  for (i32 n = READ(&c->spin); n > 0; n--) {
    if (READ(&c->job) != seen) return;
    pause_briefly();
  }
  ADD(&c->job_sleepers, 1);
  while (READ(&c->job) == seen) sleep_while_equal(&c->job, seen);
  ADD(&c->job_sleepers, -1);
}

static void announce(Control *c, i32 job) {
  WRITE(&c->job, job);
  if (READ(&c->job_sleepers)) wake_all(&c->job);
}

static u64 *finished(Control *c) { return (u64 *)&c->finished; }

// Returns 1 when so many tiles of the run are done (or more: others may be ahead), 0 when the run is over.
static i32 wait_for_tiles(Control *c, u32 job, u32 tiles) {
  i32 spin = READ(&c->spin), asleep = 0, result;
  for (;; spin--) {
    u64 now = READ(finished(c));
    result = run_of(now) == job;
    if (!result || (u32)now >= tiles) break;
    if (spin > 0) {
      pause_briefly();
    } else if (!asleep) {
      ADD(&c->finished_sleepers, 1);
      asleep = 1;
    } else {
      sleep_while_equal(&c->finished, (i32)(u32)now);
    }
  }
  if (asleep) ADD(&c->finished_sleepers, -1);
  return result;
}

static void report(Control *c, u32 tiles) {
  ADD(finished(c), tiles);
  if (READ(&c->finished_sleepers)) wake_all(&c->finished);
}

// ---- tiles ----

enum { NONE_LEFT = -1, RUN_IS_OVER = -2 };

static i32 claim(u64 *next, u32 job, i32 tiles) {
  u64 seen = READ(next);
  for (;;) {
    if (run_of(seen) != job) return RUN_IS_OVER;
    if ((i32)(u32)seen >= tiles) return NONE_LEFT;
    if (__atomic_compare_exchange_n(next, &seen, seen + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return (i32)(u32)seen;
  }
}

static i32 tiles_of(const Run *run, const i32 *op) {
  switch (op[0]) {
    case OP_LINEAR: return linear_tiles(run, (const LinearOp *)op);
    case OP_STORE: return run->n_tokens * ((const StoreOp *)op)->kv_heads;
    case OP_ATTEND: return attend_tiles(run, (const AttendOp *)op);
    case OP_MERGE: return merge_tiles(run, (const AttendOp *)op);
    default: return rows_of(run, op[1]);
  }
}

static void do_tile(void *arena, const Run *run, const i32 *op, i32 tile) {
  switch (op[0]) {
    case OP_EMBED: embed_row(arena, run, (const EmbedOp *)op, tile); break;
    case OP_NORM: norm_row(arena, run, (const NormOp *)op, tile); break;
    case OP_QUANTIZE: quantize_row(arena, run, (const QuantizeOp *)op, tile); break;
    case OP_SILU_MUL: silu_mul_row(arena, run, (const SiluMulOp *)op, tile); break;
    case OP_ADD: add_row(arena, run, (const AddOp *)op, tile); break;
    case OP_LINEAR: linear_tile(arena, run, (const LinearOp *)op, tile); break;
    case OP_ROPE: rope_row(arena, run, (const RopeOp *)op, tile); break;
    case OP_STORE: store_tile(arena, run, (const StoreOp *)op, tile); break;
    case OP_ATTEND: attend_tile(arena, run, (const AttendOp *)op, tile); break;
    case OP_MERGE: merge_tile(arena, run, (const AttendOp *)op, tile); break;
    default: break;
  }
}

// Takes back all tiles that nobody has claimed, and waits for those that somebody has.
static void stop_run(Control *c, u32 job, const Run *run) {
  const i32 *op = at(c, c->program);
  u64 *claims = at(c, c->claims);
  u32 claimed = 0;
  for (i32 n = 0; n < c->n_operations; n++, op += OPERATION_WORDS) {
    u32 taken = (u32)__atomic_exchange_n(&claims[n], 0, __ATOMIC_SEQ_CST), tiles = (u32)tiles_of(run, op);
    claimed += taken < tiles ? taken : tiles;
  }
  wait_for_tiles(c, job, claimed);
}

// One thread's way through the program. The leader, thread 0, alone looks at the stop word.
static i32 work(Control *c, u32 job, i32 is_leader) {
  const i32 *op = at(c, c->program);
  u64 *claims = at(c, c->claims);
  // Claims are renewed before these words: if they are still of this run afterwards, so are the words.
  Run run = {READ(&c->n_tokens), READ(&c->position), READ(&c->n_output), (i32)(job & 255), c->ids};
  if (run_of(READ(&claims[0])) != job) return OUTCOME_DONE;
  u32 before = 0;
  for (i32 n = 0; n < c->n_operations; n++, op += OPERATION_WORDS) {
    if (op[1] & FLAG_SYNC) {
      if (is_leader && READ(&c->stop)) {
        stop_run(c, job, &run);
        return OUTCOME_STOPPED;
      }
      if (!wait_for_tiles(c, job, before)) return OUTCOME_DONE;
    }
    i32 tiles = tiles_of(&run, op), tile;
    u32 done = 0;
    for (; (tile = claim(&claims[n], job, tiles)) >= 0; done++) do_tile(c, &run, op, tile);
    if (done) report(c, done);
    if (tile == RUN_IS_OVER) return OUTCOME_DONE;
    before += (u32)tiles;
  }
  if (is_leader) wait_for_tiles(c, job, before);
  return OUTCOME_DONE;
}

static void start(Control *c, i32 threads, i32 n_tokens, i32 position, i32 n_output) {
  u32 job = ((((u32)READ(&c->job) >> 8) + 1) & 0x7fffff) << 8 | (u32)threads;
  u64 *claims = at(c, c->claims);
  for (i32 n = 0; n < c->n_operations; n++) WRITE(&claims[n], of_run(job, 0));
  WRITE(&c->n_tokens, n_tokens);
  WRITE(&c->position, position);
  WRITE(&c->n_output, n_output);
  WRITE(finished(c), of_run(job, 0));
  announce(c, (i32)job);
}

// Lets the helpers begin a run over one token, whose logits are wanted. The caller may do something else before it takes
// part in `finish`.
EXPORT(begin) void begin(Control *c, i32 threads, i32 token, i32 position) {
  c->ids[0] = token;
  start(c, threads, 1, position, 1);
}

// Takes part in what was begun until it is done; returns an OUTCOME.
EXPORT(finish) i32 finish(Control *c) { return work(c, (u32)READ(&c->job), 1); }

// A run of the program over `n_tokens` tokens, whose ids the caller has put into the control block, by `threads` threads.
EXPORT(run) i32 run(Control *c, i32 threads, i32 n_tokens, i32 position, i32 n_output) {
  start(c, threads, n_tokens, position, n_output);
  return finish(c);
}

// What thread `number` (1 …) does until it is dismissed.
EXPORT(helper) void helper(Control *c, i32 number) {
  i32 job = 0;
  for (;;) {
    wait_for_job(c, job);
    job = READ(&c->job);
    if (job < 0) return;
    if (number < (job & 255)) work(c, (u32)job, 0);
  }
}

// Lets helpers that wait return for good.
EXPORT(dismiss) void dismiss(Control *c) { announce(c, -1); }

// The version of the table this was built from, and whether 4-bit weights take activations in bytes.
EXPORT(abi_version) i32 abi_version(void) { return ABI_VERSION; }
EXPORT(takes_bytes) i32 takes_bytes(void) { return HAVE_DOT_BYTES; }
