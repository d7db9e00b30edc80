// Operations on rows, one row at a time: embedding, normalisation, quantisation, activation, rotation.

#include "kernels.h"
#include "rows.h"

// ---- embedding ----

// One weight of a panel's block.
static float weight_of(const u8 *block, i32 format, i32 row, i32 k) {
  i32 group = row / 4, place = row % 4;
  float scale = half(((const u16 *)block)[row]);
  if (format == FORMAT_Q8) return scale * (float)(i8)block[32 + k / 2 * 32 + group * 8 + place * 2 + k % 2];
  const u8 *quads = block + (format == FORMAT_Q4 ? 32 : 64);
  u8 both = quads[k / 8 * 64 + group * 16 + place * 4 + k % 4];
  float q = (float)(k / 4 % 2 ? both >> 4 : both & 15);
  return format == FORMAT_Q4 ? scale * (q - 8) : scale * q + half(((const u16 *)block)[PANEL_ROWS + row]);
}

void embed_row(void *arena, const Run *run, const EmbedOp *op, i32 row) {
  i32 id = run->ids[row + first_row(run, op->flags)];
  i32 blocks = blocks_of(op->width), block_bytes = panel_block_bytes(op->format);
  const u8 *block = (const u8 *)at(arena, op->table) + (size_t)(id / PANEL_ROWS) * blocks * block_bytes;
  float *to = (float *)((u8 *)at(arena, op->dst) + row * row_bytes(ROW_FLOAT, op->width));
  for (i32 b = 0; b < blocks; b++, block += block_bytes)
    for (i32 k = 0; k < BLOCK; k++) *to++ = weight_of(block, op->format, id % PANEL_ROWS, k);
}

// ---- normalisation ----

static float inverse_rms(const float *x, i32 n, float epsilon) {
  f32x4 squares[2] = {{0}, {0}};
  i32 i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 2; k++) {
      f32x4 v = load_f32(x + i + 4 * k);
      squares[k] = multiply_add(v, v, squares[k]);
    }
  float total = sum_lanes(squares[0] + squares[1]);
  for (; i < n; i++) total += x[i] * x[i];
  return 1.0f / __builtin_sqrtf(total / (float)n + epsilon);
}

void norm_row(void *arena, const Run *run, const NormOp *op, i32 row) {
  i32 whole = op->width * op->runs, blocks = blocks_of(whole);
  const float *x = (const float *)((u8 *)at(arena, op->src) + (row + first_row(run, op->flags)) * row_bytes(ROW_FLOAT, whole));
  const float *weight = at(arena, op->weight);
  u8 *to = (u8 *)at(arena, op->dst) + row * row_bytes(op->dst_row, whole);
  float epsilon;
  __builtin_memcpy(&epsilon, &op->epsilon, 4);
  if (op->runs > 1) {  // heads: always floats, and their width need not be whole blocks
    for (i32 n = 0; n < op->runs; n++) {
      const float *from = x + n * op->width;
      float factor = inverse_rms(from, op->width, epsilon);
      for (i32 i = 0; i < op->width; i++) ((float *)to)[n * op->width + i] = from[i] * factor * weight[i];
    }
    return;
  }
  float factor = inverse_rms(x, op->width, epsilon);
  for (i32 b = 0; b < blocks; b++) {
    f32x4 v[8], w[8];
    get_block(x, whole, b, v);
    get_block(weight, whole, b, w);
    for (int n = 0; n < 8; n++) v[n] = v[n] * factor * w[n];
    put_block(to, op->dst_row, blocks, b, v);
  }
}

// ---- value by value ----

void quantize_row(void *arena, const Run *run, const QuantizeOp *op, i32 row) {
  i32 blocks = blocks_of(op->width);
  const float *x = (const float *)((u8 *)at(arena, op->src) + (row + first_row(run, op->flags)) * row_bytes(ROW_FLOAT, op->width));
  u8 *to = (u8 *)at(arena, op->dst) + row * row_bytes(op->dst_row, op->width);
  for (i32 b = 0; b < blocks; b++) {
    f32x4 v[8];
    get_block(x, op->width, b, v);
    put_block(to, op->dst_row, blocks, b, v);
  }
}

void silu_mul_row(void *arena, const Run *run, const SiluMulOp *op, i32 row) {
  (void)run;
  i32 blocks = blocks_of(op->width);
  size_t from = row * row_bytes(ROW_FLOAT, op->width);
  const float *gate = (const float *)((u8 *)at(arena, op->gate) + from);
  const float *up = (const float *)((u8 *)at(arena, op->up) + from);
  u8 *to = (u8 *)at(arena, op->dst) + row * row_bytes(op->dst_row, op->width);
  for (i32 b = 0; b < blocks; b++) {
    f32x4 g[8], u[8];
    get_block(gate, op->width, b, g);
    get_block(up, op->width, b, u);
    for (int n = 0; n < 8; n++) g[n] = g[n] / (exp_f32(-g[n]) + 1.0f) * u[n];
    put_block(to, op->dst_row, blocks, b, g);
  }
}

void add_row(void *arena, const Run *run, const AddOp *op, i32 row) {
  (void)run;
  size_t bytes = row_bytes(ROW_FLOAT, op->width), from = row * bytes;
  const u8 *x = (u8 *)at(arena, op->x) + from, *y = (u8 *)at(arena, op->y) + from;
  u8 *to = (u8 *)at(arena, op->dst) + from;
  for (size_t i = 0; i < bytes; i += 16) store_f32(to + i, load_f32(x + i) + load_f32(y + i));
}

// ---- rotation ----

// (a + bi)(cos + i sin) of pairs in the same place of either half.
static void rotate_halves(const float *x, float *to, const float *cosines, const float *sines, i32 half_size) {
  i32 i = 0;
  for (; i + 4 <= half_size; i += 4) {
    f32x4 a = load_f32(x + i), b = load_f32(x + half_size + i), c = load_f32(cosines + i), s = load_f32(sines + i);
    store_f32(to + i, a * c - b * s);
    store_f32(to + half_size + i, b * c + a * s);
  }
  for (; i < half_size; i++) {
    float a = x[i], b = x[half_size + i];
    to[i] = a * cosines[i] - b * sines[i];
    to[half_size + i] = b * cosines[i] + a * sines[i];
  }
}

// The same of neighbours.
static void rotate_neighbours(const float *x, float *to, const float *cosines, const float *sines, i32 half_size) {
  i32 i = 0;
  for (; i + 4 <= half_size; i += 4) {
    f32x4 p = load_f32(x + 2 * i), q = load_f32(x + 2 * i + 4), c = load_f32(cosines + i), s = load_f32(sines + i);
    f32x4 a = __builtin_shufflevector(p, q, 0, 2, 4, 6), b = __builtin_shufflevector(p, q, 1, 3, 5, 7);
    f32x4 real = a * c - b * s, imaginary = b * c + a * s;
    store_f32(to + 2 * i, __builtin_shufflevector(real, imaginary, 0, 4, 1, 5));
    store_f32(to + 2 * i + 4, __builtin_shufflevector(real, imaginary, 2, 6, 3, 7));
  }
  for (; i < half_size; i++) {
    float a = x[2 * i], b = x[2 * i + 1];
    to[2 * i] = a * cosines[i] - b * sines[i];
    to[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void rope_row(void *arena, const Run *run, const RopeOp *op, i32 row) {
  i32 half_size = op->head_size / 2;
  size_t from = row * row_bytes(ROW_FLOAT, op->heads * op->head_size);
  const float *x = (const float *)((u8 *)at(arena, op->src) + from);
  float *to = (float *)((u8 *)at(arena, op->dst) + from);
  const float *cosines = (const float *)at(arena, op->table) + (size_t)(run->position + row) * op->head_size;
  const float *sines = cosines + half_size;
  for (i32 h = 0; h < op->heads; h++, x += op->head_size, to += op->head_size) {
    if (op->layout == ROPE_HALF) rotate_halves(x, to, cosines, sines, half_size);
    else rotate_neighbours(x, to, cosines, sines, half_size);
  }
}
