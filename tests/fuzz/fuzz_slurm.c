/* Importing Slurm topology.conf. */
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ranges that name thousands of hosts are valid and take seconds: a run would do little else. A
 * file beyond the maximum number of devices is refused at once, and stays. */
static bool names_thousands(const uint8_t *bytes, size_t length)
{
    size_t digits = 0, longest = 0, brackets = 0, most = 0;

    for (size_t i = 0; i < length; i++) {
        digits = isdigit(bytes[i]) ? digits + 1 : 0;
        if (digits <= 6 && (i + 1 == length || !isdigit(bytes[i + 1])))
            longest = digits > longest ? digits : longest;
        brackets = isspace(bytes[i]) ? 0 : brackets + (bytes[i] == '[');
        most = brackets > most ? brackets : most; /* of a word: its ranges multiply */
    }
    return most > 3 || longest > (most > 1 ? 1 : 3);
}

#define SKIPS names_thousands
#define FORMAT "slurm"
#define HOST "jetson-nano" /* a single device */
#include "cluster_import_fuzz.h"
