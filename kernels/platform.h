// The few things a thread needs from where it runs.
#pragma once

#include "vec.h"

#if defined(__wasm__) && !defined(__wasm_atomics__)
// One thread, no shared memory: nobody ever waits.
INLINE void sleep_while_equal(i32 *word, i32 value) { (void)word, (void)value; }
INLINE void wake_all(i32 *word) { (void)word; }
INLINE void pause_briefly(void) {}
#elif defined(__wasm__)
INLINE void sleep_while_equal(i32 *word, i32 value) { __builtin_wasm_memory_atomic_wait32(word, value, -1); }
INLINE void wake_all(i32 *word) { __builtin_wasm_memory_atomic_notify(word, -1); }
INLINE void pause_briefly(void) {}
#else
// platform_native.c
void sleep_while_equal(i32 *word, i32 value);
void wake_all(i32 *word);
INLINE void pause_briefly(void) {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}
#endif

#define READ(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define WRITE(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST)
