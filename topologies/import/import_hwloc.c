/* hwloc's XML (`lstopo machine.xml`), versions 2 and 3. Does not use libhwloc, as each version of
 * the library refuses the files of later ones, and only packages, bridges, PCI devices with their
 * OS devices, and the NVLink matrix are needed. */
#include "importer.h"
#include "xml.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 100, THING_LIMIT = 1024, PACKAGE_LIMIT = 64 };

/* A relevant PCI device, by hwloc's number for it and for its OS devices. */
typedef struct thing {
    const xml_element *element;
    uint32_t vertex;
    bool is_gpu;
} thing;

typedef struct machine {
    importer *im;
    uint32_t number, hub, fabric, device_switch;
    uint32_t packages, bridges, gpus, nics, count;
    thing *things;                /* [THING_LIMIT] */
    thing package[PACKAGE_LIMIT]; /* [packages] */
} machine;

/* ---- Kinds of PCI devices ---------------------------------------------------------------- */

static bool is_type(const xml_element *e, const char *type)
{
    const char *t = xml_is(e, "object") ? xml_attribute(e, "type") : NULL;
    return t != NULL && strcmp(t, type) == 0;
}

static const char *info_of(const xml_element *e, const char *name)
{
    for (const xml_element *i = xml_first(e); i != NULL; i = xml_next(i)) {
        const char *key = xml_is(i, "info") ? xml_attribute(i, "name") : NULL;
        if (key != NULL && strcmp(key, name) == 0)
            return xml_attribute(i, "value");
    }
    return NULL;
}

static const xml_element *os_device(const xml_element *pci, const char *const *starts)
{
    for (const xml_element *o = xml_first(pci); o != NULL; o = xml_next(o)) {
        const char *name = is_type(o, "OSDev") ? xml_attribute(o, "name") : NULL;
        for (const char *const *s = starts; name != NULL && *s != NULL; s++)
            if (strncmp(name, *s, strlen(*s)) == 0)
                return o;
    }
    return NULL;
}

/* "0302 [10de:1db8] [10de:131d] a1": class, identity. */
static bool read_identity(const xml_element *pci, char out[16])
{
    const char *type = xml_attribute(pci, "pci_type");
    const char *open = type == NULL ? NULL : strchr(type, '[');

    if (open == NULL || strlen(open) < 10 || open[5] != ':')
        return false;
    snprintf(out, 16, "%.9s", open + 1);
    return true;
}

static bool has_class(const xml_element *pci, const char *class)
{
    const char *type = xml_attribute(pci, "pci_type");
    return type != NULL && strncmp(type, class, strlen(class)) == 0;
}

static uint32_t known_device(const importer *im, const xml_element *pci)
{
    static const char *const gpu_names[] = {"nvml", "cuda", "rsmi", "opencl", NULL};
    const xml_element *os = os_device(pci, gpu_names);
    const char *model = os != NULL ? info_of(os, "GPUModel") : NULL;
    uint32_t type = NO_INDEX;
    char identity[16];

    if (model != NULL)
        type = catalogue_match_device(im->catalogue, "name", model);
    if (type == NO_INDEX && read_identity(pci, identity))
        type = catalogue_match_device(im->catalogue, "pci", identity);
    return type;
}

static bool is_gpu(const importer *im, const xml_element *pci)
{
    static const char *const gpu_names[] = {"nvml", "cuda", "rsmi", NULL};

    return is_type(pci, "PCIDev") &&
           (os_device(pci, gpu_names) != NULL || has_class(pci, "0302") ||
            (known_device(im, pci) != NO_INDEX && !has_class(pci, "0680")));
}

static bool is_nic(const xml_element *pci)
{
    static const char *const fabric_names[] = {"mlx", "ib", "hfi", "efa", "bxi", NULL};

    return is_type(pci, "PCIDev") &&
           (os_device(pci, fabric_names) != NULL || has_class(pci, "0207"));
}

/* Number of relevant PCI devices in a subtree. */
static uint32_t count_things(const importer *im, const xml_element *e, int depth)
{
    uint32_t count = is_gpu(im, e) || is_nic(e);

    for (const xml_element *c = xml_first(e); c != NULL && depth < DEPTH_LIMIT; c = xml_next(c))
        if (xml_is(c, "object"))
            count += count_things(im, c, depth + 1);
    return count;
}

/* ---- The tree ---------------------------------------------------------------------------- */

/* hwloc gives GB/s before PCIe's overhead. Compares it with sixteen PCIe lanes of each generation:
 * the fastest one with a plausible share gives the width. */
static import_pcie link_of(const xml_element *e)
{
    static const double rates[] = {4, 8, 15.753846, 31.507692, 63.015385, 121};
    const char *speed = xml_attribute(e, "pci_link_speed");
    double rate = speed == NULL ? 0 : strtod(speed, NULL);
    import_pcie link = {.generation = 3, .lanes = 1};

    if (!(rate > 0.2 && rate < 300))
        return link;
    for (uint32_t g = 3; g < 6; g++)
        if (rate >= 0.99 * rates[g])
            link.generation = g + 1;
    link.lanes = fmax(1, round(16 * rate / rates[link.generation - 1])) / 16;
    return link;
}

static ty_status add_thing(machine *m, const xml_element *pci, uint32_t parent, ty_error *error)
{
    importer *im = m->im;
    thing *t = &m->things[m->count];
    uint32_t type;
    char name[64];

    if (m->count == THING_LIMIT)
        return import_fail(im, error, xml_line(pci), "found more than %d GPUs and NICs",
                           THING_LIMIT);
    *t = (thing){.element = pci, .is_gpu = is_gpu(im, pci)};
    if (t->is_gpu) {
        type = im->device != NO_INDEX ? im->device : known_device(im, pci);
        type = type != NO_INDEX ? type : import_device(im);
        if (type == NO_INDEX)
            return import_need_device(im, "has GPUs that are not in the catalogue", error);
        snprintf(name, sizeof name, "host-%u/gpu-%u", m->number, m->gpus++);
        TY_TRY(builder_device(&im->builder, name, type, m->hub, &t->vertex, error));
    } else {
        snprintf(name, sizeof name, "host-%u/nic-%u", m->number, m->nics++);
        TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_NIC, name, 0, &t->vertex, error));
        if (m->fabric != NO_INDEX)
            TY_TRY(builder_link(&im->builder, t->vertex, m->fabric,
                                im->catalogue->hosts[im->host].network, false, 1, error));
    }
    m->count++;
    return import_pcie_link(im, t->vertex, parent, link_of(pci), !t->is_gpu, error);
}

static ty_status add_package(machine *m, const xml_element *e, uint32_t *vertex, ty_error *error)
{
    importer *im = m->im;
    char name[64];
    ty_status status;

    if (m->packages == PACKAGE_LIMIT)
        return import_fail(im, error, xml_line(e), "found more than %d packages", PACKAGE_LIMIT);
    snprintf(name, sizeof name, "host-%u/package-%u", m->number, m->packages);
    TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, vertex, error));
    status =
        builder_link(&im->builder, *vertex, m->hub,
                     import_smp_link(im, NULL, info_of(e, "CPUVendor"),
                                     info_of(e, "CPUFamilyNumber"), info_of(e, "CPUModelNumber")),
                     false, 1, error);
    m->package[m->packages++] = (thing){.element = e, .vertex = *vertex};
    return status;
}

/* A bridge with one branch is a wire. */
static uint32_t count_branches(const importer *im, const xml_element *e)
{
    uint32_t count = 0;

    for (const xml_element *c = xml_first(e); c != NULL; c = xml_next(c))
        count += xml_is(c, "object") && count_things(im, c, 0) > 0;
    return count;
}

static ty_status add_object(machine *m, const xml_element *e, uint32_t parent, int depth,
                            ty_error *error)
{
    const char *bridge = xml_attribute(e, "bridge_type");
    uint32_t vertex = parent;
    char name[64];

    if (depth > DEPTH_LIMIT)
        return import_fail(m->im, error, xml_line(e), "found objects nested deeper than %d",
                           DEPTH_LIMIT);
    if (count_things(m->im, e, depth) == 0)
        return TY_OK;
    if (is_gpu(m->im, e) || is_nic(e))
        return add_thing(m, e, parent, error);
    if (is_type(e, "Package")) {
        TY_TRY(add_package(m, e, &vertex, error));
    } else if (is_type(e, "Bridge") && bridge != NULL && bridge[0] == '1' &&
               count_branches(m->im, e) > 1) {
        snprintf(name, sizeof name, "host-%u/bridge-%u", m->number, m->bridges++);
        TY_TRY(ty_cluster_add_vertex(m->im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, &vertex,
                                     error));
        TY_TRY(import_pcie_link(m->im, vertex, parent, link_of(e), true, error));
    }
    for (const xml_element *c = xml_first(e); c != NULL; c = xml_next(c))
        if (xml_is(c, "object"))
            TY_TRY(add_object(m, c, vertex, depth + 1, error));
    return TY_OK;
}

/* ---- NVLink ------------------------------------------------------------------------------ */

static bool is_number(const xml_element *e, uint64_t number)
{
    const char *index = xml_attribute(e, "gp_index");
    return index != NULL && strtoull(index, NULL, 10) == number;
}

/* The PCI device of an hwloc number: its own, or that of an OS device on it. */
static uint32_t find_thing(const machine *m, uint64_t number)
{
    for (uint32_t t = 0; t < m->count; t++) {
        if (is_number(m->things[t].element, number))
            return t;
        for (const xml_element *o = xml_first(m->things[t].element); o != NULL; o = xml_next(o))
            if (is_type(o, "OSDev") && is_number(o, number))
                return t;
    }
    return NO_INDEX;
}

static uint32_t find_package(const machine *m, uint64_t number)
{
    for (uint32_t p = 0; p < m->packages; p++)
        if (is_number(m->package[p].element, number))
            return p;
    return NO_INDEX;
}

/* The object of that number in a tree; NULL: none. */
static const xml_element *find_object(const xml_element *e, uint64_t number, int depth)
{
    const xml_element *found = xml_is(e, "object") && is_number(e, number) ? e : NULL;

    for (const xml_element *c = xml_first(e); found == NULL && c != NULL && depth < DEPTH_LIMIT;
         c = xml_next(c))
        found = find_object(c, number, depth + 1);
    return found;
}

/* Reads the numbers in all elements of a name, in order; "OSDev:802" gives 802. */
static ty_status read_numbers(const importer *im, const xml_element *matrix, const char *name,
                              uint64_t *out, size_t count, ty_error *error)
{
    size_t filled = 0;

    for (const xml_element *e = xml_first(matrix); e != NULL; e = xml_next(e)) {
        const char *at = xml_is(e, name) ? xml_text(e) : "";
        while (*at != '\0') {
            char *end;
            while (*at != '\0' && !isdigit((unsigned char)*at))
                at++;
            if (*at == '\0')
                break;
            if (filled == count)
                return import_fail(im, error, xml_line(e), "found more than %zu <%s>, expected %zu",
                                   count, name, count);
            out[filled++] = strtoull(at, &end, 10);
            at = end;
        }
    }
    if (filled < count)
        return import_fail(im, error, xml_line(matrix), "found %zu <%s>, expected %zu", filled,
                           name, count);
    return TY_OK;
}

/* MB/s of one NVLink by data sheet. */
static double link_rate(const machine *m, uint32_t type)
{
    const catalogue *c = m->im->catalogue;
    uint32_t link = c->devices[type].scale_up;

    if (link != NO_INDEX && strcmp(c->links[link].name, "nvlink1") == 0)
        return 20000;
    return link != NO_INDEX && strcmp(c->links[link].name, "nvlink5") == 0 ? 50000 : 25000;
}

/* The catalogue's type of a device vertex of the cluster. */
static uint32_t type_at(const machine *m, uint32_t vertex)
{
    const ty_cluster *c = m->im->cluster;
    return catalogue_find_device(m->im->catalogue,
                                 c->device_types[c->vertices[vertex].device_type].name);
}

static ty_status add_switched(machine *m, uint32_t vertex, uint32_t type, double links,
                              ty_error *error)
{
    const catalogue_device *device = &m->im->catalogue->devices[type];
    char name[64];

    snprintf(name, sizeof name, "host-%u/nvswitch", m->number);
    if (m->device_switch == NO_INDEX)
        TY_TRY(ty_cluster_add_vertex(m->im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0,
                                     &m->device_switch, error));
    return builder_link(&m->im->builder, vertex, m->device_switch, device->scale_up, false,
                        links / device->scale_up_links, error);
}

/* NVLinks to a processor, as in POWER8 and POWER9: the links that connect to a switch elsewhere. */
static ty_status add_to_package(machine *m, uint32_t gpu, uint32_t package, uint32_t type,
                                double links, ty_error *error)
{
    const catalogue_device *device = &m->im->catalogue->devices[type];

    if (device->scale_up == NO_INDEX)
        return TY_OK;
    return builder_link(&m->im->builder, m->things[gpu].vertex, m->package[package].vertex,
                        device->scale_up, false, links / device->scale_up_links, error);
}

static ty_status add_row(machine *m, const xml_element *root, uint32_t count,
                         const uint64_t *indexes, const uint64_t *row, uint32_t self,
                         ty_error *error)
{
    uint32_t from = find_thing(m, indexes[self]), type;
    double switched = 0;
    ty_status status = TY_OK;

    if (from == NO_INDEX || !m->things[from].is_gpu)
        return TY_OK; /* an NVSwitch or a processor: the GPUs list its links */
    type = type_at(m, m->things[from].vertex);
    for (uint32_t i = 0; i < count && status == TY_OK; i++) {
        uint32_t to = row[i] > 0 && i != self ? find_thing(m, indexes[i]) : NO_INDEX;
        uint32_t package = find_package(m, indexes[i]);
        double links = (double)row[i] / link_rate(m, type);
        const xml_element *other;
        if (row[i] == 0 || i == self || row[i] > 10000000)
            continue;
        other = to == NO_INDEX ? find_object(root, indexes[i], 0) : NULL;
        if (package != NO_INDEX)
            status = add_to_package(m, from, package, type, links, error);
        else if (to == NO_INDEX && other != NULL && !is_type(other, "Package"))
            switched += links;
        else if (to == NO_INDEX)
            import_note(m->im, "NVLinks of GPU %u to %s %llu are left out: it is not drawn", from,
                        other != NULL ? "package" : "something the file does not have,",
                        (unsigned long long)indexes[i]);
        else if (to > from && m->im->catalogue->devices[type].direct != NO_INDEX)
            status = builder_link(&m->im->builder, m->things[from].vertex, m->things[to].vertex,
                                  m->im->catalogue->devices[type].direct, false, links, error);
    }
    if (status == TY_OK && switched > 0 && m->im->catalogue->devices[type].scale_up != NO_INDEX)
        status = add_switched(m, m->things[from].vertex, type, switched, error);
    return status;
}

static ty_status add_matrix(machine *m, const xml_element *root, const xml_element *matrix,
                            ty_error *error)
{
    const char *size = xml_attribute(matrix, "nbobjs");
    uint64_t count = 0, *numbers = NULL;
    ty_status status;

    if (size == NULL || ty_parse_uint(size, 1, THING_LIMIT, &count, NULL) != TY_OK)
        return import_fail(m->im, error, xml_line(matrix),
                           "found nbobjs=\"%.20s\", expected 1 to %d", size == NULL ? "" : size,
                           THING_LIMIT);
    numbers = ty_alloc(count * (count + 1), sizeof *numbers);
    TY_TRY(ty_check_memory(numbers != NULL, error));
    TY_CHECK(read_numbers(m->im, matrix, "indexes", numbers, count, error), status, cleanup);
    TY_CHECK(read_numbers(m->im, matrix, "u64values", numbers + count, count * count, error),
             status, cleanup);
    for (uint32_t i = 0; i < count; i++)
        TY_CHECK(add_row(m, root, (uint32_t)count, numbers, numbers + count * (i + 1), i, error),
                 status, cleanup);
cleanup:
    ty_free(numbers);
    return status;
}

/* ---- The file ---------------------------------------------------------------------------- */

static ty_status add_machine(importer *im, const xml_element *root, uint32_t number,
                             uint32_t fabric, ty_error *error)
{
    machine m = {.im = im, .number = number, .fabric = fabric, .device_switch = NO_INDEX};
    char name[32];
    ty_status status;

    TY_TRY(ty_check_memory((m.things = ty_alloc(THING_LIMIT, sizeof *m.things)) != NULL, error));
    snprintf(name, sizeof name, "host-%u", number);
    TY_CHECK(ty_cluster_add_vertex(im->cluster, TY_VERTEX_HOST, name, 0, &m.hub, error), status,
             cleanup);
    for (const xml_element *e = xml_first(root); e != NULL; e = xml_next(e))
        if (xml_is(e, "object"))
            TY_CHECK(add_object(&m, e, m.hub, 0, error), status, cleanup);
    for (const xml_element *e = xml_first(root); e != NULL; e = xml_next(e)) {
        const char *matrix = xml_attribute(e, "name");
        if (strncmp(xml_name(e), "distances2", 10) == 0 && matrix != NULL &&
            strcmp(matrix, "NVLinkBandwidth") == 0)
            TY_CHECK(add_matrix(&m, root, e, error), status, cleanup);
    }
cleanup:
    ty_free(m.things);
    return status;
}

static uint32_t count_gpus(const importer *im, const xml_element *e, int depth)
{
    uint32_t count = is_gpu(im, e);

    for (const xml_element *c = xml_first(e); c != NULL && depth < DEPTH_LIMIT; c = xml_next(c))
        if (xml_is(c, "object"))
            count += count_gpus(im, c, depth + 1);
    return count;
}

static ty_status read_root(importer *im, const xml_element *root, ty_error *error)
{
    const char *version = xml_attribute(root, "version");
    uint32_t count = im->options->hosts > 0 ? im->options->hosts : 1, fabric = NO_INDEX;

    if (!xml_is(root, "topology") || version == NULL || (version[0] != '2' && version[0] != '3'))
        return import_fail(im, error, xml_line(root),
                           "found <%.40s version=\"%.20s\">, expected <topology> of hwloc 2 or 3",
                           xml_name(root), version != NULL ? version : "");
    if (count_gpus(im, root, 0) == 0)
        return import_catalogue_hosts(im, "names no GPU", error);
    if (im->host != NO_INDEX) {
        TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_SWITCH, "fabric", 0, &fabric, error));
        import_note(im, "the rate of the NICs is not in the file: %s, as of %s",
                    im->catalogue->links[im->catalogue->hosts[im->host].network].name,
                    im->catalogue->hosts[im->host].name);
    } else if (count > 1) {
        return import_need_host(im, "does not say how fast its NICs are", error);
    } else {
        import_note(im,
                    "the rate of NICs is not in the file and no host was named: not linked to a "
                    "network");
    }
    for (uint32_t h = 0; h < count; h++)
        TY_TRY(add_machine(im, root, h, fabric, error));
    if (fabric != NO_INDEX && im->cluster->link_count > 0) {
        for (uint32_t i = 0; i < im->cluster->link_count; i++)
            if (im->cluster->links[i].to == fabric)
                return TY_OK;
        return import_fail(im, error, 0, "found no NIC, expected some to link to the network of %s",
                           im->catalogue->hosts[im->host].name);
    }
    return TY_OK;
}

static ty_status read(importer *im, ty_error *error)
{
    xml_document *document = NULL;
    ty_status status = xml_parse(im->text, im->length, im->name, &document, error);

    if (status == TY_OK)
        status = read_root(im, xml_root(document), error);
    xml_free(document);
    return status;
}

static bool probe(const char *text, size_t length)
{
    return xml_looks_like(text, length, "topology");
}

const import_format import_hwloc = {"hwloc", "hwloc XML (lstopo)", probe, read};
