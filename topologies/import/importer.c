/* Common code of cluster importers: notes, errors, lines, and links by their rates. */
#include "importer.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    for (char *c = message; *c != '\0'; c++) /* it may quote binary bytes */
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

    TY_TRY(import_need_host(im, what, error));
    import_note(im, "the file %s: the inside is that of %s", what,
                im->catalogue->hosts[im->host].name);
    TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_SWITCH, "fabric", 0, &fabric, error));
    for (uint32_t h = 0; h < count; h++) {
        snprintf(name, sizeof name, "host-%u", h);
        TY_TRY(builder_host_below(&im->builder, im->host, name, fabric, error));
    }
    return TY_OK;
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
    /* Line rates in Gbit/s; other rates are used unchanged. */
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
    /* NCCL's src/graph/topo.cc: bandwidth between two processors, by vendor and model */
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

/* ---- The cluster ------------------------------------------------------------------------- */

/* The file name without folders, as the cluster's name. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Names go into JSON, and may have been cut within a character: replaces non-ASCII bytes by "?".
 */
static void make_plain(char *name)
{
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < ' ' || (unsigned char)*name > '~')
            *name = '?';
}

ty_status import_start(importer *im, ty_error *error)
{
    builder_close(&im->builder);
    ty_cluster_free(im->cluster);
    im->cluster = NULL;
    im->is_finished = false;
    ty_text_clear(&im->notes);
    TY_TRY(ty_cluster_new(base_name(im->name), &im->cluster, error));
    return builder_open(&im->builder, im->cluster, im->catalogue, error);
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
    TY_TRY(ty_cluster_check_figures(im->cluster, im->name, error));
    status = ty_cluster_finish(im->cluster, &problem, error);
    if (status != TY_OK || problem.expected == NULL)
        return status;
    return import_fail(im, error, 0, "found %s, expected %s",
                       problem.vertex == NO_INDEX
                           ? "no device"
                           : ty_cluster_vertex_name(im->cluster, problem.vertex),
                       problem.expected);
}
