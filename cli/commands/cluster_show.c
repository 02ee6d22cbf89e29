/* trainyard cluster show: kinds of devices and hosts, and the links between them. */
#include "cli.h"

#include <stddef.h>

/* A kind of devices or hosts, and its count. */
typedef struct kind_count {
    const void *kind;
    uint32_t count;
} kind_count;

/* Counts kinds of devices or hosts in the order of their first members. NULL: out of memory. */
static kind_count *count_kinds(const ty_cluster *cluster, bool is_hosts, uint32_t *count)
{
    const uint32_t total =
        is_hosts ? ty_cluster_host_count(cluster) : ty_cluster_device_count(cluster);
    kind_count *kinds = NULL;
    uint32_t k = 0;

    *count = 0;
    for (uint32_t i = 0; i < total; i++) {
        const void *kind = is_hosts ? (const void *)ty_cluster_host_type(cluster, i)
                                    : (const void *)ty_cluster_device_type(cluster, i);
        if (*count == 0 || kinds[k].kind != kind) /* most equal the previous one */
            for (k = 0; k < *count && kinds[k].kind != kind;)
                k++;
        if (k == *count) {
            kind_count *longer = ty_resize(kinds, *count + 1, sizeof *kinds);
            if (longer == NULL) {
                ty_free(kinds);
                return NULL;
            }
            kinds = longer;
            kinds[(*count)++] = (kind_count){.kind = kind};
        }
        kinds[k].count++;
    }
    return kinds;
}

/* Peaks of products, in the precisions that a device may have. */
static const struct {
    const char *name;
    size_t offset;
} peaks[] = {
    {"fp32", offsetof(ty_device_type, peak_fp32_flop_per_s)},
    {"tf32", offsetof(ty_device_type, peak_tf32_flop_per_s)},
    {"fp16", offsetof(ty_device_type, peak_fp16_flop_per_s)},
    {"fp8", offsetof(ty_device_type, peak_fp8_flop_per_s)},
    {"fp4", offsetof(ty_device_type, peak_fp4_flop_per_s)},
};
enum { PEAKS = sizeof peaks / sizeof peaks[0] };

static double peak_of(const ty_device_type *type, size_t p)
{
    return *(const double *)((const char *)type + peaks[p].offset);
}

/* Facts of `cluster show` in addition to the links. */
typedef struct cluster_summary {
    kind_count *devices, *hosts; /* of ty_device_type; of ty_host_type, NULL for unknown hosts */
    uint32_t device_kinds, host_kinds, class_count;
    double bisection;
} cluster_summary;

static void put_kinds(const cluster_summary *summary, ty_json_writer *out)
{
    ty_json_open(out, "device_types", '[');
    for (uint32_t k = 0; k < summary->device_kinds; k++) {
        const ty_device_type *type = summary->devices[k].kind;
        ty_json_open(out, NULL, '{');
        ty_json_put_string(out, "name", type->name);
        ty_json_put_uint(out, "devices", summary->devices[k].count);
        ty_json_put_uint(out, "memory_bytes", type->memory_bytes);
        ty_json_put_uint(out, "usable_memory_bytes", ty_device_usable_bytes(type));
        ty_json_put_number(out, "memory_bandwidth_bytes_per_s", type->memory_bandwidth_bytes_per_s);
        ty_json_open_flat(out, "peak_flop_per_s", '{');
        for (size_t p = 0; p < PEAKS; p++)
            if (peak_of(type, p) > 0)
                ty_json_put_number(out, peaks[p].name, peak_of(type, p));
        ty_json_close(out, '}');
        ty_json_put_string(out, "source", type->source);
        ty_json_close(out, '}');
    }
    ty_json_close(out, ']');
    ty_json_open(out, "host_types", '[');
    for (uint32_t k = 0; k < summary->host_kinds; k++) {
        const ty_host_type *type = summary->hosts[k].kind;
        if (type == NULL)
            continue;
        ty_json_open(out, NULL, '{');
        ty_json_put_string(out, "name", type->name);
        ty_json_put_uint(out, "hosts", summary->hosts[k].count);
        if (type->price_date != NULL) {
            ty_json_put_number(out, "price_usd_per_hour", type->price_usd_per_hour);
            ty_json_put_string(out, "price_date", type->price_date);
            ty_json_put_string(out, "price_source", type->price_source);
        }
        if (type->memory_bytes > 0)
            ty_json_put_uint(out, "memory_bytes", type->memory_bytes);
        ty_json_close(out, '}');
    }
    ty_json_close(out, ']');
}

static void print_kinds(const cluster_summary *summary, ty_text *text)
{
    char figure[32];

    for (uint32_t k = 0; k < summary->device_kinds; k++) {
        const ty_device_type *type = summary->devices[k].kind;
        ty_format_memory((double)type->memory_bytes, figure);
        ty_text_addf(text, "%u x %s, %s", summary->devices[k].count, type->name, figure);
        if (type->usable_memory_bytes > 0) {
            ty_format_memory((double)type->usable_memory_bytes, figure);
            ty_text_addf(text, " (usable %s)", figure);
        }
        ty_format_bandwidth(type->memory_bandwidth_bytes_per_s, figure);
        ty_text_addf(text, " at %s", figure);
        for (size_t p = 0; p < PEAKS; p++)
            if (peak_of(type, p) > 0) {
                ty_format_count(peak_of(type, p), figure);
                ty_text_addf(text, ", %sflop/s %s", figure, peaks[p].name);
            }
        ty_text_addf(text, "\n  by %s\n", type->source);
    }
    for (uint32_t k = 0; k < summary->host_kinds; k++) {
        const ty_host_type *type = summary->hosts[k].kind;
        if (type == NULL)
            continue;
        ty_text_addf(text, "%u x %s", summary->hosts[k].count, type->name);
        if (type->price_date != NULL)
            ty_text_addf(text, ", %.2f USD an hour each (%s, %s)", type->price_usd_per_hour,
                         type->price_date, type->price_source);
        if (type->memory_bytes > 0) {
            ty_format_memory((double)type->memory_bytes, figure);
            ty_text_addf(text, ", %s of host memory each", figure);
        }
        ty_text_add(text, "\n");
    }
}

static void show_cluster_json(const ty_cluster *cluster, const cluster_summary *summary,
                              ty_text *text)
{
    ty_json_writer out = document_open("trainyard.cluster-summary/1", text);

    ty_json_put_string(&out, "name", ty_cluster_name(cluster));
    ty_json_put_uint(&out, "devices", ty_cluster_device_count(cluster));
    ty_json_put_uint(&out, "hosts", ty_cluster_host_count(cluster));
    ty_json_put_string(&out, "device_type", ty_cluster_device_type(cluster, 0)->name);
    ty_json_put_number(&out, "bisection_bandwidth_bytes_per_s", summary->bisection);
    ty_json_put_uint(&out, "equivalence_classes", summary->class_count);
    put_kinds(summary, &out);
    ty_json_open(&out, "links", '[');
    for (uint32_t l = 0; l < ty_cluster_link_count(cluster); l++) {
        const ty_link_edge *link = ty_cluster_link(cluster, l);
        ty_json_open_flat(&out, NULL, '{');
        ty_json_put_string(&out, "from", ty_cluster_vertex_name(cluster, link->from));
        ty_json_put_string(&out, "to", ty_cluster_vertex_name(cluster, link->to));
        ty_json_put_string(&out, "kind", link->kind);
        ty_json_put_number(&out, "bandwidth_bytes_per_s", link->bandwidth_bytes_per_s);
        ty_json_put_number(&out, "latency_s", link->latency_s);
        ty_json_close(&out, '}');
    }
    list_close(true, &out);
}

/* A large cluster has too many links to read; --json has all. */
enum { LINKS_SHOWN = 1000 };

static void show_cluster_text(const ty_cluster *cluster, const cluster_summary *summary,
                              ty_text *text)
{
    const uint32_t links = ty_cluster_link_count(cluster);
    char bandwidth[32], latency[32];

    ty_text_addf(text, "%s: %u devices on %u hosts\n", ty_cluster_name(cluster),
                 ty_cluster_device_count(cluster), ty_cluster_host_count(cluster));
    print_kinds(summary, text);
    if (summary->bisection > 0) {
        ty_format_bandwidth(summary->bisection, bandwidth);
        ty_text_addf(text, "bisection: %s each way\n", bandwidth);
    }
    ty_text_addf(text, "\n%-20s %-20s %-12s %12s %10s\n", "from", "to", "kind", "bandwidth",
                 "latency");
    for (uint32_t l = 0; l < links && l < LINKS_SHOWN; l++) {
        const ty_link_edge *link = ty_cluster_link(cluster, l);
        ty_format_bandwidth(link->bandwidth_bytes_per_s, bandwidth);
        ty_format_seconds(link->latency_s, latency);
        ty_text_addf(text, "%-20s %-20s %-12s %12s %10s\n",
                     ty_cluster_vertex_name(cluster, link->from),
                     ty_cluster_vertex_name(cluster, link->to), link->kind, bandwidth, latency);
    }
    if (links > LINKS_SHOWN)
        ty_text_addf(text, "... and %u more links (--json has all)\n", links - LINKS_SHOWN);
}

ty_status cluster_show(const ty_cluster *cluster, bool as_json, ty_text *text, ty_error *error)
{
    ty_status status = TY_OK;
    cluster_summary summary = {0};
    uint32_t *classes = NULL;

    TY_CHECK(ty_cluster_bisection(cluster, &summary.bisection, error), status, done);
    summary.devices = count_kinds(cluster, false, &summary.device_kinds);
    summary.hosts = count_kinds(cluster, true, &summary.host_kinds);
    classes = ty_alloc(ty_cluster_device_count(cluster), sizeof *classes);
    TY_CHECK(
        ty_check_memory(summary.devices != NULL && summary.hosts != NULL && classes != NULL, error),
        status, done);
    if (!as_json) {
        show_cluster_text(cluster, &summary, text);
        goto done;
    }
    TY_CHECK(ty_cluster_classes(cluster, classes, &summary.class_count, NULL, error), status, done);
    show_cluster_json(cluster, &summary, text);
done:
    ty_free(classes);
    ty_free(summary.hosts);
    ty_free(summary.devices);
    return status;
}
