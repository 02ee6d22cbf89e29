/* Inputs for the kernel tests. */
#ifndef TY_TESTS_GPU_EMULATOR_CASE_NUMBERS_H
#define TY_TESTS_GPU_EMULATOR_CASE_NUMBERS_H

#include <cstdint>
#include <vector>

/* Numbers from -1 to 1, from a generator seeded with `seed`. */
inline std::vector<float> numbers(uint64_t count, uint64_t seed)
{
    std::vector<float> made(count);

    for (float &x : made) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x = (float)((double)(seed >> 40) / (double)(1u << 23) - 1);
    }
    return made;
}

#endif
