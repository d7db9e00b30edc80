// What the files of this folder offer each other. An operation is cut into tiles that any thread may take in any order:
// for most a tile is a row; `linear` and `attention` say how many they have.
#pragma once

#include "layout.h"

#if defined(__wasm__)
#define EXPORT(name) __attribute__((export_name(#name), visibility("default")))
#else
#define EXPORT(name) __attribute__((visibility("default")))
#endif

// stored.c: values b * 32 … of a stored row as panels hold them, and a VERDICT. `count` values are left in the row; where
// that is fewer than 32, what is behind them counts as 0. Half-bytes: values 0 … 15 in the lower, 16 … 31 in the upper ones.
size_t stored_row_bytes(i32 source, i32 columns);
i32 stored_as_q8(i32 source, const u8 *row, i32 b, i32 count, u16 *scale, i8 q[BLOCK]);
i32 stored_as_q4(i32 source, const u8 *row, i32 b, u16 *scale, u16 *minimum, u8 packed[BLOCK / 2]);

// rows.c
void embed_row(void *arena, const Run *run, const EmbedOp *op, i32 row);
void norm_row(void *arena, const Run *run, const NormOp *op, i32 row);
void quantize_row(void *arena, const Run *run, const QuantizeOp *op, i32 row);
void silu_mul_row(void *arena, const Run *run, const SiluMulOp *op, i32 row);
void add_row(void *arena, const Run *run, const AddOp *op, i32 row);
void rope_row(void *arena, const Run *run, const RopeOp *op, i32 row);

// linear.c
i32 linear_tiles(const Run *run, const LinearOp *op);
void linear_tile(void *arena, const Run *run, const LinearOp *op, i32 tile);

// The rows of input that a matrix kernel works on at once.
typedef struct {
  const u8 *values[4];
  const float *scales[4], *sums[4];
} Inputs;

// linear_q8.c, linear_q4.c: sums of `tokens` input rows with the rows of a panel, four rows to a vector, `groups` vectors
// from `group` on; totals[token * groups + n].
void q8_one(const u8 *panel, i32 blocks, const Inputs *in, f32x4 totals[4]);
void q8_four(const u8 *panel, i32 blocks, const Inputs *in, i32 group, f32x4 totals[8]);
void q4_one(const u8 *panel, i32 format, i32 kind, i32 blocks, const Inputs *in, f32x4 totals[4]);
void q4_four(const u8 *panel, i32 format, i32 kind, i32 blocks, const Inputs *in, i32 group, f32x4 totals[8]);

// attention.c
void store_tile(void *arena, const Run *run, const StoreOp *op, i32 tile);
i32 attend_tiles(const Run *run, const AttendOp *op);
void attend_tile(void *arena, const Run *run, const AttendOp *op, i32 tile);
i32 merge_tiles(const Run *run, const AttendOp *op);
void merge_tile(void *arena, const Run *run, const AttendOp *op, i32 tile);
