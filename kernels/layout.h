// Where things lie inside panels, rows and the cache; the diagrams are in docs/kernels.md, the same sizes for Python in
// pyruntime/model/kernel_layout.py.
#pragma once

#include "abi.h"
#include "vec.h"

INLINE i32 round_up(i32 n, i32 step) { return (n + step - 1) / step * step; }
INLINE i32 blocks_of(i32 width) { return (width + BLOCK - 1) / BLOCK; }

// The address of a place in the arena.
INLINE void *at(void *arena, i32 place) { return (u8 *)arena + (size_t)place * UNIT; }

// Bytes of one block (32 columns) of a panel (16 rows).
INLINE i32 panel_block_bytes(i32 format) {
  return format == FORMAT_Q8 ? 32 + 512 : format == FORMAT_Q4 ? 32 + 256 : 64 + 256;
}

// Rows: floats are padded to whole blocks; integers are followed by a scale and a scaled sum per block.
INLINE size_t row_bytes(i32 kind, i32 width) {
  i32 blocks = blocks_of(width);
  if (kind == ROW_FLOAT) return (size_t)blocks * BLOCK * 4;
  return (size_t)round_up(blocks * (BLOCK * (kind == ROW_INT8 ? 1 : 2) + 8), UNIT);
}
INLINE const float *row_scales(const void *row, i32 kind, i32 blocks) {
  return (const float *)((const u8 *)row + (size_t)blocks * BLOCK * (kind == ROW_INT8 ? 1 : 2));
}

// What is particular to one run.
typedef struct {
  i32 n_tokens, position, n_output, threads;
  const i32 *ids;
} Run;

// The rows an operation runs over, and the first row that it reads of a source with all rows.
INLINE i32 rows_of(const Run *run, i32 flags) { return flags & FLAG_OUTPUT_ROWS ? run->n_output : run->n_tokens; }
INLINE i32 first_row(const Run *run, i32 flags) { return flags & FLAG_TAIL ? run->n_tokens - run->n_output : 0; }
