// Vectors of 128 bits over the compilers' vector types, so that one source serves wasm SIMD128 (with or without
// relaxed SIMD), x86-64 and arm64. Plain C operators do nearly everything; what has no operator is below, with a form in
// plain C for any other machine.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef uint8_t u8;
typedef int8_t i8;
typedef int16_t i16;
typedef uint16_t u16;
typedef int32_t i32;
typedef uint32_t u32;

typedef float f32x4 __attribute__((vector_size(16)));
typedef i32 i32x4 __attribute__((vector_size(16)));
typedef u32 u32x4 __attribute__((vector_size(16)));
typedef i16 i16x8 __attribute__((vector_size(16)));
typedef u16 u16x8 __attribute__((vector_size(16)));
typedef i8 i8x16 __attribute__((vector_size(16)));
typedef u8 u8x16 __attribute__((vector_size(16)));
typedef i16 i16x4 __attribute__((vector_size(8)));
typedef i8 i8x8 __attribute__((vector_size(8)));

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>
#elif defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

// Whether products of bytes are one instruction (`dot_bytes` below). Without it 4-bit weights are widened to 16 bits.
#if defined(__wasm_relaxed_simd__) || defined(__SSSE3__) || defined(__ARM_NEON)
#define HAVE_DOT_BYTES 1
#else
#define HAVE_DOT_BYTES 0
#endif

// Keeps LLVM from regrouping a chain of additions across a value: regrouped chains need more registers than there are,
// and spilling them took half of the speed of the 8-bit kernel.
#if defined(__wasm__)
#define KEEP(v) __asm__ volatile("" : "+r"(v))
#elif defined(__SSE2__)
#define KEEP(v) __asm__ volatile("" : "+x"(v))
#elif defined(__ARM_NEON)
#define KEEP(v) __asm__ volatile("" : "+w"(v))
#else
#define KEEP(v) ((void)0)
#endif

// ---- loads and stores, at any address ----

INLINE f32x4 load_f32(const void *p) { f32x4 v; __builtin_memcpy(&v, p, 16); return v; }
INLINE i16x8 load_i16(const void *p) { i16x8 v; __builtin_memcpy(&v, p, 16); return v; }
INLINE u8x16 load_u8(const void *p) { u8x16 v; __builtin_memcpy(&v, p, 16); return v; }
INLINE void store_f32(void *p, f32x4 v) { __builtin_memcpy(p, &v, 16); }

// 8 bytes as 16-bit integers; 4 16-bit integers as 32-bit ones.
INLINE i16x8 load_i8_as_i16(const void *p) {
#if defined(__wasm_simd128__)
  return (i16x8)wasm_i16x8_load8x8(p);
#else
  i8x8 v;
  __builtin_memcpy(&v, p, 8);
  return __builtin_convertvector(v, i16x8);
#endif
}
INLINE i32x4 load_i16_as_i32(const void *p) {
#if defined(__wasm_simd128__)
  return (i32x4)wasm_i32x4_load16x4(p);
#else
  i16x4 v;
  __builtin_memcpy(&v, p, 8);
  return __builtin_convertvector(v, i32x4);
#endif
}

// The 32, or 64, bits at p in every lane.
INLINE i32x4 splat_32_bits(const void *p) {
  i32 x;
  __builtin_memcpy(&x, p, 4);
  return (i32x4){x, x, x, x};
}
INLINE i16x8 splat_64_bits(const void *p) {
  typedef int64_t i64x2 __attribute__((vector_size(16)));
  int64_t x;
  __builtin_memcpy(&x, p, 8);
  return (i16x8)(i64x2){x, x};
}

// ---- floats ----

INLINE f32x4 splat(float x) { return (f32x4){x, x, x, x}; }
INLINE f32x4 to_float(i32x4 v) { return __builtin_convertvector(v, f32x4); }
INLINE f32x4 choose(i32x4 mask, f32x4 a, f32x4 b) { return (f32x4)(((i32x4)a & mask) | ((i32x4)b & ~mask)); }
INLINE f32x4 max_f32(f32x4 a, f32x4 b) {
#if defined(__wasm_simd128__)
  return (f32x4)wasm_f32x4_pmax((v128_t)a, (v128_t)b);
#else
  return choose(a > b, a, b);
#endif
}
INLINE f32x4 abs_f32(f32x4 v) { return (f32x4)((i32x4)v & 0x7fffffff); }

// a * b + c, rounded once where that is cheap.
INLINE f32x4 multiply_add(f32x4 a, f32x4 b, f32x4 c) {
#if defined(__wasm_relaxed_simd__)
  return (f32x4)__builtin_wasm_relaxed_madd_f32x4(a, b, c);
#else
  return a * b + c;
#endif
}

// The nearest integer, ties to even, of values below 2^22: adding 1.5 * 2^23 leaves it in the lowest bits.
INLINE i32x4 nearest(f32x4 v) { return (i32x4)(v + 12582912.0f) - (i32x4)splat(12582912.0f); }

INLINE float sum_lanes(f32x4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }
INLINE float max_lanes(f32x4 v) {
  float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}

// Four finite float16 numbers. Their bits, moved to a float's place, are the number divided by 2^112; this way
// subnormal numbers come out right too. (WebAssembly has no float16 conversion.)
#define HALF_FACTOR 5.192296858534828e33f
INLINE f32x4 half_over_factor(const void *p) { return (f32x4)((load_i16_as_i32(p) << 13) & (i32)0x8fffffff); }
INLINE f32x4 load_half(const void *p) { return half_over_factor(p) * HALF_FACTOR; }
INLINE float half(u16 bits) {
  i32 x = (i32)((u32)(i32)(i16)bits << 13) & (i32)0x8fffffff;
  float f;
  __builtin_memcpy(&f, &x, 4);
  return f * HALF_FACTOR;
}

// e^x with a relative error below 2e-7; below -87 a number near 0 (Cephes' polynomial for expf).
INLINE f32x4 exp_f32(f32x4 x) {
  x = choose(x > 88.0f, splat(88.0f), max_f32(x, splat(-87.0f)));
  i32x4 n = nearest(x * 1.44269504f);
  f32x4 whole = to_float(n);
  f32x4 r = multiply_add(whole, splat(-0.693359375f), x);
  r = multiply_add(whole, splat(2.12194440e-4f), r);
  f32x4 p = splat(1.9875691500e-4f);
  p = multiply_add(p, r, splat(1.3981999507e-3f));
  p = multiply_add(p, r, splat(8.3334519073e-3f));
  p = multiply_add(p, r, splat(4.1665795894e-2f));
  p = multiply_add(p, r, splat(1.6666665459e-1f));
  p = multiply_add(p, r, splat(5.0000001201e-1f));
  p = multiply_add(p, r * r, r) + 1.0f;
  return p * (f32x4)((n + 127) << 23);
}

// ---- integer products ----

// Products of 16-bit integers, neighbours added: 4 sums of 2.
INLINE i32x4 dot_i16(i16x8 a, i16x8 b) {
#if defined(__wasm_simd128__)
  return (i32x4)wasm_i32x4_dot_i16x8((v128_t)a, (v128_t)b);
#elif defined(__SSE2__)
  return (i32x4)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__ARM_NEON)
  return (i32x4)vpaddq_s32(vmull_s16(vget_low_s16((int16x8_t)a), vget_low_s16((int16x8_t)b)),
                           vmull_high_s16((int16x8_t)a, (int16x8_t)b));
#else
  i32x4 sums;
  for (int n = 0; n < 4; n++) sums[n] = a[2 * n] * b[2 * n] + a[2 * n + 1] * b[2 * n + 1];
  return sums;
#endif
}

#if HAVE_DOT_BYTES
// Products of signed bytes with bytes 0 … 127, neighbours added: 8 sums of 2, which must fit 16 bits.
INLINE i16x8 dot_bytes(i8x16 a, u8x16 b) {
#if defined(__wasm_relaxed_simd__)
  return (i16x8)wasm_i16x8_relaxed_dot_i8x16_i7x16((v128_t)a, (v128_t)b);
#elif defined(__SSSE3__)
  return (i16x8)_mm_maddubs_epi16((__m128i)b, (__m128i)a);
#else
  int8x16_t x = (int8x16_t)a, y = (int8x16_t)b;
  return (i16x8)vpaddq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)), vmull_high_s8(x, y));
#endif
}
#endif

// Neighbours added: 4 sums of 2.
INLINE i32x4 add_neighbours(i16x8 v) {
#if defined(__wasm_simd128__)
  return (i32x4)wasm_i32x4_extadd_pairwise_i16x8((v128_t)v);
#else
  return dot_i16(v, (i16x8){1, 1, 1, 1, 1, 1, 1, 1});
#endif
}

// Bytes 0 … 7, or 8 … 15, as 16-bit integers.
INLINE i16x8 low_bytes(u8x16 v) { return (i16x8)__builtin_shufflevector(v, (u8x16){0}, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
INLINE i16x8 high_bytes(u8x16 v) { return (i16x8)__builtin_shufflevector(v, (u8x16){0}, 8, 16, 9, 17, 10, 18, 11, 19, 12, 20, 13, 21, 14, 22, 15, 23); }
