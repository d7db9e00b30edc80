// The blocks of a model file, 32 values at a time, as panels hold them: integers of 8 or 4 bits with their scale.
//
// Some types are that already; the values of the others are rounded to what panels have a place for (docs/kernels.md has
// the measurements). How blocks are laid out is told in pyruntime/weights/quantized.py.

#include "kernels.h"

static const struct {
  i32 bytes, values;
} BLOCKS[] = {
    [SOURCE_F32] = {4, 1},      [SOURCE_F16] = {2, 1},      [SOURCE_BF16] = {2, 1},     [SOURCE_Q8_0] = {34, 32},
    [SOURCE_Q4_0] = {18, 32},   [SOURCE_Q4_1] = {20, 32},   [SOURCE_Q5_0] = {22, 32},   [SOURCE_Q5_1] = {24, 32},
    [SOURCE_Q4_K] = {144, 256}, [SOURCE_Q5_K] = {176, 256}, [SOURCE_Q6_K] = {210, 256},
};

size_t stored_row_bytes(i32 source, i32 columns) { return (size_t)(columns / BLOCKS[source].values) * BLOCKS[source].bytes; }

// The block that holds the values b * 32 … of a row.
static const u8 *block_of(i32 source, const u8 *row, i32 b) { return row + stored_row_bytes(source, b * BLOCK); }

// ---- float16 ----

static i32 is_finite_half(u16 bits) { return (bits & 0x7c00) != 0x7c00; }
static i32 fits_half(float x) { return x < 65520.0f && x > -65520.0f; }

static u16 to_half(float x) {  // of a number that fits: the nearest, ties to even
  u32 bits;
  __builtin_memcpy(&bits, &x, 4);
  u32 sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size < 0x38800000u) {  // below 2^-14: counted in steps of 2^-24
    float steps = (sign ? -x : x) * 16777216.0f;
    return (u16)(sign | (u32)nearest(splat(steps))[0]);
  }
  return (u16)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13));
}

static i32 read_half(const u8 *p, u16 *bits) {
  __builtin_memcpy(bits, p, 2);
  return is_finite_half(*bits) ? VERDICT_FINE : VERDICT_NOT_FINITE;
}

// ---- values ----

static i32 float_values(i32 source, const u8 *p, i32 count, float values[BLOCK]) {
  u8 padded[4 * BLOCK] = {0};
  if (count < BLOCK) {
    __builtin_memcpy(padded, p, (size_t)(count * BLOCKS[source].bytes));
    p = padded;
  }
  const i32x4 infinite = (i32x4){0} + 0x7f800000;
  i32x4 bad = {0};
  for (i32 k = 0; k < BLOCK; k += 4) {
    const u8 *from = p + k * BLOCKS[source].bytes;
    i32x4 bits;
    if (source == SOURCE_F32) bits = (i32x4)load_f32(from);
    else if (source == SOURCE_BF16) bits = load_i16_as_i32(from) << 16;
    else bits = (i32x4)load_half(from) | (((load_i16_as_i32(from) & 0x7c00) == 0x7c00) & infinite);
    bad |= (bits & infinite) == infinite;
    store_f32(values + k, (f32x4)bits);
  }
  return bad[0] | bad[1] | bad[2] | bad[3] ? VERDICT_NOT_FINITE : VERDICT_FINE;
}

// Values scale * q + minimum.
typedef struct {
  float scale, minimum;
  u8 q[BLOCK];
} Affine;

// 5-bit integers: 16 bytes of half-bytes, and the fifth bits of all in order.
static void five_bits(const u8 *nibbles, const u8 *fifth, u8 q[BLOCK]) {
  for (i32 k = 0; k < BLOCK / 2; k++) {
    q[k] = nibbles[k] & 15;
    q[k + BLOCK / 2] = nibbles[k] >> 4;
  }
  for (i32 k = 0; k < BLOCK; k++) q[k] |= (fifth[k / 8] >> k % 8 & 1) << 4;
}

// A Q5_1 block, or run `run` of a Q4_K or Q5_K block.
static i32 read_affine(i32 source, const u8 *p, i32 run, Affine *to) {
  u16 scale, minimum;
  if (read_half(p, &scale) || read_half(p + 2, &minimum)) return VERDICT_NOT_FINITE;
  if (source == SOURCE_Q5_1) {
    to->scale = half(scale);
    to->minimum = half(minimum);
    five_bits(p + 8, p + 4, to->q);
    return VERDICT_FINE;
  }
  const u8 *six = p + 4 + run % 4;
  i32 scales = run < 4 ? six[0] & 63 : (six[8] & 15) | six[0] >> 6 << 4;
  i32 minima = run < 4 ? six[4] & 63 : six[8] >> 4 | six[4] >> 6 << 4;
  to->scale = half(scale) * (float)scales;
  to->minimum = -half(minimum) * (float)minima;
  const u8 *nibbles = p + (source == SOURCE_Q4_K ? 16 : 48) + run / 2 * BLOCK;
  for (i32 k = 0; k < BLOCK; k++) to->q[k] = nibbles[k] >> run % 2 * 4 & 15;
  if (source == SOURCE_Q5_K)
    for (i32 k = 0; k < BLOCK; k++) to->q[k] |= (p[16 + k] >> run & 1) << 4;
  return VERDICT_FINE;
}

static i32 affine_values(i32 source, const u8 *p, i32 run, float values[BLOCK]) {
  Affine block;
  i32 verdict = read_affine(source, p, run, &block);
  if (verdict) return verdict;
  for (i32 k = 0; k < BLOCK; k++) values[k] = block.scale * (float)block.q[k] + block.minimum;
  return VERDICT_FINE;
}

// Run `run` of a Q6_K block, in which 16 values have a scale.
static i32 q6_k_values(const u8 *p, i32 run, float values[BLOCK]) {
  u16 factor;
  if (read_half(p + 208, &factor)) return VERDICT_NOT_FINITE;
  const u8 *lower = p + run / 4 * 64 + run % 2 * BLOCK, *upper = p + 128 + run / 4 * BLOCK;
  const i8 *scales = (const i8 *)p + 192 + run * 2;
  for (i32 k = 0; k < BLOCK; k++) {
    i32 q = (lower[k] >> run % 4 / 2 * 4 & 15) | (upper[k] >> run % 4 * 2 & 3) << 4;
    values[k] = half(factor) * (float)scales[k / 16] * (float)(q - 32);
  }
  return VERDICT_FINE;
}

// ---- 8 bits ----

static i32 round_to_q8(const float values[BLOCK], u16 *scale, i8 q[BLOCK]) {
  typedef i8 i8x4 __attribute__((vector_size(4)));
  f32x4 largest = {0};
  for (i32 k = 0; k < BLOCK; k += 4) largest = max_f32(largest, abs_f32(load_f32(values + k)));
  float max = max_lanes(largest);
  if (max > 127.0f * 65504.0f) return VERDICT_TOO_LARGE;
  *scale = to_half(max / 127.0f);
  float rounded = half(*scale), factor = rounded > 0 ? 1.0f / rounded : 0;
  for (i32 k = 0; k < BLOCK; k += 4) {
    f32x4 x = max_f32(load_f32(values + k) * factor, splat(-127.0f));
    i8x4 four = __builtin_convertvector(nearest(choose(x > 127.0f, splat(127.0f), x)), i8x4);
    __builtin_memcpy(q + k, &four, 4);
  }
  return VERDICT_FINE;
}

static i32 q5_0_as_q8(const u8 *p, u16 *scale, i8 q[BLOCK]) {
  five_bits(p + 6, p + 2, (u8 *)q);
  for (i32 k = 0; k < BLOCK; k++) q[k] -= 16;
  return read_half(p, scale);
}

i32 stored_as_q8(i32 source, const u8 *row, i32 b, i32 count, u16 *scale, i8 q[BLOCK]) {
  const u8 *p = block_of(source, row, b);
  if (source == SOURCE_Q8_0) {
    __builtin_memcpy(q, p + 2, BLOCK);
    return read_half(p, scale);
  }
  if (source == SOURCE_Q5_0) return q5_0_as_q8(p, scale, q);
  float values[BLOCK];
  i32 verdict = source <= SOURCE_BF16     ? float_values(source, p, count, values)
                : source == SOURCE_Q6_K ? q6_k_values(p, b % 8, values)
                                        : affine_values(source, p, b % 8, values);
  return verdict ? verdict : round_to_q8(values, scale, q);
}

// ---- 4 bits ----

i32 stored_as_q4(i32 source, const u8 *row, i32 b, u16 *scale, u16 *minimum, u8 packed[BLOCK / 2]) {
  const u8 *p = block_of(source, row, b);
  if (source == SOURCE_Q4_K) {  // scale and minimum are rounded to float16
    Affine block;
    if (read_affine(source, p, b % 8, &block)) return VERDICT_NOT_FINITE;
    if (!fits_half(block.scale) || !fits_half(block.minimum)) return VERDICT_SCALE_TOO_LARGE;
    *scale = to_half(block.scale);
    *minimum = to_half(block.minimum);
    for (i32 k = 0; k < BLOCK / 2; k++) packed[k] = (u8)(block.q[k] | block.q[k + BLOCK / 2] << 4);
    return VERDICT_FINE;
  }
  const i32 has_min = source == SOURCE_Q4_1;
  *minimum = 0;
  if (has_min && read_half(p + 2, minimum)) return VERDICT_NOT_FINITE;
  __builtin_memcpy(packed, p + (has_min ? 4 : 2), BLOCK / 2);
  return read_half(p, scale);
}
