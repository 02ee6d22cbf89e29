/* SimGrid, loaded on demand, by the name and path that CMake found. */
#include "simgrid_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ty_simgrid_calls calls;
static ty_status loaded;
static ty_error reason;

/* dlsym returns object pointers; the symbols are functions. */
static ty_status find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    if (symbol == NULL)
        return ty_fail(&reason, TY_EBACKEND, TY_SIMGRID_NAME " has no %s", name);
    memcpy(function, &symbol, sizeof symbol);
    return TY_OK;
}

/* Constructors of the libraries end the program without a message if memory runs out: they use 3 of
 * 38 MiB with SimGrid 3.32, and the simulation of a small plan 3 more. */
#define ROOM_BYTES ((size_t)64 << 20)

static ty_status require_room(void)
{
    void *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (room == MAP_FAILED)
        return ty_fail(&reason, TY_ENOMEM,
                       "out of memory: SimGrid takes up to %zu MiB of the address space that is "
                       "allowed (ulimit -v); --engine flow and --no-simulate do without",
                       ROOM_BYTES >> 20);
    (void)munmap(room, ROOM_BYTES);
    return TY_OK;
}

static void load(void)
{
    void *library;

    if ((loaded = require_room()) != TY_OK)
        return;
    library = dlopen(TY_SIMGRID_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) /* not in the system's search path */
        library = dlopen(TY_SIMGRID_PATH, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        loaded = ty_fail(&reason, TY_EUNSUPPORTED,
                         "SimGrid does not load: %s; --engine flow does without", dlerror());
        return;
    }
#define FIND(name)                                                                                 \
    if (loaded == TY_OK)                                                                           \
        loaded = find(library, #name, &calls.name);
    TY_SIMGRID_CALLS(FIND)
#undef FIND
}

ty_status ty_simgrid_load(const ty_simgrid_calls **out, ty_error *error)
{
    pthread_once(&once, load);
    if (loaded != TY_OK)
        return ty_fail(error, loaded, "%s", reason.message);
    *out = &calls;
    return TY_OK;
}
