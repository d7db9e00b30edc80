// Native threads: sleeping on a word of memory through one mutex and condition, portable to any POSIX system. Sleeping is
// rare (threads spin first), so that all words share the one is no loss. And which build suits this processor.

#include <pthread.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels.h"
#include "platform.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void sleep_while_equal(i32 *word, i32 value) {
  pthread_mutex_lock(&mutex);
  while (READ(word) == value) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

void wake_all(i32 *word) {
  (void)word;
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

// Whether this processor and system run the x86-64-v3 build: its extensions, and registers of 256 bits that are saved.
EXPORT(has_avx2) i32 has_avx2(void) {
#if defined(__x86_64__)
  u32 a, b, c, d, low, high;
  const u32 of_leaf_1 = bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & of_leaf_1) != of_leaf_1) return 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6) return 0;
  const u32 of_leaf_7 = bit_BMI | bit_AVX2 | bit_BMI2;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & of_leaf_7) != of_leaf_7) return 0;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & bit_LZCNT);
#else
  return 0;
#endif
}
