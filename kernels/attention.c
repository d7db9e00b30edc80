// Causal attention over the cache, for any number of query heads per key head.
//
// A tile is up to 4 query rows that share a key head (heads of one token, and in prefill heads of neighbouring tokens).
// It walks the positions in spans of 256, keeping for each row the largest score so far, the sum of weights and the
// mixed values, which are rescaled when a larger score comes; so its memory does not grow with the context. When there is
// only one token the spans are tiles of their own, that threads share, and MERGE puts their results together.

#include "cache.h"

typedef struct {
  float max[ROW_TILE], sum[ROW_TILE];
  float mixed[ROW_TILE][MAX_HEAD];
} State;

typedef struct {
  i32 n_rows, visible[ROW_TILE];  // how many positions each row may see
  float scale[ROW_TILE];
  i16 queries[ROW_TILE][MAX_HEAD];
} Rows;

// ---- storing ----

static float largest(const float *x, i32 n) {
  float max = 0;
  for (i32 i = 0; i < n; i++) {
    float size = x[i] < 0 ? -x[i] : x[i];
    max = size > max ? size : max;
  }
  return max;
}

INLINE i32 rounded(float x) { return nearest(splat(x))[0]; }

INLINE void put_integer(u8 *to, i32 kv, size_t n, i32 value) {
  if (kv == KV_INT8) ((i8 *)to)[n] = (i8)value;
  else ((i16 *)to)[n] = (i16)value;
}

// Tile: one head of one token.
void store_tile(void *arena, const Run *run, const StoreOp *op, i32 tile) {
  i32 token = tile / op->kv_heads, head = tile % op->kv_heads, size = op->head_size, padded = padded_head(size);
  i32 position = run->position + token;
  size_t from = token * row_bytes(ROW_FLOAT, op->kv_heads * size) / 4 + (size_t)head * size;
  size_t start = head_start(op->kv, op->capacity, size, head), scale_place = (size_t)head * op->capacity + position;
  const float *key = (const float *)at(arena, op->key_rows) + from, *value = (const float *)at(arena, op->value_rows) + from;
  float key_max = largest(key, size), value_max = largest(value, size);
  float levels = key_levels(op->kv, padded), of_value = value_levels(op->kv);
  float to_key = key_max > 1e-30f ? levels / key_max : 0, to_value = value_max > 1e-30f ? of_value / value_max : 0;
  ((float *)at(arena, op->key_scales))[scale_place] = key_max > 1e-30f ? key_max / levels : 0;
  ((float *)at(arena, op->value_scales))[scale_place] = value_max > 1e-30f ? value_max / of_value : 0;
  u8 *keys = (u8 *)at(arena, op->keys) + start, *values = (u8 *)at(arena, op->values) + start;
  size_t panel = (size_t)(position / KEY_PANEL) * KEY_PANEL * padded + position % KEY_PANEL * 2;
  for (i32 d = 0; d < padded; d++) {
    put_integer(keys, op->kv, panel + d / 2 * (2 * KEY_PANEL) + d % 2, d < size ? rounded(key[d] * to_key) : 0);
    put_integer(values, op->kv, (size_t)position * padded + d, d < size ? rounded(value[d] * to_value) : 0);
  }
}

// ---- scores and mixing of one span ----

INLINE i16x8 load_cached(const u8 *p, const int kv) { return kv == KV_INT8 ? load_i8_as_i16(p) : load_i16(p); }

// scores[row][p] of the span's positions, 8 at a time; `keys` is its first panel.
INLINE void score_span(const Rows *rows, const int n_rows, const int kv, i32 padded, const u8 *keys, const float *key_scales,
                       i32 count, float scores[ROW_TILE][SPAN]) {
  const int bytes = kv == KV_INT8 ? 1 : 2;
  for (i32 p = 0; p < count; p += KEY_PANEL, keys += KEY_PANEL * padded * bytes) {
    i32x4 sum[2 * ROW_TILE];
    for (int n = 0; n < 2 * n_rows; n++) sum[n] = (i32x4){0};
    const u8 *pair = keys;
    for (i32 d = 0; d < padded; d += 2, pair += 16 * bytes) {
      i16x8 k0 = load_cached(pair, kv), k1 = load_cached(pair + 8 * bytes, kv);
      UNROLL for (int r = 0; r < n_rows; r++) {
        i16x8 q = (i16x8)splat_32_bits(rows->queries[r] + d);
        sum[2 * r] += dot_i16(k0, q);
        sum[2 * r + 1] += dot_i16(k1, q);
      }
    }
    UNROLL for (int r = 0; r < n_rows; r++) {
      store_f32(scores[r] + p, to_float(sum[2 * r]) * load_f32(key_scales + p) * rows->scale[r]);
      store_f32(scores[r] + p + 4, to_float(sum[2 * r + 1]) * load_f32(key_scales + p + 4) * rows->scale[r]);
    }
  }
}

// Scores become weights times the values' scales, 0 where the row may not see; returns by what earlier results shrink.
static float weigh_span(State *state, i32 r, i32 visible, const float *value_scales, float scores[SPAN]) {
  i32 whole = round_up(visible, 4);
  if (visible <= 0) return 1;
  for (i32 p = visible; p < whole; p++) scores[p] = -1e30f;
  f32x4 most = splat(state->max[r]);
  for (i32 p = 0; p < whole; p += 4) most = max_f32(most, load_f32(scores + p));
  float max = max_lanes(most);
  f32x4 sum = splat(0);
  for (i32 p = 0; p < whole; p += 4) {
    f32x4 weight = exp_f32(load_f32(scores + p) - max);
    if (p + 4 > visible)
      for (i32 n = visible - p; n < 4; n++) weight[n] = 0;
    sum += weight;
    store_f32(scores + p, weight * load_f32(value_scales + p));
  }
  float shrink = exp_f32(splat(state->max[r] - max))[0];
  state->max[r] = max;
  state->sum[r] = state->sum[r] * shrink + sum_lanes(sum);
  return shrink;
}

// Adds the weighted values of the span, 8 dimensions at a time.
INLINE void mix_span(State *state, const int n_rows, const int kv, i32 padded, const u8 *values, i32 count,
                     float weights[ROW_TILE][SPAN], const float shrink[ROW_TILE]) {
  const int bytes = kv == KV_INT8 ? 1 : 2;
  for (i32 d = 0; d < padded; d += 8) {
    f32x4 sum[2 * ROW_TILE];
    UNROLL for (int r = 0; r < n_rows; r++) {
      sum[2 * r] = load_f32(state->mixed[r] + d) * shrink[r];
      sum[2 * r + 1] = load_f32(state->mixed[r] + d + 4) * shrink[r];
    }
    const u8 *from = values + d * bytes;
    for (i32 p = 0; p < count; p++, from += padded * bytes) {
      f32x4 v0, v1;
      if (kv == KV_INT8) {
        i16x8 wide = load_i8_as_i16(from);
        v0 = to_float(load_i16_as_i32(&wide));
        v1 = to_float(load_i16_as_i32((const i16 *)&wide + 4));
      } else {
        v0 = to_float(load_i16_as_i32(from));
        v1 = to_float(load_i16_as_i32(from + 8));
      }
      UNROLL for (int r = 0; r < n_rows; r++) {
        f32x4 weight = (f32x4)splat_32_bits(weights[r] + p);
        sum[2 * r] = multiply_add(v0, weight, sum[2 * r]);
        sum[2 * r + 1] = multiply_add(v1, weight, sum[2 * r + 1]);
      }
    }
    UNROLL for (int r = 0; r < n_rows; r++) {
      store_f32(state->mixed[r] + d, sum[2 * r]);
      store_f32(state->mixed[r] + d + 4, sum[2 * r + 1]);
    }
  }
}

INLINE void span(const AttendOp *op, const Rows *rows, State *state, const int n_rows, const int kv, i32 first, i32 count,
                 void *arena, i32 head) {
  i32 padded = padded_head(op->head_size), bytes = cache_bytes(kv);
  size_t start = head_start(kv, op->capacity, op->head_size, head) + (size_t)first * padded * bytes;
  size_t scale_place = (size_t)head * op->capacity + first;
  const float *key_scales = (const float *)at(arena, op->key_scales) + scale_place;
  const float *value_scales = (const float *)at(arena, op->value_scales) + scale_place;
  float scores[ROW_TILE][SPAN], shrink[ROW_TILE];
  score_span(rows, n_rows, kv, padded, (const u8 *)at(arena, op->keys) + start, key_scales, count, scores);
  for (int r = 0; r < n_rows; r++) {
    i32 visible = rows->visible[r] - first < count ? rows->visible[r] - first : count;
    shrink[r] = weigh_span(state, r, visible, value_scales, scores[r]);
    for (i32 p = visible < 0 ? 0 : visible; p < count; p++) scores[r][p] = 0;
  }
  mix_span(state, n_rows, kv, padded, (const u8 *)at(arena, op->values) + start, count, scores, shrink);
}

// One span with row count and cache type known to the compiler.
static void any_span(const AttendOp *op, const Rows *rows, State *state, i32 first, i32 count, void *arena, i32 head) {
  switch (rows->n_rows * 2 + (op->kv == KV_INT8)) {
    case 2: span(op, rows, state, 1, KV_INT16, first, count, arena, head); break;
    case 3: span(op, rows, state, 1, KV_INT8, first, count, arena, head); break;
    case 4: span(op, rows, state, 2, KV_INT16, first, count, arena, head); break;
    case 5: span(op, rows, state, 2, KV_INT8, first, count, arena, head); break;
    case 6: span(op, rows, state, 3, KV_INT16, first, count, arena, head); break;
    case 7: span(op, rows, state, 3, KV_INT8, first, count, arena, head); break;
    case 8: span(op, rows, state, 4, KV_INT16, first, count, arena, head); break;
    default: span(op, rows, state, 4, KV_INT8, first, count, arena, head); break;
  }
}

// ---- tiles ----

static i32 row_tiles(const Run *run, const AttendOp *op) { return (run->n_tokens * op->group + ROW_TILE - 1) / ROW_TILE; }

// How many tiles share the positions of a row tile.
static i32 shared_spans(const Run *run) { return run->n_tokens > 1 ? 1 : (run->position + SPAN) / SPAN; }

i32 attend_tiles(const Run *run, const AttendOp *op) { return op->kv_heads * row_tiles(run, op) * shared_spans(run); }

static size_t float_at(const AttendOp *op, i32 head, i32 row) {  // where a row's head lies in query and result rows
  size_t stride = row_bytes(ROW_FLOAT, op->kv_heads * op->group * op->head_size) / 4;
  return row / op->group * stride + (size_t)(head * op->group + row % op->group) * op->head_size;
}

static void take_rows(void *arena, const Run *run, const AttendOp *op, i32 head, i32 first_row, Rows *rows) {
  i32 left = run->n_tokens * op->group - first_row, size = op->head_size, padded = padded_head(size);
  float levels = query_levels(op->kv, padded);
  rows->n_rows = left < ROW_TILE ? left : ROW_TILE;
  for (i32 r = 0; r < rows->n_rows; r++) {
    const float *query = (const float *)at(arena, op->query_rows) + float_at(op, head, first_row + r);
    float max = largest(query, size), to_levels = max > 1e-30f ? levels / max : 0;
    for (i32 d = 0; d < padded; d++) rows->queries[r][d] = (i16)(d < size ? rounded(query[d] * to_levels) : 0);
    rows->scale[r] = (max > 1e-30f ? max / levels : 0) / __builtin_sqrtf((float)size);
    rows->visible[r] = run->position + (first_row + r) / op->group + 1;
  }
}

static void clear(State *state, i32 n_rows, i32 padded) {
  for (i32 r = 0; r < n_rows; r++) {
    state->max[r] = -1e30f;
    state->sum[r] = 0;
    for (i32 d = 0; d < padded; d++) state->mixed[r][d] = 0;
  }
}

static void put_result(void *arena, const AttendOp *op, i32 head, i32 row, const float *mixed, float sum) {
  float *to = (float *)at(arena, op->dst) + float_at(op, head, row);
  for (i32 d = 0; d < op->head_size; d++) to[d] = mixed[d] / sum;
}

// Partial results: [key head][row tile][span][row] of maximum, sum, padded head.
static float *partial(void *arena, const Run *run, const AttendOp *op, i32 head, i32 tile, i32 s, i32 r) {
  size_t n = ((size_t)(head * row_tiles(run, op) + tile) * shared_spans(run) + s) * ROW_TILE + r;
  return (float *)at(arena, op->partials) + n * (2 + padded_head(op->head_size));
}

void attend_tile(void *arena, const Run *run, const AttendOp *op, i32 tile) {
  i32 spans = shared_spans(run), s = tile % spans, rows_tile = tile / spans % row_tiles(run, op);
  i32 head = tile / spans / row_tiles(run, op), padded = padded_head(op->head_size);
  Rows rows;
  State state;
  take_rows(arena, run, op, head, rows_tile * ROW_TILE, &rows);
  clear(&state, rows.n_rows, padded);
  i32 first = spans > 1 ? s * SPAN : 0, end = rows.visible[rows.n_rows - 1];
  if (spans > 1 && end > first + SPAN) end = first + SPAN;
  for (; first < end; first += SPAN)
    any_span(op, &rows, &state, first, end - first < SPAN ? end - first : SPAN, arena, head);
  for (i32 r = 0; r < rows.n_rows; r++) {
    if (spans == 1) {
      put_result(arena, op, head, rows_tile * ROW_TILE + r, state.mixed[r], state.sum[r]);
      continue;
    }
    float *to = partial(arena, run, op, head, rows_tile, s, r);
    to[0] = state.max[r];
    to[1] = state.sum[r];
    for (i32 d = 0; d < padded; d++) to[2 + d] = state.mixed[r][d];
  }
}

// ---- merging ----

i32 merge_tiles(const Run *run, const AttendOp *op) {
  return shared_spans(run) > 1 ? op->kv_heads * row_tiles(run, op) : 0;
}

void merge_tile(void *arena, const Run *run, const AttendOp *op, i32 tile) {
  i32 head = tile / row_tiles(run, op), rows_tile = tile % row_tiles(run, op), spans = shared_spans(run);
  for (i32 r = 0; r < ROW_TILE && rows_tile * ROW_TILE + r < op->group; r++) {
    float max = -1e30f, sum = 0, mixed[MAX_HEAD];
    for (i32 d = 0; d < op->head_size; d++) mixed[d] = 0;
    for (i32 s = 0; s < spans; s++) {
      float other = partial(arena, run, op, head, rows_tile, s, r)[0];
      max = other > max ? other : max;
    }
    for (i32 s = 0; s < spans; s++) {
      const float *from = partial(arena, run, op, head, rows_tile, s, r);
      float factor = exp_f32(splat(from[0] - max))[0];
      sum += from[1] * factor;
      for (i32 d = 0; d < op->head_size; d++) mixed[d] += from[2 + d] * factor;
    }
    put_result(arena, op, head, rows_tile * ROW_TILE + r, mixed, sum);
  }
}
