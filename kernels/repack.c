// From the blocks of a model file to panels: a permutation for quantised types, a quantisation to Q8 for floats.
//
// Works on any range of rows that starts at a panel, so that a tensor streams through a small buffer.

#include "kernels.h"
#include "rows.h"

enum { BAD_NONE = 0, BAD_NOT_FINITE = 1, BAD_TOO_LARGE = 2 };

static i32 source_block_bytes(i32 source) {
  static const u8 bytes[] = {4 * BLOCK, 2 * BLOCK, 2 * BLOCK, 34, 18, 20};
  return bytes[source];
}
static i32 source_value_bytes(i32 source) { return source == SOURCE_F32 ? 4 : 2; }

// Bytes of a row of `columns` values; float types need not fill whole blocks.
static size_t source_row_bytes(i32 source, i32 columns) {
  if (source <= SOURCE_BF16) return (size_t)columns * source_value_bytes(source);
  return (size_t)blocks_of(columns) * source_block_bytes(source);
}

static i32 is_finite_half(u16 bits) { return (bits & 0x7c00) != 0x7c00; }

static u16 to_half(float x) {  // of a number >= 0 below 65520: the nearest, ties to even
  u32 bits;
  __builtin_memcpy(&bits, &x, 4);
  if (bits < 0x38800000u) {  // below 2^-14: counted in steps of 2^-24
    float steps = x * 16777216.0f;
    return (u16)nearest(splat(steps))[0];
  }
  return (u16)((bits - 0x38000000u + 0xfffu + (bits >> 13 & 1)) >> 13);
}

static float float_value(const u8 *p, i32 source) {
  if (source == SOURCE_F32) {
    float f;
    __builtin_memcpy(&f, p, 4);
    return f;
  }
  u16 bits;
  __builtin_memcpy(&bits, p, 2);
  if (source == SOURCE_F16) {
    if (!is_finite_half(bits)) return __builtin_inff();
    return half(bits);
  }
  u32 wide = (u32)bits << 16;
  float f;
  __builtin_memcpy(&f, &wide, 4);
  return f;
}

static i32 read_floats(const u8 *from, i32 source, i32 count, float values[BLOCK]) {
  i32 bad = 0;
  for (i32 k = 0; k < BLOCK; k++) {
    values[k] = k < count ? float_value(from + (size_t)k * source_value_bytes(source), source) : 0;
    float size = values[k] < 0 ? -values[k] : values[k];
    bad |= !(size <= 3.4028235e38f);
  }
  return bad;
}

// 32 floats as 8-bit integers and a float16 scale.
static i32 quantize_block(const float values[BLOCK], i8 q[BLOCK], u16 *scale) {
  float max = 0;
  for (i32 k = 0; k < BLOCK; k++) {
    float size = values[k] < 0 ? -values[k] : values[k];
    max = size > max ? size : max;
  }
  if (max > 127.0f * 65504.0f) return BAD_TOO_LARGE;
  *scale = to_half(max / 127.0f);
  float rounded = half(*scale), factor = rounded > 0 ? 1.0f / rounded : 0;
  for (i32 k = 0; k < BLOCK; k++) {
    float x = values[k] * factor;
    x = x > 127.0f ? 127.0f : x < -127.0f ? -127.0f : x;
    q[k] = (i8)nearest(splat(x))[0];
  }
  return BAD_NONE;
}

static void put_q8(u8 *block, i32 row, u16 scale, const i8 q[BLOCK]) {
  __builtin_memcpy(block + 2 * row, &scale, 2);
  u8 *to = block + 32 + row / 4 * 8 + row % 4 * 2;
  for (i32 k = 0; k < BLOCK; k += 2, to += 32) {
    to[0] = (u8)q[k];
    to[1] = (u8)q[k + 1];
  }
}

// Half-bytes: the file has values 0 … 15 in the lower, 16 … 31 in the upper ones; the panel 8 j … 8 j + 3 and 8 j + 4 ….
static void put_q4(u8 *quads, i32 row, const u8 packed[16]) {
  u8 *to = quads + row / 4 * 16 + row % 4 * 4;
  for (i32 j = 0; j < 4; j++, to += 64) {
    i32 from = j % 2 * 8, shift = j < 2 ? 0 : 4;
    for (i32 k = 0; k < 4; k++)
      to[k] = (u8)((packed[from + k] >> shift & 15) | (packed[from + 4 + k] >> shift & 15) << 4);
  }
}

static i32 repack_block(i32 source, const u8 *from, i32 count, u8 *block, i32 row) {
  u16 scale, minimum;
  if (source <= SOURCE_BF16) {
    float values[BLOCK];
    i8 q[BLOCK];
    if (read_floats(from, source, count, values)) return BAD_NOT_FINITE;
    i32 bad = quantize_block(values, q, &scale);
    if (!bad) put_q8(block, row, scale, q);
    return bad;
  }
  __builtin_memcpy(&scale, from, 2);
  if (!is_finite_half(scale)) return BAD_NOT_FINITE;
  if (source == SOURCE_Q8_0) {
    put_q8(block, row, scale, (const i8 *)from + 2);
    return BAD_NONE;
  }
  __builtin_memcpy(block + 2 * row, &scale, 2);
  if (source == SOURCE_Q4_0) {
    put_q4(block + 32, row, from + 2);
    return BAD_NONE;
  }
  __builtin_memcpy(&minimum, from + 2, 2);
  if (!is_finite_half(minimum)) return BAD_NOT_FINITE;
  __builtin_memcpy(block + 32 + 2 * row, &minimum, 2);
  put_q4(block + 64, row, from + 4);
  return BAD_NONE;
}

// Turns `rows` rows of `columns` values into panels at `to`. The rows that fill up the last panel are zero.
// Returns 0, or BAD_… : a scale or value is not finite, or too large for a float16 scale.
EXPORT(repack) i32 repack(i32 source, i32 format, const u8 *from, i32 rows, i32 columns, u8 *to) {
  i32 blocks = blocks_of(columns), step = panel_block_bytes(format), bad = BAD_NONE;
  size_t row_stride = source_row_bytes(source, columns), block_stride = source_block_bytes(source);
  for (i32 first = 0; first < rows; first += PANEL_ROWS, to += (size_t)blocks * step) {
    i32 filled = rows - first < PANEL_ROWS ? rows - first : PANEL_ROWS;
    if (filled < PANEL_ROWS) __builtin_memset(to, 0, (size_t)blocks * step);
    for (i32 r = 0; r < filled; r++, from += row_stride)
      for (i32 b = 0; b < blocks; b++) {
        i32 count = columns - b * BLOCK < BLOCK ? columns - b * BLOCK : BLOCK;
        i32 found = repack_block(source, from + b * block_stride, count, to + (size_t)b * step, r);
        if (found) bad = found;
      }
  }
  return bad;
}
