/* Reads memory and does next to nothing with it: what `benchmarks/bandwidth.py` times, natively and in the page. */
typedef unsigned long long lanes __attribute__((vector_size(16)));

enum { AHEAD = 16 };

/* The exclusive or of n bytes, n a multiple of 256: a result, so that no read can be left out. */
__attribute__((visibility("default"))) unsigned stream(const lanes *from, unsigned long n)
{
    lanes found[AHEAD] = {0};
    const lanes *end = from + n / sizeof(lanes);
    for (; from < end; from += AHEAD)
        for (int i = 0; i < AHEAD; i++)
            found[i] ^= from[i];
    for (int i = 1; i < AHEAD; i++)
        found[0] ^= found[i];
    return (unsigned)(found[0][0] ^ found[0][1]);
}
