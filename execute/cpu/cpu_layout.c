/* Transposes of images, and of their gradients. */
#include "cpu_layer.h"
#include "cpu_math.h"

/* One sample's [rows][columns] matrix to [columns][rows]. */
CPU_CLONES static void transpose(uint64_t rows, uint64_t columns, const float *from, bool adds,
                                 float *to)
{
    for (uint64_t c = 0; c < columns; c++)
        for (uint64_t r = 0; r < rows; r++) {
            float sum = from[r * columns + c];
            to[c * rows + r] = adds ? to[c * rows + r] + sum : sum;
        }
}

void cpu_transpose(const ty_stage_device *stage, uint64_t rows, uint64_t columns, const void *from,
                   bool adds, void *to)
{
    for (uint64_t b = 0; b < stage_batch(stage); b++)
        transpose(rows, columns, (const float *)from + b * rows * columns, adds,
                  (float *)to + b * rows * columns);
}
