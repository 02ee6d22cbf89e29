/* Divisors of counts. */
#include "ty_base.h"

uint64_t ty_greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint32_t ty_next_divisor(uint32_t number, uint32_t after)
{
    uint32_t divisor = after + 1;

    for (; divisor <= number / divisor; divisor++)
        if (number % divisor == 0)
            return divisor;
    for (uint32_t other = number / divisor; other > 0;
         other--) /* of a pair of divisors, the less */
        if (number % other == 0 && number / other > after)
            return number / other;
    return 0;
}
