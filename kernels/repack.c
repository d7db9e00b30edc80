// From the rows of a model file to panels. Works on any range of rows that starts at a panel, so that a tensor streams
// through a small buffer.

#include "kernels.h"

static void put_scale(u8 *scales, i32 row, u16 scale) { __builtin_memcpy(scales + 2 * row, &scale, 2); }

static void put_q8(u8 *pairs, i32 row, const i8 q[BLOCK]) {
  u8 *to = pairs + row / 4 * 8 + row % 4 * 2;
  for (i32 k = 0; k < BLOCK; k += 2, to += 32) {
    to[0] = (u8)q[k];
    to[1] = (u8)q[k + 1];
  }
}

// Half-bytes: the file has values 0 … 15 in the lower, 16 … 31 in the upper ones; the panel 8 j … 8 j + 3 and 8 j + 4 ….
static void put_q4(u8 *quads, i32 row, const u8 packed[BLOCK / 2]) {
  u8 *to = quads + row / 4 * 16 + row % 4 * 4;
  for (i32 j = 0; j < 4; j++, to += 64) {
    i32 from = j % 2 * 8, shift = j < 2 ? 0 : 4;
    for (i32 k = 0; k < 4; k++)
      to[k] = (u8)((packed[from + k] >> shift & 15) | (packed[from + 4 + k] >> shift & 15) << 4);
  }
}

// Values b * 32 … of the stored row `from`, of which `count` are left, into row `row` of a panel's block.
static i32 repack_block(i32 source, i32 format, const u8 *from, i32 b, i32 count, u8 *block, i32 row) {
  u16 scale = 0, minimum = 0;
  if (format == FORMAT_Q8) {
    i8 q[BLOCK];
    i32 verdict = stored_as_q8(source, from, b, count, &scale, q);
    if (verdict) return verdict;
    put_scale(block, row, scale);
    put_q8(block + 32, row, q);
    return VERDICT_FINE;
  }
  u8 packed[BLOCK / 2];
  i32 verdict = stored_as_q4(source, from, b, &scale, &minimum, packed);
  if (verdict) return verdict;
  put_scale(block, row, scale);
  if (format == FORMAT_Q4_MIN) put_scale(block + 32, row, minimum);
  put_q4(block + (format == FORMAT_Q4_MIN ? 64 : 32), row, packed);
  return VERDICT_FINE;
}

// Turns `rows` rows of `columns` values into panels at `to`. The rows that fill up the last panel are zero.
// Returns what is wrong with one of the blocks, if anything.
EXPORT(repack) i32 repack(i32 source, i32 format, const u8 *from, i32 rows, i32 columns, u8 *to) {
  i32 blocks = blocks_of(columns), step = panel_block_bytes(format), verdict = VERDICT_FINE;
  for (i32 first = 0; first < rows; first += PANEL_ROWS, to += (size_t)blocks * step) {
    i32 filled = rows - first < PANEL_ROWS ? rows - first : PANEL_ROWS;
    if (filled < PANEL_ROWS) __builtin_memset(to, 0, (size_t)blocks * step);
    for (i32 r = 0; r < filled; r++, from += stored_row_bytes(source, columns))
      for (i32 b = 0; b < blocks; b++) {
        i32 found = repack_block(source, format, from, b, columns - b * BLOCK, to + (size_t)b * step, r);
        if (found) verdict = found;
      }
  }
  return verdict;
}
