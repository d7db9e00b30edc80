// 8-bit weights times 16-bit activations: exact products, so the only error is the activations' own rounding.
//
// Per step of 2 columns: 8 weights (4 rows, 2 columns) are widened to 16 bits and multiplied by the same 2 activations
// in every lane pair. 32 products of 127 * 32767 stay far below 2^31.

#include "kernels.h"

INLINE void q8(const u8 *panel, i32 blocks, const Inputs *in, const int tokens, i32 group, const int groups, f32x4 *totals) {
  f32x4 total[8];
  for (int n = 0; n < tokens * groups; n++) total[n] = splat(0);
  for (i32 b = 0; b < blocks; b++, panel += 32 + 512) {
    i32x4 sum[8];
    for (int n = 0; n < tokens * groups; n++) sum[n] = (i32x4){0};
    const u8 *pairs = panel + 32 + group * 8;
    UNROLL for (int k = 0; k < 16; k++) {
      i16x8 w[4];
      UNROLL for (int g = 0; g < groups; g++) w[g] = load_i8_as_i16(pairs + k * 32 + g * 8);
      UNROLL for (int t = 0; t < tokens; t++) {
        i16x8 x = (i16x8)splat_32_bits(in->values[t] + (size_t)b * 64 + k * 4);
        UNROLL for (int g = 0; g < groups; g++) {
          sum[t * groups + g] += dot_i16(w[g], x);
          KEEP(sum[t * groups + g]);
        }
      }
    }
    UNROLL for (int g = 0; g < groups; g++) {
      f32x4 scale = half_over_factor(panel + (group + g) * 8);
      UNROLL for (int t = 0; t < tokens; t++) {
        f32x4 both = scale * (in->scales[t][b] * HALF_FACTOR);
        total[t * groups + g] = multiply_add(to_float(sum[t * groups + g]), both, total[t * groups + g]);
      }
    }
  }
  for (int n = 0; n < tokens * groups; n++) totals[n] = total[n];
}

void q8_one(const u8 *panel, i32 blocks, const Inputs *in, f32x4 totals[4]) { q8(panel, blocks, in, 1, 0, 4, totals); }

void q8_four(const u8 *panel, i32 blocks, const Inputs *in, i32 group, f32x4 totals[8]) {
  q8(panel, blocks, in, 4, group, 2, totals);
}
