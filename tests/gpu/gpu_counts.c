/* Kernels and bytes of a step, counted by the emulator without running them. */
#include "emulator/emulated_counts.h"
#include "gpu_cases.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

static bool (*get)(uint32_t i, emulated_count *out);
static void (*forget)(void);

/* The emulator is the plugin, which has been loaded. */
static bool counts_find(void)
{
    void *const plugin = dlopen(getenv("TRAINYARD_CUDA_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);

    if (plugin != NULL) {
        *(void **)&get = dlsym(plugin, "emulated_count_get");
        *(void **)&forget = dlsym(plugin, "emulated_counts_forget");
    }
    return get != NULL && forget != NULL;
}

/* "(copy_rows<T, T>)" is copy_rows. */
static void name_put(ty_json_writer *w, const char *name)
{
    char plain[96];
    const size_t start = name[0] == '(' ? 1 : 0, length = strcspn(name + start, "<)");

    snprintf(plain, sizeof plain, "%.*s", (int)length, name + start);
    ty_json_put_string(w, "name", plain);
}

static void phase_write(ty_json_writer *w, const char *phase)
{
    emulated_count one, all = {0};

    ty_json_open(w, phase, '{');
    ty_json_open(w, "kernels", '[');
    for (uint32_t i = 0; get(i, &one); i++) {
        ty_json_open_flat(w, NULL, '{');
        name_put(w, one.name);
        ty_json_put_uint(w, "launches", one.launches);
        ty_json_put_uint(w, "read_bytes", one.read_bytes);
        ty_json_put_uint(w, "written_bytes", one.written_bytes);
        ty_json_close(w, '}');
        all.launches += one.launches;
        all.read_bytes += one.read_bytes;
        all.written_bytes += one.written_bytes;
        all.unstated += one.unstated;
    }
    ty_json_close(w, ']');
    ty_json_put_uint(w, "launches", all.launches);
    ty_json_put_uint(w, "read_bytes", all.read_bytes);
    ty_json_put_uint(w, "written_bytes", all.written_bytes);
    ty_json_put_uint(w, "launches_of_unknown_bytes", all.unstated);
    ty_json_close(w, '}');
    forget();
}

static ty_status step_count(const ty_workload *w, const ty_stage_options *o, ty_json_writer *out,
                            ty_error *error)
{
    ty_stage_device *stage = NULL;
    bool is_finite;
    ty_status status;

    TY_CHECK(gpu->open(o, &stage, error), status, done);
    ty_json_put_uint(out, "parameters", gpu->parameter_count(stage));
    ty_json_put_uint(out, "memory_bytes", gpu->memory_bytes(stage));
    batch_fill(gpu, stage, 0, w, o->micro_batch_size, 11);
    forget();
    TY_CHECK(gpu->forward(stage, 0, 0, w->layer_count, error), status, done);
    phase_write(out, "forward");
    TY_CHECK(gpu->backward(stage, 0, 0, w->layer_count, true, error), status, done);
    phase_write(out, "backward");
    TY_CHECK(gpu->memory->update(stage, &w->optimizer, 1, 0, gpu->parameter_count(stage),
                                 &is_finite, error),
             status, done);
    phase_write(out, "update");
done:
    if (stage != NULL)
        gpu->close(stage);
    return status;
}

int counts_run(const char *workload, const char *precision, uint32_t batch)
{
    ty_workload *w = NULL;
    ty_stage_options o;
    ty_text text = {0};
    ty_json_writer out = ty_json_writer_on(&text);
    ty_precision in = TY_PRECISION_FP32;
    ty_error error = {0};
    ty_status status;

    while (in < TY_PRECISION_COUNT && strcmp(ty_precision_name(in), precision) != 0)
        in++;
    if (in == TY_PRECISION_COUNT || batch == 0) {
        fprintf(stderr, "found --count %s %s %u, expected a precision and samples\n", workload,
                precision, batch);
        return EXIT_USAGE;
    }
    setenv("TRAINYARD_EMULATED_COUNTS", "1", 1);
    setenv("TRAINYARD_CUDA_GRAPHS", "0", 1);
    if (ty_device_backend_find("cuda", false, &gpu, &error) != TY_OK || !counts_find()) {
        fprintf(stderr, "bytes are counted on the emulator alone: TRAINYARD_CUDA_PLUGIN\n");
        return EXIT_FAILURE;
    }
    w = open_workload(workload);
    o = options_of(w, batch, in);
    o.slots = 1;
    ty_json_open(&out, NULL, '{');
    ty_json_put_string(&out, "workload", w->name);
    ty_json_put_string(&out, "precision", precision);
    ty_json_put_uint(&out, "batch", batch);
    status = step_count(w, &o, &out, &error);
    ty_json_close(&out, '}');
    if (status == TY_OK)
        status = ty_text_check(&text, &error);
    if (status == TY_OK)
        printf("%s\n", text.data);
    else
        fprintf(stderr, "%s\n", error.message);
    ty_text_clear(&text);
    ty_workload_free(w);
    return status != TY_OK;
}
