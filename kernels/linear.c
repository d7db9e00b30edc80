// Rows times a weight matrix. The matrix is panels of 16 rows, a tile is neighbouring panels, so that each thread reads
// long streams of memory; with many tokens the tokens' rows stay in the cache and the panel in the first level.

#include "kernels.h"

enum { LEAST_TILE_BYTES = 8 * 1024 };

static i32 panels_of(const LinearOp *op) { return (op->outputs + PANEL_ROWS - 1) / PANEL_ROWS; }

// How many of the panels that are left the next tile has. The first are large, for long streams; the last are small, so
// that threads finish at nearly the same time, yet long beside the cost of claiming one.
static i32 tile_size(const Run *run, const LinearOp *op, i32 left) {
  i32 least = LEAST_TILE_BYTES / (blocks_of(op->inputs) * panel_block_bytes(op->format) * rows_of(run, op->flags));
  i32 share = run->threads > 1 ? left / run->threads : left;
  i32 size = share > least ? share : least;
  return size < 1 ? 1 : size < left ? size : left;
}

i32 linear_tiles(const Run *run, const LinearOp *op) {
  if (rows_of(run, op->flags) == 0) return 0;
  i32 tiles = 0;
  for (i32 left = panels_of(op); left > 0; tiles++) left -= tile_size(run, op, left);
  return tiles;
}

typedef struct {
  const LinearOp *op;
  const u8 *inputs;
  float *out;
  const float *bias, *residual;
  size_t in_bytes, out_floats;
  i32 blocks;
} Job;

static void point_at(const Job *job, i32 token, i32 slot, Inputs *in) {
  const u8 *row = job->inputs + (size_t)token * job->in_bytes;
  in->values[slot] = row;
  in->scales[slot] = row_scales(row, job->op->src_row, job->blocks);
  in->sums[slot] = in->scales[slot] + job->blocks;
}

static void put(const Job *job, i32 token, i32 row, f32x4 v) {
  size_t place = token * job->out_floats + row;
  if (job->bias) v += load_f32(job->bias + row);
  if (job->residual) v += load_f32(job->residual + place);
  store_f32(job->out + place, v);
}

static float peak_of_whole(const float *x) {
  f32x4 a = load_f32(x), b = load_f32(x + 4), c = load_f32(x + 8), d = load_f32(x + 12);
  float poison = sum_lanes((a + b) * 0.0f + (c + d) * 0.0f);  // 0, unless one is not finite
  return poison == 0 ? max_lanes(max_f32(max_f32(a, b), max_f32(c, d))) : __builtin_inff();
}

// The largest of up to 16 values; infinity if one is infinite or not a number.
static float peak_of(const float *x, i32 n) {
  if (n >= PANEL_ROWS) return peak_of_whole(x);
  float filled[PANEL_ROWS];
  for (i32 i = 0; i < PANEL_ROWS; i++) filled[i] = x[i < n ? i : 0];
  return peak_of_whole(filled);
}

static void one_token(const Job *job, const u8 *panel, i32 row, i32 token) {
  Inputs in;
  f32x4 totals[4];
  point_at(job, token, 0, &in);
  if (job->op->format == FORMAT_Q8) q8_one(panel, job->blocks, &in, totals);
  else q4_one(panel, job->op->format, job->op->src_row, job->blocks, &in, totals);
  for (int g = 0; g < 4; g++) put(job, token, row + 4 * g, totals[g]);
}

static void four_tokens(const Job *job, const u8 *panel, i32 row, i32 token) {
  Inputs in;
  for (int t = 0; t < 4; t++) point_at(job, token + t, t, &in);
  for (int group = 0; group < 4; group += 2) {
    f32x4 totals[8];
    if (job->op->format == FORMAT_Q8) q8_four(panel, job->blocks, &in, group, totals);
    else q4_four(panel, job->op->format, job->op->src_row, job->blocks, &in, group, totals);
    for (int n = 0; n < 8; n++) put(job, token + n / 2, row + 4 * (group + n % 2), totals[n]);
  }
}

void linear_tile(void *arena, const Run *run, const LinearOp *op, i32 tile) {
  i32 blocks = blocks_of(op->inputs), tokens = rows_of(run, op->flags);
  size_t in_bytes = row_bytes(op->src_row, op->inputs);
  Job job = {
    .op = op,
    .inputs = (const u8 *)at(arena, op->src) + first_row(run, op->flags) * in_bytes,
    .out = at(arena, op->dst),
    .bias = op->bias == NOTHING ? 0 : at(arena, op->bias),
    .residual = op->residual == NOTHING ? 0 : at(arena, op->residual),
    .in_bytes = in_bytes,
    .out_floats = row_bytes(ROW_FLOAT, op->outputs) / 4,
    .blocks = blocks,
  };
  i32 panels = panels_of(op), first = 0;
  for (i32 n = 0; n < tile; n++) first += tile_size(run, op, panels - first);
  i32 end = first + tile_size(run, op, panels - first);
  for (i32 p = first; p < end; p++) {
    const u8 *panel = (const u8 *)at(arena, op->weight) + (size_t)p * blocks * panel_block_bytes(op->format);
    i32 token = 0;
    for (; token + 4 <= tokens; token += 4) four_tokens(&job, panel, p * PANEL_ROWS, token);
    for (; token < tokens; token++) one_token(&job, panel, p * PANEL_ROWS, token);
    if (op->peaks == NOTHING) continue;
    for (token = 0; token < tokens; token++) {
      const float *results = job.out + token * job.out_floats + p * PANEL_ROWS;
      ((float *)at(arena, op->peaks))[token * panels + p] = peak_of(results, op->outputs - p * PANEL_ROWS);
    }
  }
}
