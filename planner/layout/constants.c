/* Reads planner/layout/constants.json: sets of named constants, each figure with a source. */
#include "parts.h"

#include "ty_file.h"
#include "ty_memory.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FOLDER "planner/layout"
#define FILE_NAME "constants.json"

typedef struct figure {
    const char *key;
    size_t offset;
    double minimum, maximum;
} figure;

#define FIGURE(key, minimum, maximum)                                                              \
    {                                                                                              \
#key, offsetof(ty_layout_constants, key), minimum, maximum                                 \
    }

static const figure figures[] = {
    FIGURE(matmul_efficiency, DBL_MIN, 1),
    FIGURE(matmul_edge, 0, 1e4),
    FIGURE(memory_efficiency, DBL_MIN, 1),
    FIGURE(kernel_s, 0, 1),
    FIGURE(host_kernel_s, 0, 1),
    FIGURE(host_collective_s, 0, 1),
    FIGURE(host_unfused_s, 0, 1),
    FIGURE(host_slot_s, 0, 1),
    FIGURE(host_step_s, 0, 10),
    FIGURE(host_bandwidth_efficiency, DBL_MIN, 1),
    FIGURE(nic_bandwidth_efficiency, DBL_MIN, 1),
    FIGURE(nic_contention, 0, 10),
    FIGURE(nic_group_bytes_per_s, 0, 1e15),
    FIGURE(collective_s, 0, 1),
    FIGURE(collective_hop_s, 0, 1),
    FIGURE(collective_nic_hop_s, 0, 1),
    FIGURE(send_bandwidth_efficiency, DBL_MIN, 1),
    FIGURE(send_s, 0, 1),
    FIGURE(logit_bytes, 0, 1e4),
    FIGURE(optimizer_bytes, 0, 1e4),
    FIGURE(overlap_loss, 0, 1),
    FIGURE(data_skew, 0, 1),
    FIGURE(context_bytes, 0, 1e12),
    FIGURE(memory_waste, 0, 10),
};

const char *ty_layout_constant(ty_layout_constants *constants, uint32_t i, double **value)
{
    if (i >= sizeof figures / sizeof *figures)
        return NULL;
    *value = (double *)(void *)((char *)constants + figures[i].offset);
    return figures[i].key;
}

static const char *const provenances[] = {"measured", "calibrated", "datasheet"};

/* A set has a value and a source for each figure, or takes it from the set it is `like`. */
static ty_status read_figure(const ty_json *set, const figure *f, bool has_base,
                             ty_layout_constants *out, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *entry;
    const char *source;
    double value;

    if (has_base && !ty_json_has(set, f->key))
        return TY_OK;
    TY_CHECK(ty_json_object(set, f->key, &entry, error), status, cleanup);
    TY_CHECK(ty_json_number(entry, "value", f->minimum, f->maximum, &value, error), status,
             cleanup);
    TY_CHECK(ty_json_string(entry, "source", &source, error), status, cleanup);
    TY_CHECK(ty_json_end(entry, error), status, cleanup);
    memcpy((char *)out + f->offset, &value, sizeof value);

cleanup:
    return status;
}

static ty_status read_set(const ty_json *sets, const char *name, int depth,
                          ty_layout_constants *out, ty_error *error);

static ty_status read_base(const ty_json *sets, const ty_json *set, int depth, bool *has_base,
                           ty_layout_constants *out, ty_error *error)
{
    const char *like;
    ty_status status;

    *has_base = ty_json_has(set, "like");
    if (!*has_base)
        return TY_OK;
    status = ty_json_string(set, "like", &like, error);
    if (status != TY_OK)
        return status;
    if (depth > 4)
        return ty_json_fail(set, error, "a chain of sets that ends");
    return read_set(sets, like, depth + 1, out, error);
}

static ty_status read_members(const ty_json *sets, const ty_json *set, int depth,
                              ty_layout_constants *out, ty_error *error)
{
    ty_status status = TY_OK;
    int provenance;
    bool has_base;

    TY_CHECK(read_base(sets, set, depth, &has_base, out, error), status, cleanup);
    TY_CHECK(ty_json_enum(set, "provenance", provenances, sizeof provenances / sizeof *provenances,
                          &provenance, error),
             status, cleanup);
    out->provenance = (ty_provenance)provenance;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        TY_CHECK(read_figure(set, &figures[i], has_base, out, error), status, cleanup);
    ty_json_ignore(set, "rows");
    TY_CHECK(ty_json_end(set, error), status, cleanup);

cleanup:
    return status;
}

static ty_status read_set(const ty_json *sets, const char *name, int depth,
                          ty_layout_constants *out, ty_error *error)
{
    ty_text names = {0};
    ty_status status = TY_OK;
    const ty_json *set;

    for (size_t i = 0; i < ty_json_size(sets); i++) {
        set = ty_json_at(sets, i);
        if (strcmp(ty_json_key(set), name) == 0) {
            status = read_members(sets, set, depth, out, error);
            goto cleanup;
        }
        ty_text_addf(&names, "%s%s", i > 0 ? ", " : "", ty_json_key(set));
    }
    TY_CHECK(ty_text_check(&names, error), status, cleanup);
    status = ty_fail(error, TY_EINVAL, "constants \"%.60s\": expected one of %s", name,
                     names.data == NULL ? "none" : names.data);

cleanup:
    ty_text_clear(&names);
    return status;
}

ty_status ty_layout_constants_load(const char *name, ty_layout_constants *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    ty_layout_constants constants = {0};
    char *path = NULL;
    const ty_json *root, *sets;

    if (name == NULL)
        name = "default";
    TY_CHECK(ty_data_path(FOLDER, FILE_NAME, &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, "trainyard.layout-constants/1", error), status, cleanup);
    TY_CHECK(ty_json_object(root, "sets", &sets, error), status, cleanup);
    TY_CHECK(read_set(sets, name, 0, &constants, error), status, cleanup);
    snprintf(constants.name, sizeof constants.name, "%s", name);
    *out = constants;

cleanup:
    ty_json_free(document);
    ty_free(path);
    return status;
}
