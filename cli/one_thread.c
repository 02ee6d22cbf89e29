/* Before anything of any library runs: no threads of a BLAS. igraph brings one along that nothing
 * here uses, and OpenBLAS starts a thread for each core as it is loaded. Where memory is limited
 * these try without end to get theirs, and hold up the fork of a simulation, which waits for them.
 * It can be told otherwise by the environment alone, which it reads as it is loaded: the program
 * starts itself once more with it. What stands in .preinit_array comes before the constructors of
 * all shared libraries (System V ABI, "Initialization and Termination Functions"). */
#include "cli.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#if defined(__ELF__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define SETTING "OPENBLAS_NUM_THREADS="
#define MOST_VARIABLES 4096

static void start_without_threads(int count, char **words, char **environment)
{
    char *changed[MOST_VARIABLES + 2];
    char program[PATH_MAX];
    size_t kept = 0;
    ssize_t length;

    (void)count;
    for (char **at = environment; *at != NULL; at++) {
        if (strcmp(*at, SETTING "1") == 0)
            return;
        if (strncmp(*at, SETTING, sizeof SETTING - 1) == 0)
            continue;
        if (kept == MOST_VARIABLES)
            return;
        changed[kept++] = *at;
    }
    changed[kept] = SETTING "1";
    changed[kept + 1] = NULL;
    length = readlink("/proc/self/exe", program, sizeof program - 1); /* whose name others see */
    if (length <= 0)
        return;
    program[length] = '\0';
    (void)execve(program, words, changed);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first)(int, char **, char **) = start_without_threads;

#endif
