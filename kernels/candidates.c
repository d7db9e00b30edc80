// The few tokens that sampling needs out of a vector of logits.

#include "kernels.h"

// Whether place a has to leave before place b: it is smaller, or equal and comes later.
static i32 leaves_first(const float *values, const i32 *ids, i32 a, i32 b) {
  return values[a] < values[b] || (values[a] == values[b] && ids[a] > ids[b]);
}

// Restores the heap, whose first place leaves first, below `place`.
static void sift_down(float *values, i32 *ids, i32 n, i32 place) {
  for (;;) {
    i32 child = 2 * place + 1;
    if (child >= n) return;
    if (child + 1 < n && leaves_first(values, ids, child + 1, child)) child++;
    if (leaves_first(values, ids, place, child)) return;
    float value = values[place];
    i32 id = ids[place];
    values[place] = values[child], ids[place] = ids[child];
    values[child] = value, ids[child] = id;
    place = child;
  }
}

// The largest of the peaks; infinity if one is.
static float largest_peak(const float *peaks, i32 n) {
  f32x4 max = splat(-3.4028235e38f);
  i32 i = 0;
  for (; i + 4 <= n; i += 4) max = max_f32(load_f32(peaks + i), max);
  float most = max_lanes(max);
  for (; i < n; i++) most = peaks[i] > most ? peaks[i] : most;
  return most;
}

// The `most` largest of those logits that lie at most `below` under the largest; of equal ones the earlier win. `peaks` are
// those that LINEAR left of them. Writes their ids and behind these their values; ids are ascending if there are fewer than
// `most`. `found` has room for `most` of both. Returns how many there are, or -1 if a logit is not finite.
EXPORT(candidates) i32 candidates(const float *logits, const float *peaks, i32 n, float below, i32 most, i32 *found) {
  i32 panels = (n + PANEL_ROWS - 1) / PANEL_ROWS;
  float largest = largest_peak(peaks, panels), floor = largest - below;
  if (largest * 0.0f != 0) return -1;
  i32 *ids = found, count = 0;
  float *values = (float *)(found + most);
  for (i32 p = 0; p < panels; p++) {
    if (peaks[p] < floor) continue;  // nearly always
    i32 end = (p + 1) * PANEL_ROWS < n ? (p + 1) * PANEL_ROWS : n;
    for (i32 i = p * PANEL_ROWS; i < end; i++) {
      float value = logits[i];
      if (!(value >= floor)) continue;
      if (count < most) {
        ids[count] = i, values[count] = value;
        // A heap of the largest so far, whose least is what a newcomer must exceed.
        if (++count == most) {
          for (i32 place = count / 2 - 1; place >= 0; place--) sift_down(values, ids, count, place);
        }
      } else if (most > 0 && value > values[0]) {
        ids[0] = i, values[0] = value;
        sift_down(values, ids, count, 0);
      }
    }
  }
  for (i32 i = 0; i < count; i++) ((float *)ids)[count + i] = values[i];
  return count;
}
