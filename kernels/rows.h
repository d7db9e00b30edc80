// Writing 32 values of a row in the form the next operation reads.
#pragma once

#include "layout.h"

// The largest integer of each form. SPLIT: 127 * 256, so that its upper byte fits 8 bits.
#define INT8_LEVELS 127.0f
#define INT16_LEVELS 32767.0f
#define SPLIT_LEVELS 32512.0f

// Values b * 32 … of a row of floats, with zeros behind its width.
INLINE void get_block(const float *row, i32 width, i32 b, f32x4 v[8]) {
  i32 left = width - b * BLOCK;
  if (left >= BLOCK) {
    for (int n = 0; n < 8; n++) v[n] = load_f32(row + b * BLOCK + 4 * n);
    return;
  }
  float padded[BLOCK] = {0};
  for (i32 n = 0; n < left; n++) padded[n] = row[b * BLOCK + n];
  for (int n = 0; n < 8; n++) v[n] = load_f32(padded + 4 * n);
}

INLINE void put_integers(u8 *to, i32 kind, const i32x4 q[8]) {
  typedef i8 i8x4 __attribute__((vector_size(4)));
  for (int n = 0; n < 8; n++) {
    if (kind == ROW_INT16) {
      i16x4 v = __builtin_convertvector(q[n], i16x4);
      __builtin_memcpy(to + 8 * n, &v, 8);
    } else if (kind == ROW_INT8) {
      i8x4 v = __builtin_convertvector(q[n], i8x4);
      __builtin_memcpy(to + 4 * n, &v, 4);
    } else {  // SPLIT: q = 256 * upper + lower, both signed bytes; the block's lower bytes come first
      i32x4 upper = (q[n] + 128) >> 8;
      i8x4 low = __builtin_convertvector(q[n] - upper * 256, i8x4), high = __builtin_convertvector(upper, i8x4);
      __builtin_memcpy(to + 4 * n, &low, 4);
      __builtin_memcpy(to + BLOCK + 4 * n, &high, 4);
    }
  }
}

// Block b of a row of `blocks` blocks.
INLINE void put_block(void *row, i32 kind, i32 blocks, i32 b, const f32x4 v[8]) {
  if (kind == ROW_FLOAT) {
    for (int n = 0; n < 8; n++) store_f32((float *)row + b * BLOCK + 4 * n, v[n]);
    return;
  }
  float levels = kind == ROW_INT8 ? INT8_LEVELS : kind == ROW_INT16 ? INT16_LEVELS : SPLIT_LEVELS;
  f32x4 largest = abs_f32(v[0]);
  for (int n = 1; n < 8; n++) largest = max_f32(largest, abs_f32(v[n]));
  float max = max_lanes(largest);
  float to_levels = max > 1e-30f ? levels / max : 0;  // below, the quotient could be infinite
  i32x4 q[8], sum = {0};
  for (int n = 0; n < 8; n++) {
    q[n] = nearest(v[n] * to_levels);
    sum += q[n];
  }
  put_integers((u8 *)row + (size_t)b * BLOCK * (kind == ROW_INT8 ? 1 : 2), kind, q);
  float *scales = (float *)row_scales(row, kind, blocks);
  scales[b] = max > 1e-30f ? max / levels : 0;
  scales[blocks + b] = scales[b] * (float)(sum[0] + sum[1] + sum[2] + sum[3]);
}
