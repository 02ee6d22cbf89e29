/* Preloaded into the program: emulates a host without SimGrid. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <string.h>

void *dlopen(const char *name, int flags)
{
    void *(*open)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

    return open(name != NULL && strstr(name, "simgrid") != NULL ? "/nowhere/libsimgrid.so" : name,
                flags);
}
