/* trainyard cluster import, check and export --to; cmd_catalogue.c has list, show and export as
 * JSON. */
#include "cli.h"

#include "ty_simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- import ------------------------------------------------------------------------------ */

static exit_code import(const cli_options *options, const char *path)
{
    ty_cluster_import_options wanted = {.format = options->format,
                                        .host = options->host,
                                        .device = options->device,
                                        .hosts = (uint32_t)options->hosts,
                                        .root = options->root};
    ty_import_notes notes = {0};
    ty_cluster *cluster = NULL;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_error error = {0};
    exit_code code;
    char *end;

    if (options->oversubscription != NULL) {
        wanted.oversubscription = strtod(options->oversubscription, &end);
        if (*end != '\0' || !(wanted.oversubscription >= 1 && wanted.oversubscription <= 1000))
            return report_usage("cluster", "--oversubscription: found '%s', expected 1 to 1000",
                                options->oversubscription);
    }
    if (ty_cluster_import(path, &wanted, &cluster, &notes, &error) != TY_OK) {
        code = report_bad_input(&error);
        /* a file of a known kind that is not a cluster is a bad input, too */
        return error.status == TY_EUNSUPPORTED ? EXIT_BAD_INPUT : code;
    }
    if (!options->quiet)
        print_stderr("%s: %u devices on %u hosts", notes.format, ty_cluster_device_count(cluster),
                     ty_cluster_host_count(cluster));
    for (const char *line = notes.text; !options->quiet && *line != '\0';
         line += strcspn(line, "\n") + 1)
        print_stderr("%.*s", (int)strcspn(line, "\n"), line);
    ty_cluster_to_json(cluster, &writer, NULL);
    ty_text_add(&text, "\n");
    ty_import_notes_clear(&notes);
    ty_cluster_free(cluster);
    return deliver_text(options->output, &text);
}

/* ---- check ------------------------------------------------------------------------------- */

typedef struct examination {
    const ty_cluster *cluster;
    ty_finding *findings;
    uint32_t finding_count;
    uint32_t *classes, class_count;
    bool is_exact;
    double bisection;
} examination;

static ty_status examine(examination *x, ty_error *error)
{
    x->classes = ty_alloc(ty_cluster_device_count(x->cluster), sizeof *x->classes);
    TY_TRY(ty_check_memory(x->classes != NULL, error));
    TY_TRY(ty_cluster_classes(x->cluster, x->classes, &x->class_count, &x->is_exact, error));
    TY_TRY(ty_cluster_examine(x->cluster, &x->findings, &x->finding_count, error));
    return ty_cluster_bisection(x->cluster, &x->bisection, error);
}

static void name_finding(const examination *x, const ty_finding *f, char *out, size_t room)
{
    const ty_link_edge *link = f->is_link ? ty_cluster_link(x->cluster, f->index) : NULL;

    if (link == NULL)
        snprintf(out, room, "%s", ty_cluster_vertex_name(x->cluster, f->index));
    else
        snprintf(out, room, "%s - %s (%s)", ty_cluster_vertex_name(x->cluster, link->from),
                 ty_cluster_vertex_name(x->cluster, link->to), link->kind);
}

static void write_json(const examination *x, ty_text *text)
{
    ty_json_writer w = document_open("trainyard.cluster-check/1", text);
    char name[600];

    ty_json_put_string(&w, "name", ty_cluster_name(x->cluster));
    ty_json_put_uint(&w, "devices", ty_cluster_device_count(x->cluster));
    ty_json_put_uint(&w, "hosts", ty_cluster_host_count(x->cluster));
    ty_json_put_number(&w, "bisection_bandwidth_bytes_per_s", x->bisection);
    ty_json_put_bool(&w, "classes_are_exact", x->is_exact);
    ty_json_open_flat(&w, "device_classes", '[');
    for (uint32_t d = 0; d < ty_cluster_device_count(x->cluster); d++)
        ty_json_put_uint(&w, NULL, x->classes[d]);
    ty_json_close(&w, ']');
    ty_json_open(&w, "findings", '[');
    for (uint32_t i = 0; i < x->finding_count; i++) {
        const ty_finding *f = &x->findings[i];
        name_finding(x, f, name, sizeof name);
        ty_json_open_flat(&w, NULL, '{');
        ty_json_put_string(&w, "kind", ty_finding_kind_name(f->kind));
        ty_json_put_string(&w, f->is_link ? "link" : "vertex", name);
        ty_json_put_number(&w, "value", f->value);
        ty_json_close(&w, '}');
    }
    list_close(true, &w);
}

static void write_classes(const examination *x, ty_text *text)
{
    enum { SHOWN = 8 };
    uint32_t devices = ty_cluster_device_count(x->cluster);

    ty_text_addf(text, "device classes: %u%s\n", x->class_count,
                 x->is_exact ? "" : " (by colour refinement)");
    for (uint32_t k = 0; k < x->class_count && k < SHOWN; k++) {
        uint32_t size = 0, first = devices;
        for (uint32_t d = 0; d < devices; d++) {
            first = x->classes[d] == k && first == devices ? d : first;
            size += x->classes[d] == k;
        }
        ty_text_addf(
            text, "  %u x %s, like %s\n", size, ty_cluster_device_type(x->cluster, first)->name,
            ty_cluster_vertex_name(x->cluster, ty_cluster_device_vertex(x->cluster, first)));
    }
    if (x->class_count > SHOWN)
        ty_text_addf(text, "  and %u more\n", x->class_count - SHOWN);
}

static void say(const ty_finding *f, char *out, size_t room)
{
    switch (f->kind) {
    case TY_FINDING_OVERSUBSCRIBED:
        snprintf(out, room, "oversubscribed %.3g : 1", f->value);
        break;
    case TY_FINDING_WEAK_POINT:
        snprintf(out, room, "cuts off %.0f device%s", f->value, f->value > 1 ? "s" : "");
        break;
    case TY_FINDING_SLOW_LINK:
        snprintf(out, room, "%.3g of its kind's width", f->value);
        break;
    case TY_FINDING_ODD_DEVICE:
        snprintf(out, room, "linked like %.0f devices only", f->value);
        break;
    case TY_FINDING_KIND_COUNT:
        break;
    }
}

/* Prints findings of one kind and value in one line: a cluster may have thousands of NICs that one
 * device each needs. */
static void write_findings(const examination *x, ty_text *text)
{
    char name[600], what[80];

    if (x->finding_count == 0)
        ty_text_add(text, "nothing to point out\n");
    for (uint32_t i = 0, next; i < x->finding_count; i = next) {
        const ty_finding *f = &x->findings[i];
        for (next = i + 1;
             next < x->finding_count && x->findings[next].kind == f->kind &&
             x->findings[next].is_link == f->is_link && !(x->findings[next].value < f->value) &&
             !(x->findings[next].value > f->value);
             next++)
            continue;
        name_finding(x, f, name, sizeof name);
        say(f, what, sizeof what);
        if (next - i > 1)
            ty_text_addf(text, "%-28s %s and %u more\n", what, name, next - i - 1);
        else
            ty_text_addf(text, "%-28s %s\n", what, name);
    }
}

static exit_code check(const cli_options *options, const char *name)
{
    examination x = {0};
    ty_cluster *cluster = NULL;
    ty_text text = {0};
    ty_error error = {0};
    char bandwidth[32];
    ty_status status;

    if (ty_cluster_is_local(name, &(uint32_t){0}))
        return report_usage("cluster", "check is about clusters, not this machine");
    if (ty_cluster_open(name, NULL, &cluster, &error) != TY_OK)
        return report_bad_input(&error);
    x.cluster = cluster;
    status = examine(&x, &error);
    if (status == TY_OK && options->json) {
        write_json(&x, &text);
    } else if (status == TY_OK) {
        ty_format_bandwidth(x.bisection, bandwidth);
        ty_text_addf(&text, "%s: %u devices on %u hosts", ty_cluster_name(cluster),
                     ty_cluster_device_count(cluster), ty_cluster_host_count(cluster));
        if (x.bisection > 0)
            ty_text_addf(&text, ", bisection %s each way", bandwidth);
        ty_text_add(&text, "\n");
        write_classes(&x, &text);
        write_findings(&x, &text);
    }
    ty_cluster_free(cluster);
    ty_free(x.classes);
    ty_free(x.findings);
    return status == TY_OK ? deliver_text(options->output, &text) : report_failure(&error);
}

/* ---- export --to ------------------------------------------------------------------------- */

/* The simulator writes SimGrid's platforms, topologies/ the other formats. */
static ty_status write_cluster(const ty_cluster *cluster, const cli_options *options, ty_text *text,
                               ty_error *error)
{
    static const char *const formats[] = {"json", "dot", "nccl", "simgrid", "slurm"};
    const size_t count = sizeof formats / sizeof formats[0];
    const char *near = ty_suggest(options->to, formats, count, sizeof formats[0]);
    size_t i = 0;

    while (i < count && strcmp(formats[i], options->to) != 0)
        i++;
    if (i == count)
        return ty_fail(error, TY_EINVAL,
                       "found format \"%.40s\", expected json, dot, nccl, simgrid or slurm%s%s%s",
                       options->to, near != NULL ? "; did you mean \"" : "",
                       near != NULL ? near : "", near != NULL ? "\"?" : "");
    if (strcmp(options->to, "simgrid") != 0)
        return ty_cluster_export(cluster, options->to, options->host, text, error);
    if (options->host != NULL)
        return ty_fail(error, TY_EINVAL,
                       "host: found \"%.60s\", expected none: simgrid is about the whole cluster",
                       options->host);
    return ty_cluster_to_simgrid(cluster, text, error);
}

static exit_code export_to(const cli_options *options, const char *name)
{
    ty_cluster *cluster = NULL;
    ty_text text = {0};
    ty_error error = {0};
    ty_status status;

    if (ty_cluster_open(name, NULL, &cluster, &error) != TY_OK)
        return report_bad_input(&error);
    status = write_cluster(cluster, options, &text, &error);
    ty_cluster_free(cluster);
    if (status == TY_OK)
        return deliver_text(options->output, &text);
    ty_text_clear(&text);
    return report_bad_input(&error);
}

exit_code cmd_cluster(const cli_options *options)
{
    const char *verb = options->files[0];
    bool is_import = strcmp(verb, "import") == 0, is_check = strcmp(verb, "check") == 0;
    bool is_collective = strcmp(verb, "collective") == 0;
    bool is_export =
        strcmp(verb, "export") == 0 && options->to != NULL && strcmp(options->to, "json") != 0;

    if (!is_import && !is_check && !is_export && !is_collective)
        return cluster_catalogue(options);
    if (options->file_count < 2)
        return report_usage("cluster", "%s needs a %s", verb, is_import ? "file" : "cluster");
    return is_import       ? import(options, options->files[1])
           : is_check      ? check(options, options->files[1])
           : is_collective ? cluster_collective(options, options->files[1])
                           : export_to(options, options->files[1]);
}
