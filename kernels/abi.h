// Generated from pyruntime/model/kernel_abi.py by `python -m tooling.kernels abi`; do not edit.
// Places are counted from the start of the arena, in units of UNIT bytes.
#pragma once

#include <stdint.h>

enum {
  ABI_VERSION = 4,
  UNIT = 64,
  OPERATION_WORDS = 16,
  NOTHING = -1,
  BLOCK = 32,
  PANEL_ROWS = 16,
  KEY_PANEL = 8,
  SPAN = 256,
  ROW_TILE = 4,
  MAX_HEAD = 256,
  MAX_TOKENS = 64,
  MAX_THREADS = 32,
  FLAG_SYNC = 1,  // all operations before it are finished first
  FLAG_OUTPUT_ROWS = 2,  // it runs over the rows whose logits are wanted, not over all
  FLAG_TAIL = 4,  // its source has all rows of the run; the last ones are read
};

// how weights lie in memory
enum { FORMAT_Q8, FORMAT_Q4, FORMAT_Q4_MIN, FORMAT_F32 };

// how a model file stores a tensor
enum { SOURCE_F32, SOURCE_F16, SOURCE_BF16, SOURCE_Q8_0, SOURCE_Q4_0, SOURCE_Q4_1, SOURCE_Q5_0, SOURCE_Q5_1, SOURCE_Q4_K, SOURCE_Q5_K, SOURCE_Q6_K };

// what repacking found
enum { VERDICT_FINE, VERDICT_NOT_FINITE, VERDICT_TOO_LARGE, VERDICT_SCALE_TOO_LARGE };

// how the rows of a run lie in memory
enum { ROW_FLOAT, ROW_INT8, ROW_INT16, ROW_SPLIT };

// how keys and values are cached
enum { KV_INT16, KV_INT8 };

// which values of a head rotate together
enum { ROPE_HALF, ROPE_INTERLEAVED };

// how a run ended
enum { OUTCOME_DONE, OUTCOME_STOPPED };

enum { OP_EMBED, OP_NORM, OP_QUANTIZE, OP_SILU_MUL, OP_ADD, OP_LINEAR, OP_ROPE, OP_STORE, OP_ATTEND, OP_MERGE };

// rows of a table for the run's ids
typedef struct {
  int32_t op, flags;
  int32_t dst, table, format, width;
} EmbedOp;

// each run of `width` values divided by its root mean square, times a weight
typedef struct {
  int32_t op, flags;
  int32_t dst, dst_row, src, weight, width, runs, epsilon;
} NormOp;

// float rows as integers
typedef struct {
  int32_t op, flags;
  int32_t dst, dst_row, src, width;
} QuantizeOp;

// silu(gate) * up
typedef struct {
  int32_t op, flags;
  int32_t dst, dst_row, gate, up, width;
} SiluMulOp;

// x + y
typedef struct {
  int32_t op, flags;
  int32_t dst, x, y, width;
} AddOp;

// rows times a weight matrix, plus bias, plus residual rows; and the peaks of the result
typedef struct {
  int32_t op, flags;
  int32_t dst, weight, format, src, src_row, inputs, outputs, bias, residual, peaks;
} LinearOp;

// rotation by position
typedef struct {
  int32_t op, flags;
  int32_t dst, src, heads, head_size, layout, table;
} RopeOp;

// keys and values into the cache
typedef struct {
  int32_t op, flags;
  int32_t key_rows, value_rows, keys, key_scales, values, value_scales, kv, kv_heads, head_size, capacity;
} StoreOp;

// attention over the cache
typedef struct {
  int32_t op, flags;
  int32_t dst, query_rows, partials, group, keys, key_scales, values, value_scales, kv, kv_heads, head_size, capacity;
} AttendOp;

// the parts that ATTEND left, put together
typedef struct {
  int32_t op, flags;
  int32_t dst, query_rows, partials, group, keys, key_scales, values, value_scales, kv, kv_heads, head_size, capacity;
} MergeOp;

// The start of the arena.
typedef struct {
  int32_t stop;  // set to 1 by anyone to end the run at the next SYNC
  int32_t pad0[15];
  int32_t job;  // the run: its number in the upper 24 bits, threads that take part in the lower 8; -1 ends the helpers
  int32_t job_sleepers;  // threads that sleep until it changes
  int32_t pad1[14];
  int32_t finished;  // tiles of the run that are done; with the next word a 64-bit number
  int32_t finished_job;  // the run they belong to
  int32_t finished_sleepers;  // threads that sleep until it changes
  int32_t pad2[13];
  int32_t program;  // place of the operations
  int32_t n_operations;  // how many
  int32_t claims;  // place of one 64-bit number per operation: the run, and the next tile to be taken
  int32_t spin;  // how often a waiting thread looks before it sleeps
  int32_t pad3[12];
  int32_t n_tokens;  // tokens of this run
  int32_t position;  // of the first of them
  int32_t n_output;  // rows whose logits are wanted
  int32_t pad4[13];
  int32_t ids[MAX_TOKENS];
} Control;
