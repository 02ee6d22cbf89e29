/* Backends by name. "cuda" is in a plugin of its own, so that the worker starts on hosts that have
 * no GPU and none of its libraries. */
#include "device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_plugin.h"

/* ---- The plugin -------------------------------------------------------------------------- */

/* Loaded once, by whichever thread asks first, and never unloaded: CUDA keeps threads of its own.
 */
static pthread_mutex_t plugin_lock = PTHREAD_MUTEX_INITIALIZER;
static const ty_cuda_plugin *plugin;

/* The path in TRAINYARD_CUDA_PLUGIN, or the installed plugin, or the one next to the program as
 * built. The loader's search path is not used, since it may include the current folder. */
static void plugin_path(char *out, size_t size)
{
    static const char *const places[] = {"../lib/trainyard/worker/", ""};
    const char *named = getenv("TRAINYARD_CUDA_PLUGIN");
    char program[4096] = "";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash;

    if (named != NULL && named[0] != '\0') {
        snprintf(out, size, "%s", named);
        return;
    }
    program[length > 0 ? length : 0] = '\0';
    slash = strrchr(program, '/');
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(out, size, "%.*s/%s" TY_CUDA_PLUGIN_FILE,
                 slash != NULL ? (int)(slash - program) : 0, program, places[i]);
        if (access(out, R_OK) == 0)
            return;
    }
}

static ty_status plugin_load(bool is_alone, ty_error *error)
{
    char path[4096 + sizeof "/../lib/trainyard/worker/" TY_CUDA_PLUGIN_FILE];
    ty_cuda_plugin_getter *get;
    const ty_cuda_plugin *found;
    void *handle;

    plugin_path(path, sizeof path);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return ty_fail(error, TY_EUNSUPPORTED, "the cuda backend cannot be loaded: %s", dlerror());
    /* POSIX lets an object pointer be a function; C does not say so. */
    *(void **)(void *)&get = dlsym(handle, TY_CUDA_PLUGIN_SYMBOL);
    found = get != NULL ? get(is_alone) : NULL;
    if (found == NULL || found->version != TY_CUDA_PLUGIN_VERSION) {
        dlclose(handle);
        return ty_fail(error, TY_EUNSUPPORTED, "%s is not of this version of trainyard", path);
    }
    plugin = found;
    return TY_OK;
}

static ty_status cuda_find(bool is_alone, const ty_device_backend **out, ty_error *error)
{
    ty_status status = TY_OK;

    pthread_mutex_lock(&plugin_lock);
    if (plugin == NULL)
        status = plugin_load(is_alone, error);
    pthread_mutex_unlock(&plugin_lock);
    if (status == TY_OK)
        status = plugin->check(error);
    if (status == TY_OK)
        *out = plugin->backend;
    return status;
}

ty_status ty_device_backend_find(const char *name, bool is_alone, const ty_device_backend **out,
                                 ty_error *error)
{
    if (strcmp(name, ty_device_cpu.name) == 0) {
        *out = &ty_device_cpu;
        return TY_OK;
    }
    if (strcmp(name, ty_device_replay.name) == 0) {
        *out = &ty_device_replay;
        return TY_OK;
    }
    if (strcmp(name, "cuda") == 0)
        return cuda_find(is_alone, out, error);
    return ty_fail(error, TY_EUNSUPPORTED,
                   "no backend is called \"%s\"; this worker has \"cpu\", \"cuda\" and \"replay\"",
                   name);
}
