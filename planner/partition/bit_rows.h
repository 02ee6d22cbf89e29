/* Sets as rows of 64-bit words. */
#ifndef TY_BIT_ROWS_H
#define TY_BIT_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint32_t bit_words(uint32_t bits)
{
    return bits / 64 + (bits % 64 != 0);
}

static inline bool bit_has(const uint64_t *row, uint32_t bit)
{
    return (row[bit / 64] >> (bit % 64) & 1) != 0;
}

static inline void bit_add(uint64_t *row, uint32_t bit)
{
    row[bit / 64] |= (uint64_t)1 << (bit % 64);
}

static inline void bit_remove(uint64_t *row, uint32_t bit)
{
    row[bit / 64] &= ~((uint64_t)1 << (bit % 64));
}

static inline void bits_join(uint64_t *row, const uint64_t *other, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        row[w] |= other[w];
}

static inline bool bits_inside(const uint64_t *part, const uint64_t *whole, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        if ((part[w] & ~whole[w]) != 0)
            return false;
    return true;
}

static inline uint32_t bits_count(const uint64_t *row, uint32_t words)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < words; w++)
        for (uint64_t rest = row[w]; rest != 0; rest &= rest - 1)
            count++;
    return count;
}

#endif
