/*
 * Starts the program once more with environment variables that libraries read only while they are
 * loaded. Functions in .preinit_array run before the constructors of all shared libraries (System V
 * ABI, "Initialization and Termination Functions").
 *
 * No BLAS threads: igraph links a BLAS that nothing here uses, and OpenBLAS starts a thread per
 * core while it is loaded. With little memory these threads retry their allocations forever and
 * block the fork of a simulation, which waits for them.
 *
 * Memory in large pages if the kernel gives them on request, kept and reused. A cluster of 262,144
 * devices needs arrays of some hundred megabytes, allocated and freed several times. With pages of
 * 4 KiB their page faults cost more than the work (docs/results/performance.md).
 *
 * Without memory, those constructors end the program without a reason or never return. So their
 * allocations are tried here first.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "cli.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__ELF__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define THREADS "OPENBLAS_NUM_THREADS="
#define MEMORY "GLIBC_TUNABLES="
#define LARGE_PAGES                                                                                \
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736"
#define MOST_VARIABLES 4096

/* Memory for the libraries' constructors and a small plan. */
#define ROOM_BYTES ((size_t)8 << 20)
/* OpenBLAS's buffer: 0.3.21 allocates it at the first product, 0.3.29 when it is loaded. */
#define BLAS_BYTES ((size_t)128 << 20)

static size_t blas_bytes(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "openblas_get_config");
    char *(*config)(void);
    unsigned major, minor, patch;

    if (symbol == NULL)
        return 0;
    memcpy(&config, &symbol, sizeof config);
    if (sscanf(config(), "OpenBLAS %u.%u.%u", &major, &minor, &patch) != 3)
        return 0;
    return major > 0 || minor > 3 || (minor == 3 && patch > 21) ? BLAS_BYTES : 0;
}

/* Only the C library is available here. */
static void require_room(void)
{
    const size_t bytes = ROOM_BYTES + blas_bytes();
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (room == MAP_FAILED) {
        dprintf(STDERR_FILENO,
                "trainyard: error: out of memory: the libraries leave less than %zu MiB of the "
                "address space that is allowed (ulimit -v)\n",
                bytes >> 20);
        _exit(EXIT_FAILED);
    }
    (void)munmap(room, bytes);
}

static void reexecute(int count, char **words, char **environment)
{
    char *changed[MOST_VARIABLES + 3];
    char program[PATH_MAX];
    size_t kept = 0;
    ssize_t length;
    bool has_one_thread = false, has_memory = false;

    (void)count;
    require_room();
    for (char **at = environment; *at != NULL; at++) {
        const bool is_of_threads = strncmp(*at, THREADS, sizeof THREADS - 1) == 0;

        has_one_thread = has_one_thread || strcmp(*at, THREADS "1") == 0;
        has_memory = has_memory || strncmp(*at, MEMORY, sizeof MEMORY - 1) == 0;
        if (is_of_threads)
            continue;
        if (kept == MOST_VARIABLES)
            return;
        changed[kept++] = *at;
    }
    if (has_one_thread && has_memory)
        return;
    changed[kept++] = THREADS "1";
    if (!has_memory) /* keep the user's setting */
        changed[kept++] = MEMORY LARGE_PAGES;
    changed[kept] = NULL;
    length = readlink("/proc/self/exe", program,
                      sizeof program - 1); /* its name is shown to other programs */
    if (length <= 0)
        return;
    program[length] = '\0';
    (void)execve(program, words, changed);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = reexecute;

/* Resets the setting for child processes. */
__attribute__((constructor)) static void forget_memory(void)
{
    const char *found = getenv("GLIBC_TUNABLES");

    if (found != NULL && strcmp(found, LARGE_PAGES) == 0)
        (void)unsetenv("GLIBC_TUNABLES");
}

#endif
