// The KV cache of one layer: integers with one scale per position and head.
//
// Keys lie in panels of 8 positions, values of two neighbouring dimensions side by side, so that scores of 8 positions
// are computed like the rows of a weight panel. Values lie position by position. Heads are padded to 8 dimensions.
#pragma once

#include "kernels.h"

INLINE i32 padded_head(i32 head_size) { return round_up(head_size, 8); }
INLINE i32 cache_bytes(i32 kv) { return kv == KV_INT16 ? 2 : 1; }

// Largest integers of keys and queries: 2^31 must hold a whole head of products.
INLINE float key_levels(i32 kv, i32 head) {
  return kv == KV_INT8 ? 127.0f : (float)(i32)__builtin_sqrtf(2147483000.0f / (float)head);
}
INLINE float query_levels(i32 kv, i32 head) {
  if (kv == KV_INT16) return key_levels(kv, head);
  float most = (float)(i32)(2147483000.0f / (127.0f * (float)head));
  return most < 32767.0f ? most : 32767.0f;
}
INLINE float value_levels(i32 kv) { return kv == KV_INT8 ? 127.0f : 32767.0f; }

// Where the keys (or values) of a head begin, and where a position's key begins in its panel: [dimension / 2][8][2].
INLINE size_t head_start(i32 kv, i32 capacity, i32 head_size, i32 head) {
  return (size_t)head * capacity * padded_head(head_size) * cache_bytes(kv);
}
