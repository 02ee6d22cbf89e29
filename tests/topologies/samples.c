#include "samples.h"

#include <criterion/criterion.h>
#include <string.h>

static ty_transfer_time transfers[] = {{4096, 2e-6 + 4096 / 4e9, 0},
                                       {1 << 20, 2e-6 + (1 << 20) / 4e9, 0},
                                       {1 << 26, 2e-6 + (1 << 26) / 4e9, 0}};

ty_profile sample_profile(void)
{
    static char machine[] = "test machine";
    return (ty_profile){.machine = machine,
                        .cores = 4,
                        .memory_bytes = (uint64_t)8 << 30,
                        .peak_flop_per_s = 5e10,
                        .memory_bandwidth_bytes_per_s = 1e10,
                        .instruction_overhead_s = 3e-6,
                        .transfer_time_count = 3,
                        .transfer_times = transfers};
}

ty_cluster *sample_open(const char *text)
{
    ty_profile local = sample_profile();
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    ty_status status = text[0] == '{' ? ty_cluster_parse(text, "test", &cluster, &error)
                                      : ty_cluster_open(text, &local, &cluster, &error);
    cr_assert_eq(status, TY_OK, "%.80s: %s", text, error.message);
    return cluster;
}

ty_cluster *sample_import(const char *path, const ty_cluster_import_options *options,
                          ty_import_notes *notes)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    ty_status status = ty_cluster_import(path, options, &cluster, notes, &error);

    cr_assert_eq(status, TY_OK, "%s: %s", path, error.message);
    return cluster;
}

char *sample_json(const ty_cluster *cluster)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *json = NULL;

    ty_cluster_to_json(cluster, &writer, NULL);
    cr_assert_eq(ty_text_take(&text, &json, NULL), TY_OK);
    return json;
}

uint64_t sample_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static uint32_t below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(sample_next(state) >> 33) % limit;
}

static void write_types(ty_json_writer *w)
{
    static const char *const zeros[] = {"peak_tf32_flop_per_s", "peak_fp16_flop_per_s",
                                        "launch_overhead_s", "core_share", "power_w"};
    static const double latencies[] = {0, 1e-6, 2e-6, 3e-6};
    char name[32];

    ty_json_open(w, "device_types", '[');
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "name", "device");
    ty_json_put_string(w, "source", "test");
    ty_json_put_number(w, "peak_fp32_flop_per_s", 1e12);
    ty_json_put_number(w, "memory_bandwidth_bytes_per_s", 1e11);
    ty_json_put_number(w, "matmul_efficiency", 1);
    ty_json_put_number(w, "memory_efficiency", 1);
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++)
        ty_json_put_number(w, zeros[i], 0);
    ty_json_put_uint(w, "memory_bytes", 1000000);
    ty_json_close(w, '}');
    ty_json_close(w, ']');
    ty_json_open(w, "link_types", '[');
    for (int i = 0; i < 12; i++) {
        ty_json_open(w, NULL, '{');
        snprintf(name, sizeof name, "type-%d", i);
        ty_json_put_string(w, "name", name);
        ty_json_put_string(w, "source", "test");
        ty_json_put_number(w, "bandwidth_bytes_per_s", 1e9 * (1 + i % 3));
        ty_json_put_number(w, "latency_s", latencies[i / 3]);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
}

static void write_vertex(ty_json_writer *w, uint32_t v, const char *kind, uint32_t host)
{
    char name[32];

    ty_json_open(w, NULL, '{');
    snprintf(name, sizeof name, "v%u", v);
    ty_json_put_string(w, "name", name);
    ty_json_put_string(w, "kind", kind);
    if (strcmp(kind, "device") == 0) {
        ty_json_put_string(w, "type", "device");
        snprintf(name, sizeof name, "v%u", host);
        ty_json_put_string(w, "host", name);
    }
    ty_json_close(w, '}');
}

static void write_link(ty_json_writer *w, uint64_t *state, uint32_t from, uint32_t to)
{
    char name[32];

    ty_json_open(w, NULL, '{');
    snprintf(name, sizeof name, "v%u", from);
    ty_json_put_string(w, "from", name);
    snprintf(name, sizeof name, "v%u", to);
    ty_json_put_string(w, "to", name);
    snprintf(name, sizeof name, "type-%u", below(state, 12));
    ty_json_put_string(w, "type", name);
    ty_json_close(w, '}');
}

ty_cluster *sample_random(uint64_t seed, uint32_t devices)
{
    static const char *const kinds[] = {"device_switch", "nic", "switch", "switch"};
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    uint32_t hosts = 2 + below(&state, 2), others = 2 + below(&state, 5);
    uint32_t vertices = hosts + devices + others, links = vertices + below(&state, vertices);
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.cluster/1");
    ty_json_put_string(&w, "name", "random");
    write_types(&w);
    ty_json_open(&w, "vertices", '[');
    for (uint32_t v = 0; v < vertices; v++)
        write_vertex(&w, v,
                     v < hosts             ? "host"
                     : v < hosts + devices ? "device"
                                           : kinds[below(&state, 4)],
                     v % hosts);
    ty_json_close(&w, ']');
    ty_json_open(&w, "links", '[');
    for (uint32_t i = 0; i < links; i++) {
        uint32_t from = below(&state, vertices), to = below(&state, vertices);
        if (from != to)
            write_link(&w, &state, from, to);
    }
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    if (ty_cluster_parse(text.data, "random", &cluster, &error) != TY_OK) {
        bool is_refused = strstr(error.message, "all others") != NULL;
        cr_assert(is_refused, "seed %llu: %s", (unsigned long long)seed, error.message);
        cluster = NULL;
    }
    ty_text_clear(&text);
    return cluster;
}
