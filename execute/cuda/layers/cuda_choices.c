/*
 * Algorithms chosen by measurement. Libraries list several per operation, best guess first. A stage
 * opened for profiling (`trainyard profile`) measures which is fastest on a GPU, and notes it in a
 * file of the user's cache folder. The key has the operation, the GPU, and the versions of the
 * driver and the libraries. Training only reads the file. So it tries nothing, every rank with the
 * same file chooses alike, and runs are reproducible bit by bit.
 *
 *   $XDG_CACHE_HOME/trainyard/cuda-NVIDIA-H100-13000-13010.txt, or in ~/.cache; lines `KEY =
 * CHOICE`
 */
#include "cuda_stage.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096 };
#define MOST_BYTES (UINT64_C(4) << 20) /* size of the file; some ten thousand choices */

typedef struct choice {
    char key[CUDA_KEY_SIZE];
    uint32_t value;
} choice;

struct cuda_choices {
    char path[PATH_SIZE];
    choice *list;
    uint32_t count, room;
    bool is_new; /* some choices are not in the file */
};

/* @param gpu its name, up to a comma */
static void path_make(const ty_stage_device *stage, const char *gpu, char *path)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool has_cache = cache != NULL && cache[0] != '\0';
    int driver = 0, length;

    (void)cudaDriverGetVersion(&driver);
    length = snprintf(path, PATH_SIZE, "%s%s/trainyard/cuda-",
                      has_cache      ? cache
                      : home != NULL ? home
                                     : "/tmp",
                      has_cache ? "" : "/.cache");
    if (length < 0 || length > PATH_SIZE / 2)
        length = snprintf(path, PATH_SIZE, "/tmp/cuda-");
    for (; *gpu != '\0' && *gpu != ',' && length < PATH_SIZE / 2 + 128; gpu++)
        path[length++] = isalnum((unsigned char)*gpu) ? *gpu : '-';
    snprintf(path + length, (size_t)(PATH_SIZE - length), "-%d-%zu.txt", driver,
             stage->own->blas->cublasLtGetVersion());
}

static choice *choice_of(const cuda_choices *choices, const char *key)
{
    for (uint32_t i = 0; i < choices->count; i++)
        if (strcmp(choices->list[i].key, key) == 0)
            return &choices->list[i];
    return NULL;
}

static ty_status choice_put(cuda_choices *choices, const char *key, uint32_t value, ty_error *error)
{
    choice *at = choice_of(choices, key);

    if (at == NULL && choices->count == choices->room) {
        const uint32_t room = choices->room == 0 ? 64 : 2 * choices->room;
        choice *grown = ty_resize(choices->list, room, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        choices->list = grown;
        choices->room = room;
    }
    if (at == NULL)
        at = &choices->list[choices->count++];
    snprintf(at->key, sizeof at->key, "%s", key);
    at->value = value;
    return TY_OK;
}

/* Ignores invalid lines and unreadable files; a missing choice means the library's first guess. */
static ty_status choices_read(cuda_choices *choices, ty_error *error)
{
    char *text = NULL, *rest, *line;
    size_t length = 0;
    ty_status status = TY_OK;

    if (!ty_file_exists(choices->path) ||
        ty_file_read(choices->path, MOST_BYTES, &text, &length, NULL) != TY_OK)
        return TY_OK;
    rest = text;
    while (status == TY_OK && (line = strtok_r(rest, "\n", &rest)) != NULL) {
        char *equals = strstr(line, " = "), *end;
        unsigned long value;

        if (equals == NULL || equals - line >= CUDA_KEY_SIZE)
            continue;
        *equals = '\0';
        value = strtoul(equals + 3, &end, 10);
        if (end != equals + 3 && *end == '\0' && value < UINT32_MAX)
            status = choice_put(choices, line, (uint32_t)value, error);
    }
    ty_free(text);
    return status;
}

ty_status cuda_choices_open(ty_stage_device *stage, const char *gpu, ty_error *error)
{
    stage->own->choices = ty_alloc(1, sizeof *stage->own->choices);
    TY_TRY(ty_check_memory(stage->own->choices != NULL, error));
    path_make(stage, gpu, stage->own->choices->path);
    return choices_read(stage->own->choices, error);
}

/* Merges choices that other processes have written meanwhile. If the folder is not writable, the
 * choices last only as long as this stage. */
static void choices_write(const cuda_choices *choices)
{
    cuda_choices all = {0};
    char folder[PATH_SIZE];
    ty_text text = {0};
    ty_status status;

    snprintf(all.path, sizeof all.path, "%s", choices->path);
    snprintf(folder, sizeof folder, "%s", choices->path);
    *strrchr(folder, '/') = '\0';
    TY_CHECK(ty_directory_make(folder, NULL), status, cleanup);
    TY_CHECK(choices_read(&all, NULL), status, cleanup);
    for (uint32_t i = 0; i < choices->count; i++)
        TY_CHECK(choice_put(&all, choices->list[i].key, choices->list[i].value, NULL), status,
                 cleanup);
    for (uint32_t i = 0; i < all.count; i++)
        ty_text_addf(&text, "%s = %u\n", all.list[i].key, (unsigned)all.list[i].value);
    TY_CHECK(ty_text_check(&text, NULL), status, cleanup);
    TY_CHECK(ty_file_write(all.path, text.data, text.length, NULL), status, cleanup);
cleanup:
    ty_text_clear(&text);
    ty_free(all.list);
}

void cuda_choices_close(ty_stage_device *stage)
{
    cuda_choices *choices = stage->own->choices;

    if (choices == NULL)
        return;
    if (choices->is_new)
        choices_write(choices);
    ty_free(choices->list);
    ty_free(choices);
    stage->own->choices = NULL;
}

bool cuda_choice_find(const ty_stage_device *stage, const char *key, uint32_t *value)
{
    const choice *at = choice_of(stage->own->choices, key);

    if (at != NULL)
        *value = at->value;
    return at != NULL;
}

ty_status cuda_choice_note(ty_stage_device *stage, const char *key, uint32_t value, ty_error *error)
{
    stage->own->choices->is_new = true;
    return choice_put(stage->own->choices, key, value, error);
}

ty_status cuda_trials_time(const ty_stage_device *stage, bool (*run)(const void *context),
                           const void *context, float *milliseconds, ty_error *error)
{
    enum { TRIALS = 5 };
    cudaEvent_t clock[2] = {NULL, NULL};
    ty_status status = TY_OK;

    *milliseconds = -1;
    CUDA_CHECK(cudaEventCreateWithFlags(&clock[0], cudaEventDefault), status, cleanup);
    CUDA_CHECK(cudaEventCreateWithFlags(&clock[1], cudaEventDefault), status, cleanup);
    if (!run(context))
        goto cleanup;
    CUDA_CHECK(cudaEventRecord(clock[0], stage->own->stream), status, cleanup);
    for (int i = 0; i < TRIALS; i++)
        if (!run(context))
            goto cleanup;
    CUDA_CHECK(cudaEventRecord(clock[1], stage->own->stream), status, cleanup);
    CUDA_CHECK(cudaStreamSynchronize(stage->own->stream), status, cleanup);
    CUDA_CHECK(cudaEventElapsedTime(milliseconds, clock[0], clock[1]), status, cleanup);
cleanup:
    for (int i = 0; i < 2; i++)
        if (clock[i] != NULL)
            cudaEventDestroy(clock[i]);
    return status;
}
