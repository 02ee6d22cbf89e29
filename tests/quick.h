/* Extent of a test: enough before every commit, or, under the label `slow`, everything (ALL of
 * ty_test in CMakeLists.txt). */
#ifndef TY_TEST_QUICK_H
#define TY_TEST_QUICK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline bool is_quick(void)
{
    return getenv("TY_ALL") == NULL;
}

static inline uint32_t quick_or_all(uint32_t quick, uint32_t all)
{
    return is_quick() ? quick : all;
}

#endif
