/* Importing: which format it is, its reader, and what readers share. */
#include "importer.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest file read: a fabric of a hundred thousand ports is some 10 MB. */
#define FILE_LIMIT ((uint64_t)256 << 20)

/* In the order they are tried: those that are told by a name of their own first. */
static const import_format *const formats[] = {
    &import_own,     &import_nccl,      &import_nccl_graph, &import_hwloc,     &import_simgrid,
    &import_smi,     &import_slurm,     &import_slurm_yaml, &import_ibnet,     &import_k8s,
    &import_foreign, &import_topograph, &import_astra,      &import_hosts_csv,
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

void ty_import_notes_clear(ty_import_notes *notes)
{
    ty_free(notes->text);
    *notes = (ty_import_notes){0};
}

/* ---- What readers share ------------------------------------------------------------------ */

ty_status import_yml(importer *im,
                     ty_status (*read_root)(importer *im, yml_node root, ty_error *error),
                     ty_error *error)
{
    yml_document *document = NULL;
    ty_status status = yml_parse(im->text, im->length, im->name, &document, error);

    if (status == TY_OK)
        status = read_root(im, yml_root(document), error);
    yml_free(document);
    return status;
}

void import_note(importer *im, const char *format, ...)
{
    char line[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    ty_text_addf(&im->notes, "%s\n", line);
}

ty_status import_fail(const importer *im, ty_error *error, unsigned line, const char *format, ...)
{
    char message[320];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    for (char *c = message; *c != '\0'; c++) /* it may quote bytes that are not text */
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
    if (line == 0)
        return ty_fail(error, TY_EPARSE, "%.160s: %s", im->name, message);
    return ty_fail(error, TY_EPARSE, "%.160s:%u: %s", im->name, line, message);
}

ty_status import_need_host(const importer *im, const char *what, ty_error *error)
{
    if (im->host != NO_INDEX)
        return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "%.160s: found a file that %s, expected the kind of host it is about, one of "
                   "the catalogue (--host dgx-a100)",
                   im->name, what);
}

uint32_t import_device(const importer *im)
{
    if (im->device != NO_INDEX)
        return im->device;
    return im->host != NO_INDEX ? im->catalogue->hosts[im->host].device_type : NO_INDEX;
}

ty_status import_need_device(const importer *im, const char *what, ty_error *error)
{
    if (import_device(im) != NO_INDEX)
        return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "%.160s: found a file that %s, expected the kind of device it is about, one of "
                   "the catalogue (--device a100-sxm4-80gb, or --host dgx-a100)",
                   im->name, what);
}

ty_status import_catalogue_hosts(importer *im, const char *what, ty_error *error)
{
    uint32_t fabric, count = im->options->hosts > 0 ? im->options->hosts : 1;
    char name[32];
    ty_status status;

    TY_CHECK(import_need_host(im, what, error), status, done);
    import_note(im, "the file %s: the inside is that of %s", what,
                im->catalogue->hosts[im->host].name);
    TY_CHECK(ty_cluster_add_vertex(im->cluster, TY_VERTEX_SWITCH, "fabric", 0, &fabric, error),
             status, done);
    for (uint32_t h = 0; h < count; h++) {
        snprintf(name, sizeof name, "host-%u", h);
        TY_CHECK(builder_host_below(&im->builder, im->host, name, fabric, error), status, done);
    }
done:
    return status;
}

import_lines import_lines_of(const char *text, size_t length)
{
    return (import_lines){.at = text, .end = text + length};
}

bool import_next_line(import_lines *lines)
{
    const char *newline;

    if (lines->at >= lines->end)
        return false;
    newline = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
    lines->line = lines->at;
    lines->length = (size_t)((newline != NULL ? newline : lines->end) - lines->at);
    lines->at = newline != NULL ? newline + 1 : lines->end;
    if (lines->length > 0 && lines->line[lines->length - 1] == '\r')
        lines->length--;
    lines->number++;
    return true;
}

/* ---- Links ------------------------------------------------------------------------------- */

import_pcie import_pcie_of(const char *speed, const char *width)
{
    /* "16 GT/s", "16.0 GT/s PCIe", "32 GT/s PCIe/s": NCCL's kvDictPciGen reads the number */
    static const double rates[] = {2.5, 5, 8, 16, 32, 64};
    double rate = speed == NULL ? 0 : strtod(speed, NULL);
    double lanes = width == NULL ? 0 : strtod(width, NULL);
    import_pcie link = {.generation = 3, .lanes = 1};

    for (uint32_t g = 0; g < 6; g++)
        if (rate >= 0.99 * rates[g] && rate < 1.5 * rates[g])
            link.generation = g + 1;
    if (lanes >= 1 && lanes <= 32)
        link.lanes = lanes / 16;
    return link;
}

ty_status import_pcie_link(importer *im, uint32_t from, uint32_t to, import_pcie link,
                           bool is_bridge, ty_error *error)
{
    char name[32];
    uint32_t index;

    snprintf(name, sizeof name, "pcie%u%s", link.generation, is_bridge ? "-bridge" : "");
    index = catalogue_find_link(im->catalogue, name);
    if (index == NO_INDEX)
        return ty_fail(error, TY_EPARSE, "%.160s: found a %s link, expected one of the catalogue",
                       im->name, name);
    return builder_link(&im->builder, from, to, index, false, link.lanes, error);
}

ty_status import_network_link(importer *im, uint32_t nic, uint32_t network_switch,
                              double bits_per_s, bool is_infiniband, ty_error *error)
{
    /* Line rates in Gbit/s; a rate that is none of them keeps its number. */
    static const struct {
        double gigabits;
        const char *infiniband, *ethernet;
    } rates[] = {{1, NULL, "eth1"},          {10, NULL, "eth10"},        {25, NULL, "roce25"},
                 {40, "qdr40", "eth40"},     {56, "fdr56", NULL},        {100, "edr100", "roce100"},
                 {200, "hdr200", "roce200"}, {400, "ndr400", "roce400"}, {800, "xdr800", NULL}};
    double gigabits = bits_per_s / 1e9;
    char name[48], source[64] = "rate in the file; latency as of EDR InfiniBand";
    link_type type = {.name = name, .source = source};
    uint32_t like;

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        const char *known = is_infiniband ? rates[i].infiniband : rates[i].ethernet;
        if (known != NULL && fabs(gigabits - rates[i].gigabits) < 1e-6 * gigabits)
            return builder_link(&im->builder, nic, network_switch,
                                catalogue_find_link(im->catalogue, known), false, 1, error);
    }
    like = catalogue_find_link(im->catalogue, "edr100");
    snprintf(name, sizeof name, "net-%.6g", gigabits);
    type.bandwidth_bytes_per_s = bits_per_s / 8;
    type.latency_s = im->catalogue->links[like].type.latency_s;
    return builder_own_link(&im->builder, nic, network_switch, &type, 1, error);
}

uint32_t import_smp_link(const importer *im, const char *arch, const char *vendor,
                         const char *family, const char *model)
{
    /* NCCL's src/graph/topo.cc: what two processors leave each other, by maker and model */
    static const struct {
        const char *vendor;
        int family, first_model;
        const char *link;
    } rows[] = {
        {"AuthenticAMD", 0, 0, "infinity-fabric"},
        {"GenuineIntel", 6, 0xcf, "upi-emerald-rapids"},
        {"GenuineIntel", 6, 0x8f, "upi-sapphire-rapids"},
        {"GenuineIntel", 6, 0x55, "upi-skylake"},
        {"GenuineIntel", 0, 0, "qpi-broadwell"},
    };
    const char *name = "upi-skylake";
    int family_number = family == NULL ? 0 : atoi(family);
    int model_number = model == NULL ? 0 : atoi(model);

    if (arch != NULL && strncmp(arch, "ppc64", 5) == 0)
        name = "power9-x-bus";
    else if (arch != NULL && (strcmp(arch, "arm64") == 0 || strcmp(arch, "aarch64") == 0))
        name = "arm-interconnect";
    for (size_t i = 0; vendor != NULL && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(vendor, rows[i].vendor) == 0 &&
            (rows[i].family == 0 || rows[i].family == family_number) &&
            model_number >= rows[i].first_model) {
            name = rows[i].link;
            break;
        }
    return catalogue_find_link(im->catalogue, name);
}

/* ---- Options ----------------------------------------------------------------------------- */

static ty_status fail_option(const char *option, const char *value, const char *expected,
                             const char *near, ty_error *error)
{
    return ty_fail(error, TY_EINVAL, "%s: found \"%.60s\", expected %s%s%s%s", option, value,
                   expected, near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                   near != NULL ? "\"?" : "");
}

static ty_status read_options(importer *im, ty_error *error)
{
    const ty_cluster_import_options *o = im->options;
    const catalogue *c = im->catalogue;

    im->host = im->device = NO_INDEX;
    if (o->host != NULL && (im->host = catalogue_find_host(c, o->host)) == NO_INDEX)
        return fail_option(
            "host", o->host, "a host of the catalogue",
            ty_suggest(o->host, &c->hosts[0].name, c->host_count, sizeof c->hosts[0]), error);
    if (o->device != NULL && (im->device = catalogue_find_device(c, o->device)) == NO_INDEX &&
        (im->device = catalogue_match_device(c, "alias", o->device)) == NO_INDEX)
        return fail_option("device", o->device, "a device of the catalogue",
                           ty_suggest(o->device, &c->device_types[0].name, c->device_type_count,
                                      sizeof c->device_types[0]),
                           error);
    if (o->hosts > DEVICE_LIMIT)
        return ty_fail(error, TY_EINVAL, "hosts: found %u, expected at most %d", o->hosts,
                       DEVICE_LIMIT);
    if (!(o->oversubscription == 0 || (o->oversubscription >= 1 && o->oversubscription <= 1000)))
        return ty_fail(error, TY_EINVAL, "oversubscription: found %g, expected 1 to 1000",
                       o->oversubscription);
    return TY_OK;
}

bool import_knows(const char *text, size_t length)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (formats[i]->probe(text, length))
            return true;
    return false;
}

static ty_status find_format(const importer *im, const import_format **out, ty_error *error)
{
    const char *wanted = im->options->format;

    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (wanted != NULL ? strcmp(formats[i]->name, wanted) == 0
                           : formats[i]->probe(im->text, im->length)) {
            *out = formats[i];
            return TY_OK;
        }
    if (wanted != NULL) {
        const char *names[FORMAT_COUNT];
        for (size_t i = 0; i < FORMAT_COUNT; i++)
            names[i] = formats[i]->name;
        return fail_option("format", wanted, "a format that is read (nccl, smi, slurm, ...)",
                           ty_suggest(wanted, names, FORMAT_COUNT, sizeof names[0]), error);
    }
    return ty_fail(error, TY_EPARSE,
                   "%.160s: found none of the formats known, expected e.g. NCCL topology XML, "
                   "nvidia-smi topo -m, Slurm topology.conf, hwloc XML, ibnetdiscover (see "
                   "docs/guides/describe-a-cluster.md)",
                   im->name);
}

/* ---- The whole --------------------------------------------------------------------------- */

/* Names of files make names of clusters: without folders. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Names go into JSON, and may have been cut within a character: what is not ASCII is shown as "?".
 */
static void make_plain(char *name)
{
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < ' ' || (unsigned char)*name > '~')
            *name = '?';
}

ty_status import_start(importer *im, ty_error *error)
{
    ty_status status;

    builder_close(&im->builder);
    ty_cluster_free(im->cluster);
    im->cluster = NULL;
    im->is_finished = false;
    ty_text_clear(&im->notes);
    TY_CHECK(ty_cluster_new(base_name(im->name), &im->cluster, error), status, done);
    status = builder_open(&im->builder, im->cluster, im->catalogue, error);
done:
    return status;
}

ty_status import_finish(importer *im, ty_error *error)
{
    cluster_problem problem = {0};
    ty_status status;

    im->is_finished = true;

    make_plain(im->cluster->name);
    for (uint32_t v = 0; v < im->cluster->vertex_count; v++) {
        if (im->cluster->vertices[v].name[0] == '\0')
            return import_fail(im, error, 0, "found a %s without a name, expected one",
                               ty_vertex_kind_name(im->cluster->vertices[v].kind));
        make_plain(im->cluster->vertices[v].name);
    }
    if ((status = ty_cluster_check_figures(im->cluster, im->name, error)) != TY_OK)
        return status;
    status = ty_cluster_finish(im->cluster, &problem, error);
    if (status != TY_OK || problem.expected == NULL)
        return status;
    return import_fail(im, error, 0, "found %s, expected %s",
                       problem.vertex == NO_INDEX
                           ? "no device"
                           : ty_cluster_vertex_name(im->cluster, problem.vertex),
                       problem.expected);
}

static ty_status read_all(importer *im, const import_format **format, ty_error *error)
{
    ty_status status;

    TY_CHECK(read_options(im, error), status, done);
    TY_CHECK(find_format(im, format, error), status, done);
    if (memchr(im->text, '\0', im->length) != NULL)
        return import_fail(im, error, 0, "found a NUL character, expected text in UTF-8");
    TY_CHECK(import_start(im, error), status, done);
    TY_CHECK((*format)->read(im, error), status, done);
    if (!im->is_finished)
        status = import_finish(im, error);
done:
    return status;
}

ty_status import_with(const catalogue *c, const char *text, size_t length, const char *name,
                      const ty_cluster_import_options *options, ty_cluster **out,
                      ty_import_notes *notes, ty_error *error)
{
    static const ty_cluster_import_options none = {0};
    importer im = {.name = name,
                   .length = length,
                   .options = options != NULL ? options : &none,
                   .catalogue = c};
    const import_format *format = NULL;
    char *copy = NULL, *noted = NULL;
    ty_status status;

    if ((copy = ty_alloc(length + 1, 1)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %.160s", name);
    memcpy(copy, text, length);
    im.text = copy;
    TY_CHECK(read_all(&im, &format, error), status, cleanup);
    TY_CHECK(ty_text_take(&im.notes, &noted, error), status, cleanup);
    if (notes != NULL) {
        *notes = (ty_import_notes){.format = format->name, .text = noted};
        noted = NULL; /* given away */
    }
    *out = im.cluster;
    im.cluster = NULL; /* given away */
cleanup:
    builder_close(&im.builder);
    ty_cluster_free(im.cluster);
    ty_text_clear(&im.notes);
    ty_free(noted);
    ty_free(copy);
    return status;
}

ty_status ty_cluster_import_text(const char *text, size_t length, const char *name,
                                 const ty_cluster_import_options *options, ty_cluster **out,
                                 ty_import_notes *notes, ty_error *error)
{
    catalogue *c = NULL;
    ty_status status = catalogue_load(&c, error);

    ty_skip_mark(&text, &length);
    if (status == TY_OK)
        status = import_with(c, text, length, name, options, out, notes, error);
    catalogue_free(c);
    return status;
}

ty_status ty_cluster_import(const char *path, const ty_cluster_import_options *options,
                            ty_cluster **out, ty_import_notes *notes, ty_error *error)
{
    char *text = NULL;
    size_t length;
    ty_status status = ty_file_read(path, FILE_LIMIT, &text, &length, error);

    if (status == TY_OK)
        status =
            ty_cluster_import_text(text, length, strcmp(path, "-") == 0 ? "standard input" : path,
                                   options, out, notes, error);
    ty_free(text);
    return status;
}
