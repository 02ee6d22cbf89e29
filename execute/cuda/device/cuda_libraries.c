/* Loading cuBLASLt, cuDNN and NCCL by name. */
#include "cuda_libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct loader {
    pthread_mutex_t lock;
    const char *const *names; /* names of the library's file, the headers' version first */
    bool is_loaded;
} loader;

static const char *const blas_names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                         NULL};
static const char *const dnn_names[] = {"libcudnn.so.9", "libcudnn.so", NULL};
static const char *const nccl_names[] = {"libnccl.so.2", "libnccl.so", NULL};

static loader blas_loader = {PTHREAD_MUTEX_INITIALIZER, blas_names, false};
static loader dnn_loader = {PTHREAD_MUTEX_INITIALIZER, dnn_names, false};
static loader nccl_loader = {PTHREAD_MUTEX_INITIALIZER, nccl_names, false};

static cuda_blas blas;
static cuda_dnn dnn;
static cuda_nccl nccl;

static ty_status library_open(const loader *from, void **out, ty_error *error)
{
    char first[256] = "";

    for (size_t i = 0; from->names[i] != NULL; i++) {
        *out = dlopen(from->names[i], RTLD_NOW | RTLD_LOCAL);
        if (*out != NULL)
            return TY_OK;
        if (i == 0)
            snprintf(first, sizeof first, "%s", dlerror());
    }
    return ty_fail(error, TY_EUNSUPPORTED, "%s", first);
}

/* Fills a table of consecutive function pointers from their names. */
static ty_status table_fill(void *library, const char *const *names, size_t count, void *table,
                            ty_error *error)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, names[i]);
        if (found == NULL)
            return ty_fail(error, TY_EUNSUPPORTED, "%s is not in the library that was found",
                           names[i]);
        memcpy((char *)table + i * sizeof found, &found, sizeof found);
    }
    return TY_OK;
}

static ty_status load(loader *from, const char *const *names, size_t count, void *table,
                      ty_error *error)
{
    void *library = NULL;
    ty_status status = TY_OK;

    pthread_mutex_lock(&from->lock);
    if (!from->is_loaded) {
        status = library_open(from, &library, error);
        if (status == TY_OK)
            status = table_fill(library, names, count, table, error);
        from->is_loaded = status == TY_OK;
    }
    pthread_mutex_unlock(&from->lock);
    return status;
}

#define NAME(function) #function,

ty_status cuda_blas_load(const cuda_blas **out, ty_error *error)
{
    static const char *const names[] = {CUDA_BLAS_FUNCTIONS(NAME)};

    *out = &blas;
    return load(&blas_loader, names, sizeof names / sizeof *names, &blas, error);
}

ty_status cuda_dnn_load(const cuda_dnn **out, ty_error *error)
{
    static const char *const names[] = {CUDA_DNN_FUNCTIONS(NAME)};

    *out = &dnn;
    return load(&dnn_loader, names, sizeof names / sizeof *names, &dnn, error);
}

ty_status cuda_nccl_load(const cuda_nccl **out, ty_error *error)
{
    static const char *const names[] = {CUDA_NCCL_FUNCTIONS(NAME)};

    *out = &nccl;
    return load(&nccl_loader, names, sizeof names / sizeof *names, &nccl, error);
}
