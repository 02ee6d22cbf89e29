/* Failure rates, storage and power figures that cluster files lack. */
#include "economics_catalogue.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct figure {
    const char *name;
    ty_interval value;
    bool is_found;
} figure;

static ty_status read_one(const ty_json *sources, const ty_json *row, figure *figures, size_t count,
                          ty_error *error)
{
    const char *name, *source, *text;
    ty_interval v;

    TY_TRY(ty_json_string(row, "name", &name, error));
    TY_TRY(ty_json_string(row, "source", &source, error));
    TY_TRY(ty_json_string(sources, source, &text, error));
    TY_TRY(ty_json_number(row, "value", DBL_MIN, 1e15, &v.expected, error));
    v.low = v.high = v.expected;
    if (ty_json_has(row, "low"))
        TY_TRY(ty_json_number(row, "low", DBL_MIN, v.expected, &v.low, error));
    if (ty_json_has(row, "high"))
        TY_TRY(ty_json_number(row, "high", v.expected, 1e15, &v.high, error));
    TY_TRY(ty_json_end(row, error));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(figures[i].name, name) == 0) {
            figures[i].value = v;
            figures[i].is_found = true;
            return TY_OK;
        }
    }
    return ty_json_fail(row, error, "a figure that is known");
}

static ty_status read_all(const ty_json *root, figure *figures, size_t count, ty_error *error)
{
    const ty_json *sources, *rows;

    TY_TRY(ty_json_schema(root, "trainyard.economics/1", error));
    TY_TRY(ty_json_object(root, "sources", &sources, error));
    TY_TRY(ty_json_array(root, "figures", count, count, &rows, error));
    for (size_t i = 0; i < ty_json_size(rows); i++)
        TY_TRY(read_one(sources, ty_json_at(rows, i), figures, count, error));
    TY_TRY(ty_json_end(root, error));
    for (size_t i = 0; i < count; i++)
        if (!figures[i].is_found)
            return ty_json_fail(rows, error, "a figure called %s", figures[i].name);
    return TY_OK;
}

ty_status ty_economics_catalogue_load(ty_economics_catalogue *out, ty_error *error)
{
    figure figures[] = {
        {.name = "device_mtbf_s"},    {.name = "host_mtbf_s"},
        {.name = "restart_s"},        {.name = "checkpoint_bytes_per_s_per_host"},
        {.name = "idle_power_share"}, {.name = "host_power_overhead"},
        {.name = "busy_power_share"},
    };
    ty_json_document *document = NULL;
    char *path = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_data_path("study/catalogue", "economics.json", &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(read_all(ty_json_root(document), figures, sizeof figures / sizeof figures[0], error),
             status, cleanup);
    *out = (ty_economics_catalogue){
        .device_mtbf_s = figures[0].value.expected,
        .host_mtbf_s = figures[1].value.expected,
        .restart_s = figures[2].value.expected,
        .checkpoint_bytes_per_s_per_host = figures[3].value.expected,
        .idle_power_share = figures[4].value.expected,
        .host_power_overhead = figures[5].value.expected,
        .busy_power_share = figures[6].value,
    };

cleanup:
    ty_json_free(document);
    ty_free(path);
    return status;
}
