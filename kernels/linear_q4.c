// 4-bit weights times 8-bit or 16-bit activations.
//
// A weight is scale * q + minimum with q = 0 … 15 (format Q4: the minimum is -8 * scale), so a block's sum is
//     scale * activation scale * sum(q * a)  +  minimum * (activation scale * sum(a)),
// and the second bracket is stored with the activations. 16 bytes hold 8 columns of 4 rows: columns 0 … 3 in the lower
// half-bytes, 4 … 7 in the upper ones.
//
// Where products of bytes are one instruction, 16-bit activations come as two planes of bytes (ROW_SPLIT): compute
// doubles, memory traffic does not. Sums of 16 products of 15 * 128 stay below 2^15. Elsewhere half-bytes are widened to
// 16 bits and activations are 16-bit (ROW_INT16) always.

#include "kernels.h"

INLINE const u8 *scale_block(const u8 *panel, const int has_min, i32 group, f32x4 *scale, f32x4 *minimum) {
  *scale = half_over_factor(panel + group * 8);
  *minimum = has_min ? load_half(panel + 32 + group * 8) : *scale * (-8.0f * HALF_FACTOR);
  return panel;
}

#if HAVE_DOT_BYTES

// planes: 1 for ROW_INT8, 2 for ROW_SPLIT. At most 8 sums are alive at once.
INLINE void q4(const u8 *panel, const int has_min, const int planes, i32 blocks, const Inputs *in, const int tokens,
               i32 group, const int groups, f32x4 *totals) {
  const int header = has_min ? 64 : 32;
  f32x4 total[8];
  for (int n = 0; n < tokens * groups; n++) total[n] = splat(0);
  for (i32 b = 0; b < blocks; b++, panel += header + 256) {
    i16x8 sum[8];
    for (int n = 0; n < planes * tokens * groups; n++) sum[n] = (i16x8){0};
    const u8 *quads = panel + header + group * 16;
    UNROLL for (int k = 0; k < 4; k++) {
      u8x16 w[4];
      UNROLL for (int g = 0; g < groups; g++) w[g] = load_u8(quads + k * 64 + g * 16);
      UNROLL for (int upper = 0; upper < 2; upper++) {
        UNROLL for (int n = 0; n < planes * tokens; n++) {
          int t = n / planes, plane = n % planes;
          i8x16 x = (i8x16)splat_32_bits(in->values[t] + (size_t)b * BLOCK * planes + plane * BLOCK + k * 8 + upper * 4);
          UNROLL for (int g = 0; g < groups; g++) {
            u8x16 q = upper ? (u8x16)((u16x8)w[g] >> 4) & 15 : w[g] & 15;
            sum[n * groups + g] += dot_bytes(x, q);
            KEEP(sum[n * groups + g]);
          }
        }
      }
    }
    UNROLL for (int g = 0; g < groups; g++) {
      f32x4 scale, minimum;
      scale_block(panel, has_min, group + g, &scale, &minimum);
      UNROLL for (int t = 0; t < tokens; t++) {
        i32x4 products = add_neighbours(sum[t * planes * groups + g]);
        if (planes == 2) products += add_neighbours(sum[(t * planes + 1) * groups + g]) * 256;
        f32x4 *to = &total[t * groups + g];
        *to = multiply_add(to_float(products), scale * (in->scales[t][b] * HALF_FACTOR), *to);
        *to = multiply_add(minimum, splat(in->sums[t][b]), *to);
      }
    }
  }
  for (int n = 0; n < tokens * groups; n++) totals[n] = total[n];
}

void q4_one(const u8 *panel, i32 format, i32 kind, i32 blocks, const Inputs *in, f32x4 totals[4]) {
  if (format == FORMAT_Q4_MIN && kind == ROW_INT8) q4(panel, 1, 1, blocks, in, 1, 0, 4, totals);
  else if (format == FORMAT_Q4_MIN) q4(panel, 1, 2, blocks, in, 1, 0, 4, totals);
  else if (kind == ROW_INT8) q4(panel, 0, 1, blocks, in, 1, 0, 4, totals);
  else q4(panel, 0, 2, blocks, in, 1, 0, 4, totals);
}

// Two planes of four tokens would need 16 sums: two tokens at a time.
INLINE void q4_two_by_two(const u8 *panel, const int has_min, i32 blocks, const Inputs *in, i32 group, f32x4 totals[8]) {
  q4(panel, has_min, 2, blocks, in, 2, group, 2, totals);
  Inputs rest = *in;
  for (int t = 0; t < 2; t++) {
    rest.values[t] = in->values[t + 2];
    rest.scales[t] = in->scales[t + 2];
    rest.sums[t] = in->sums[t + 2];
  }
  q4(panel, has_min, 2, blocks, &rest, 2, group, 2, totals + 4);
}

void q4_four(const u8 *panel, i32 format, i32 kind, i32 blocks, const Inputs *in, i32 group, f32x4 totals[8]) {
  if (format == FORMAT_Q4_MIN && kind == ROW_INT8) q4(panel, 1, 1, blocks, in, 4, group, 2, totals);
  else if (format == FORMAT_Q4_MIN) q4_two_by_two(panel, 1, blocks, in, group, totals);
  else if (kind == ROW_INT8) q4(panel, 0, 1, blocks, in, 4, group, 2, totals);
  else q4_two_by_two(panel, 0, blocks, in, group, totals);
}

#else

// Widened: a group's 4 rows are two vectors of 2 rows * 4 columns.
INLINE void q4(const u8 *panel, const int has_min, i32 blocks, const Inputs *in, const int tokens, i32 group,
               const int groups, f32x4 *totals) {
  const int header = has_min ? 64 : 32;
  f32x4 total[8];
  for (int n = 0; n < tokens * groups; n++) total[n] = splat(0);
  for (i32 b = 0; b < blocks; b++, panel += header + 256) {
    i32x4 sum[16];
    for (int n = 0; n < 2 * tokens * groups; n++) sum[n] = (i32x4){0};
    const u8 *quads = panel + header + group * 16;
    UNROLL for (int k = 0; k < 4; k++) {
      UNROLL for (int g = 0; g < groups; g++) {
        u8x16 w = load_u8(quads + k * 64 + g * 16);
        UNROLL for (int upper = 0; upper < 2; upper++) {
          u8x16 q = upper ? (u8x16)((u16x8)w >> 4) & 15 : w & 15;
          i16x8 rows01 = low_bytes(q), rows23 = high_bytes(q);
          UNROLL for (int t = 0; t < tokens; t++) {
            i16x8 x = splat_64_bits(in->values[t] + (size_t)b * 2 * BLOCK + k * 16 + upper * 8);
            i32x4 *to = &sum[2 * (t * groups + g)];
            to[0] += dot_i16(rows01, x);
            to[1] += dot_i16(rows23, x);
            KEEP(to[0]);
            KEEP(to[1]);
          }
        }
      }
    }
    UNROLL for (int g = 0; g < groups; g++) {
      f32x4 scale, minimum;
      scale_block(panel, has_min, group + g, &scale, &minimum);
      UNROLL for (int t = 0; t < tokens; t++) {
        i32x4 a = sum[2 * (t * groups + g)], c = sum[2 * (t * groups + g) + 1];
        i32x4 products = __builtin_shufflevector(a, c, 0, 2, 4, 6) + __builtin_shufflevector(a, c, 1, 3, 5, 7);
        f32x4 *to = &total[t * groups + g];
        *to = multiply_add(to_float(products), scale * (in->scales[t][b] * HALF_FACTOR), *to);
        *to = multiply_add(minimum, splat(in->sums[t][b]), *to);
      }
    }
  }
  for (int n = 0; n < tokens * groups; n++) totals[n] = total[n];
}

void q4_one(const u8 *panel, i32 format, i32 kind, i32 blocks, const Inputs *in, f32x4 totals[4]) {
  (void)kind;
  for (int group = 0; group < 4; group += 2) {
    if (format == FORMAT_Q4_MIN) q4(panel, 1, blocks, in, 1, group, 2, totals + group);
    else q4(panel, 0, blocks, in, 1, group, 2, totals + group);
  }
}

void q4_four(const u8 *panel, i32 format, i32 kind, i32 blocks, const Inputs *in, i32 group, f32x4 totals[8]) {
  (void)kind;
  for (int g = 0; g < 2; g++) {
    f32x4 part[4];
    if (format == FORMAT_Q4_MIN) q4(panel, 1, blocks, in, 4, group + g, 1, part);
    else q4(panel, 0, blocks, in, 4, group + g, 1, part);
    for (int t = 0; t < 4; t++) totals[2 * t + g] = part[t];
  }
}

#endif
