/* ASTRA-sim's network description (YAML): dimensions, each a ring, a switch or fully connected,
 * with a bandwidth in GB/s and a latency in ns a link. NPUs forward for each other there; devices
 * do not here, so each gets a router, linked to it as wide as all its links and without delay. The
 * innermost dimension is a host. */
#include "importer.h"
#include "yml.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSION_LIMIT = 8 };

typedef enum shape { RING, SWITCH, FULLY_CONNECTED, SHAPE_COUNT } shape;
static const char *const shape_names[SHAPE_COUNT] = {"Ring", "Switch", "FullyConnected"};

typedef struct dimension {
    shape shape;
    uint32_t size;
    double bandwidth, latency;
} dimension;

typedef struct network {
    importer *im;
    uint32_t count, npus;
    dimension dimensions[DIMENSION_LIMIT];
    uint32_t *routers; /* [npus] */
} network;

static ty_status read_number(const importer *im, yml_node node, double minimum, double maximum,
                             double *out, ty_error *error)
{
    const char *text = yml_text(node);
    char *end;

    *out = strtod(text, &end);
    if (end == text || *end != '\0' || !(*out >= minimum && *out <= maximum))
        return import_fail(im, error, yml_line(node),
                           "found \"%.40s\", expected a number from %g "
                           "to %g",
                           text, minimum, maximum);
    return TY_OK;
}

static ty_status read_dimension(network *n, yml_node root, size_t i, ty_error *error)
{
    const char *const keys[] = {"npus_count", "bandwidth", "latency"};
    yml_node topology = yml_get(root, "topology"), name = yml_at(topology, i, NULL);
    dimension *d = &n->dimensions[i];
    double size;
    uint32_t s = 0;

    while (s < SHAPE_COUNT && strcmp(yml_text(name), shape_names[s]) != 0)
        s++;
    if (s == SHAPE_COUNT)
        return import_fail(n->im, error, yml_line(name),
                           "found topology \"%.40s\", expected Ring, Switch or FullyConnected",
                           yml_text(name));
    d->shape = (shape)s;
    for (int k = 0; k < 3; k++) {
        yml_node list = yml_get(root, keys[k]);
        if (!yml_is_sequence(list) || yml_size(list) != yml_size(topology))
            return import_fail(n->im, error, yml_line(root),
                               "found %zu values of %s, expected %zu as of topology",
                               yml_size(list), keys[k], yml_size(topology));
    }
    TY_TRY(read_number(n->im, yml_at(yml_get(root, "npus_count"), i, NULL), 1, DEVICE_LIMIT, &size,
                       error));
    TY_TRY(read_number(n->im, yml_at(yml_get(root, "bandwidth"), i, NULL), 1e-6, 1e9, &d->bandwidth,
                       error));
    TY_TRY(
        read_number(n->im, yml_at(yml_get(root, "latency"), i, NULL), 0, 1e12, &d->latency, error));
    if (floor(size) < size)
        return import_fail(n->im, error, yml_line(topology),
                           "found %g NPUs, expected a whole number", size);
    d->size = (uint32_t)size;
    d->bandwidth *= 1e9;
    d->latency *= 1e-9;
    if ((double)n->npus * size > DEVICE_LIMIT)
        return import_fail(n->im, error, yml_line(topology), "found more than %d NPUs",
                           DEVICE_LIMIT);
    n->npus *= d->size;
    return TY_OK;
}

/* ---- Building ---------------------------------------------------------------------------- */

static ty_status add_wire(network *n, uint32_t from, uint32_t to, uint32_t index, double lanes,
                          ty_error *error)
{
    const dimension *d = &n->dimensions[index];
    char name[48], source[] = "bandwidth and latency in the file";
    link_type type = {.name = name,
                      .source = source,
                      .bandwidth_bytes_per_s = d->bandwidth,
                      .latency_s = d->latency};

    snprintf(name, sizeof name, "dimension-%u", index);
    return builder_own_link(&n->im->builder, from, to, &type, lanes, error);
}

/* Links of the NPU that stands at the start of a row of a dimension: the whole row. */
static ty_status add_row(network *n, uint32_t index, uint32_t start, uint32_t stride,
                         ty_error *error)
{
    const dimension *d = &n->dimensions[index];
    uint32_t hub;
    char name[64];

    if (d->size == 1)
        return TY_OK;
    if (d->shape == SWITCH) {
        snprintf(name, sizeof name, "switch-%u-%u", index, start);
        TY_TRY(ty_cluster_add_vertex(n->im->cluster, TY_VERTEX_SWITCH, name, 0, &hub, error));
    }
    for (uint32_t a = 0; a < d->size; a++) {
        uint32_t from = n->routers[start + a * stride];
        if (d->shape == SWITCH)
            TY_TRY(add_wire(n, from, hub, index, 1, error));
        for (uint32_t b = a + 1; d->shape == FULLY_CONNECTED && b < d->size; b++)
            TY_TRY(add_wire(n, from, n->routers[start + b * stride], index, 1, error));
        /* the two ways round a ring of two are both to the same neighbour */
        if (d->shape == RING && (d->size > 2 || a == 0))
            TY_TRY(add_wire(n, from, n->routers[start + (a + 1) % d->size * stride], index,
                            d->size == 2 ? 2 : 1, error));
    }
    return TY_OK;
}

static double width_of(const network *n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n->count; i++)
        sum +=
            n->dimensions[i].bandwidth * (n->dimensions[i].shape == SWITCH ? 1
                                          : n->dimensions[i].shape == RING ? 2
                                                                           : n->dimensions[i].size);
    return sum;
}

static ty_status add_npus(network *n, ty_error *error)
{
    importer *im = n->im;
    uint32_t per_host = n->dimensions[0].size, hub = NO_INDEX, vertex;
    uint32_t device = import_device(im), port = im->catalogue->devices[device].port;
    char name[64], kind[] = "npu-port", source[] = "as wide as all links of an NPU";
    link_type inner = {.name = kind, .source = source, .bandwidth_bytes_per_s = width_of(n)};

    for (uint32_t i = 0; i < n->npus; i++) {
        if (i % per_host == 0) {
            snprintf(name, sizeof name, "host-%u", i / per_host);
            TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_HOST, name, 0, &hub, error));
        }
        snprintf(name, sizeof name, "router-%u", i);
        TY_TRY(
            ty_cluster_add_vertex(im->cluster, TY_VERTEX_SWITCH, name, 0, &n->routers[i], error));
        snprintf(name, sizeof name, "host-%u/npu-%u", i / per_host, i % per_host);
        TY_TRY(builder_device(&im->builder, name, device, hub, &vertex, error));
        TY_TRY(builder_link(&im->builder, vertex, hub, port, false, 1, error));
        TY_TRY(builder_own_link(&im->builder, vertex, n->routers[i], &inner, 1, error));
    }
    return TY_OK;
}

static ty_status build(network *n, ty_error *error)
{
    uint32_t stride = 1;

    TY_TRY(ty_check_memory((n->routers = ty_alloc(n->npus, sizeof *n->routers)) != NULL, error));
    TY_TRY(add_npus(n, error));
    for (uint32_t d = 0; d < n->count; d++) {
        for (uint32_t i = 0; i < n->npus; i++)
            if (i / stride % n->dimensions[d].size == 0)
                TY_TRY(add_row(n, d, i, stride, error));
        stride *= n->dimensions[d].size;
    }
    return TY_OK;
}

static ty_status read_root(importer *im, yml_node root, ty_error *error)
{
    network n = {.im = im, .npus = 1};
    yml_node topology = yml_get(root, "topology");
    ty_status status = TY_OK;

    if (!yml_is_sequence(topology) || yml_size(topology) == 0 ||
        yml_size(topology) > DIMENSION_LIMIT)
        return import_fail(im, error, yml_line(root),
                           "found %zu dimensions in topology, expected a list of 1 to %d",
                           yml_size(topology), DIMENSION_LIMIT);
    n.count = (uint32_t)yml_size(topology);
    for (size_t i = 0; i < n.count; i++)
        TY_CHECK(read_dimension(&n, root, i, error), status, cleanup);
    TY_CHECK(import_need_device(im, "does not say what its NPUs are", error), status, cleanup);
    import_note(im,
                "the innermost dimension is taken as a host, each NPU with a router of its own");
    status = build(&n, error);
cleanup:
    ty_free(n.routers);
    return status;
}

static ty_status read(importer *im, ty_error *error)
{
    return import_yml(im, read_root, error);
}

static bool has_key(const char *text, size_t length, const char *key)
{
    import_lines l = import_lines_of(text, length);
    size_t size = strlen(key);

    while (import_next_line(&l))
        if (l.length > size && memcmp(l.line, key, size) == 0 && l.line[size] == ':')
            return true;
    return false;
}

static bool probe(const char *text, size_t length)
{
    return has_key(text, length, "topology") && has_key(text, length, "npus_count");
}

const import_format import_astra = {"astra-sim", "ASTRA-sim network (YAML)", probe, read};

/* ---- Neighbours of such files that describe no cluster ------------------------------------- */

typedef struct foreign {
    const char *marks[2]; /* both are in it */
    const char *what;
} foreign;

static const foreign foreigners[] = {
    {{"\"scheduling-policy\"", "\"all-reduce-implementation\""},
     "an ASTRA-sim system file (collectives and scheduling), expected the network file (YAML) that "
     "goes with it"},
    {{"\"matrix\"", "\"networks\""},
     "a Calculon system (one device and rates of nested networks, without counts), expected a "
     "cluster; \"leaf:4 host:8 gpu:8 @DEVICE LINK NETWORK\" says the same with counts"},
    {{"Downlink_speed_Gbps", "Radix_Down"},
     "an htsim topology (.topo: radix and speed of tiers), expected a cluster; \"pod:2 leaf:2 "
     "host:2 gpu:1 @DEVICE LINK NETWORK oversub:R\" says the same"},
};

/* No terminator is needed: texts of probes end in a NUL (importer.c, ty_file_read). */
static bool contains(const char *text, size_t length, const char *mark)
{
    size_t size = strlen(mark);

    for (const char *at = text, *end = text + length;
         (at = memchr(at, mark[0], (size_t)(end - at))) != NULL; at++)
        if ((size_t)(end - at) >= size && memcmp(at, mark, size) == 0)
            return true;
    return false;
}

static const foreign *find_foreign(const char *text, size_t length)
{
    size_t start = length < 4096 ? length : 4096;

    for (size_t i = 0; i < sizeof foreigners / sizeof foreigners[0]; i++)
        if (contains(text, start, foreigners[i].marks[0]) &&
            contains(text, start, foreigners[i].marks[1]))
            return &foreigners[i];
    return NULL;
}

static bool probe_foreign(const char *text, size_t length)
{
    return find_foreign(text, length) != NULL;
}

static ty_status refuse_foreign(importer *im, ty_error *error)
{
    const foreign *f = find_foreign(im->text, im->length);

    return ty_fail(error, TY_EUNSUPPORTED, "%.160s: found %s", im->name,
                   f != NULL ? f->what : "no file of another simulator, expected one");
}

const import_format import_foreign = {"simulator",
                                      "files of simulators that are no clusters "
                                      "(refused)",
                                      probe_foreign, refuse_foreign};
