/* One line of text -> cluster. Two forms:
 * - COUNTx HOST: hosts of the catalogue around one non-blocking switch;
 * - [pod:P] [leaf:L] host:H gpu:G @DEVICE INSIDE NETWORK [oversub:R].
 *
 * In the second, every device has a NIC of its own; leaves meet in one spine (of their pod), spines
 * in one core. A real fabric has many spines, which share the traffic; one that is as wide as all
 * of them together keeps what matters: the uplinks' sum, and that they may be oversubscribed. */
#include "catalogue.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_LIMIT = 16 };

typedef struct word {
    char *text;
    size_t column; /* from 1 */
} word;

typedef struct description {
    const char *text; /* as given */
    char *copy;
    word words[WORD_LIMIT];
    uint32_t count;
    const catalogue *catalogue;
} description;

/* ---- Words ------------------------------------------------------------------------------- */

static ty_status split(description *d, ty_error *error)
{
    char *at = d->copy;

    for (;;) {
        while (isspace((unsigned char)*at))
            *at++ = '\0';
        if (*at == '\0')
            break;
        if (d->count == WORD_LIMIT)
            return ty_fail(error, TY_EPARSE,
                           "cluster \"%.80s\": found more than %d words, expected \"16x HOST\" or "
                           "\"leaf:4 host:8 gpu:8 @DEVICE LINK NETWORK\"",
                           d->text, WORD_LIMIT);
        d->words[d->count++] = (word){at, (size_t)(at - d->copy) + 1};
        while (*at != '\0' && !isspace((unsigned char)*at))
            at++;
    }
    return TY_OK;
}

/* TY_EPARSE: where, what was found, what was expected. */
static ty_status fail_at(const description *d, uint32_t i, ty_error *error, const char *expected,
                         const char *suggestion)
{
    if (i >= d->count)
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\": found its end after %u words, expected %s", d->text,
                       d->count, expected);
    return ty_fail(error, TY_EPARSE,
                   "cluster \"%.80s\", word %u, column %zu: found \"%.60s\", expected %s%s%s%s",
                   d->text, i + 1, d->words[i].column, d->words[i].text, expected,
                   suggestion != NULL ? "; did you mean \"" : "",
                   suggestion != NULL ? suggestion : "", suggestion != NULL ? "\"?" : "");
}

static ty_status read_host(const description *d, uint32_t i, uint32_t *host, ty_error *error)
{
    const catalogue *c = d->catalogue;

    if (i < d->count && (*host = catalogue_find_host(c, d->words[i].text)) != NO_INDEX)
        return TY_OK;
    return fail_at(d, i, error, "a host of the catalogue",
                   i >= d->count ? NULL
                                 : ty_suggest(d->words[i].text, &c->hosts[0].name, c->host_count,
                                              sizeof c->hosts[0]));
}

/* A device by its name, or by the start of it up to a dash where only one starts so: "h100". */
static uint32_t match_device(const catalogue *c, const char *name)
{
    size_t length = strlen(name);
    uint32_t found = catalogue_find_device(c, name), matches = 0;

    for (uint32_t i = 0; found == NO_INDEX && i < c->device_type_count; i++)
        matches += strncmp(c->device_types[i].name, name, length) == 0 &&
                   c->device_types[i].name[length] == '-';
    for (uint32_t i = 0; matches == 1 && found == NO_INDEX; i++)
        if (strncmp(c->device_types[i].name, name, length) == 0 &&
            c->device_types[i].name[length] == '-')
            found = i;
    return found;
}

static ty_status read_device(const description *d, uint32_t i, uint32_t *device, ty_error *error)
{
    const catalogue *c = d->catalogue;
    const char *name = i < d->count && d->words[i].text[0] == '@' ? d->words[i].text + 1 : NULL;

    if (name != NULL && (*device = match_device(c, name)) != NO_INDEX)
        return TY_OK;
    return fail_at(d, i, error, "@ and a device of the catalogue",
                   name == NULL ? NULL
                                : ty_suggest(name, &c->device_types[0].name, c->device_type_count,
                                             sizeof c->device_types[0]));
}

/* A link that is used inside hosts, or one of the network. */
static ty_status read_link(const description *d, uint32_t i, bool is_network, uint32_t *link,
                           ty_error *error)
{
    const catalogue *c = d->catalogue;
    const char *near = NULL;

    if (i < d->count) {
        uint32_t found = catalogue_find_link(c, d->words[i].text);
        link_use use = found == NO_INDEX ? LINK_USE_COUNT : c->links[found].use;
        if (is_network ? use == LINK_NETWORK : use == LINK_TO_SWITCH || use == LINK_TO_HOST) {
            *link = found;
            return TY_OK;
        }
        if (found == NO_INDEX)
            near =
                ty_suggest(d->words[i].text, &c->links[0].name, c->link_count, sizeof c->links[0]);
    }
    return fail_at(d, i, error,
                   is_network ? "a kind of link to the network, such as \"ndr400\""
                              : "a kind of link inside the host, such as \"nvlink4\"",
                   near);
}

/* ---- COUNTx HOST ------------------------------------------------------------------------- */

static ty_status read_count(const description *d, uint32_t i, const char *digits, uint64_t *count,
                            ty_error *error)
{
    char expected[64];

    if (ty_parse_uint(digits, 1, DEVICE_LIMIT, count, NULL) == TY_OK)
        return TY_OK;
    snprintf(expected, sizeof expected, "a number from 1 to %d", DEVICE_LIMIT);
    return fail_at(d, i, error, expected, NULL);
}

/* Index of a catalogue link's type in the cluster: added when first used. */
typedef struct type_table {
    ty_cluster *cluster;
    const catalogue *catalogue;
    uint32_t *links, *trunks; /* [catalogue->link_count] or NO_INDEX */
} type_table;

static ty_status type_table_open(type_table *t, ty_cluster *cluster, const catalogue *c,
                                 ty_error *error)
{
    *t = (type_table){.cluster = cluster, .catalogue = c};
    t->links = ty_alloc(2 * (size_t)c->link_count, sizeof *t->links);
    if (t->links == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a cluster");
    t->trunks = t->links + c->link_count;
    for (uint32_t i = 0; i < 2 * c->link_count; i++)
        t->links[i] = NO_INDEX;
    return TY_OK;
}

static ty_status add_typed_link(type_table *t, uint32_t from, uint32_t to, uint32_t link,
                                bool is_trunk, double lanes, ty_error *error)
{
    const catalogue_link *entry = &t->catalogue->links[link];
    uint32_t *type = is_trunk ? &t->trunks[link] : &t->links[link];
    ty_status status;

    if (*type == NO_INDEX)
        TY_CHECK(
            cluster_add_link_type(t->cluster, is_trunk ? &entry->trunk : &entry->type, type, error),
            status, done);
    status = cluster_add_link(t->cluster, from, to, *type, lanes, error);
done:
    return status;
}

/* One server as the catalogue draws it, its NICs linked to `network_switch`. */
static ty_status add_catalogue_host(type_table *t, const catalogue_host *host, uint32_t number,
                                    uint32_t device_type, uint32_t network_switch, ty_error *error)
{
    uint32_t first = t->cluster->vertex_count, vertex;
    char name[200];
    ty_status status;

    snprintf(name, sizeof name, "host-%u", number);
    TY_CHECK(cluster_add_vertex(t->cluster, TY_VERTEX_HOST, name, 0, &vertex, error), status, done);
    for (uint32_t v = 1; v < host->vertex_count; v++) {
        const catalogue_vertex *inner = &host->vertices[v];
        snprintf(name, sizeof name, "host-%u/%.100s", number, inner->name);
        if (inner->kind == TY_VERTEX_DEVICE)
            TY_CHECK(cluster_add_device(t->cluster, name, device_type, first, &vertex, error),
                     status, done);
        else
            TY_CHECK(cluster_add_vertex(t->cluster, inner->kind, name, 0, &vertex, error), status,
                     done);
    }
    for (uint32_t e = 0; e < host->edge_count; e++)
        TY_CHECK(add_typed_link(t, first + host->edges[e].from, first + host->edges[e].to,
                                host->edges[e].link, false, host->edges[e].lanes, error),
                 status, done);
    for (uint32_t v = 1; v < host->vertex_count; v++)
        if (host->vertices[v].kind == TY_VERTEX_NIC)
            TY_CHECK(add_typed_link(t, first + v, network_switch, host->network, false, 1, error),
                     status, done);
done:
    return status;
}

static ty_status build_hosts(const description *d, uint64_t count, uint32_t host_index,
                             ty_cluster *cluster, ty_error *error)
{
    const catalogue_host *host = &d->catalogue->hosts[host_index];
    type_table types = {0};
    uint32_t device_type, network_switch;
    ty_status status;

    TY_CHECK(type_table_open(&types, cluster, d->catalogue, error), status, cleanup);
    TY_CHECK(cluster_add_device_type(cluster, &d->catalogue->device_types[host->device_type],
                                     &device_type, error),
             status, cleanup);
    TY_CHECK(cluster_add_vertex(cluster, TY_VERTEX_SWITCH, "fabric", 0, &network_switch, error),
             status, cleanup);
    for (uint32_t h = 0; h < count; h++)
        TY_CHECK(add_catalogue_host(&types, host, h, device_type, network_switch, error), status,
                 cleanup);
cleanup:
    ty_free(types.links);
    return status;
}

static uint32_t devices_in(const catalogue_host *host)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < host->vertex_count; v++)
        count += host->vertices[v].kind == TY_VERTEX_DEVICE;
    return count;
}

/* Refuses more devices than are believed, before anything is built. */
static ty_status check_size(const description *d, uint64_t devices, ty_error *error)
{
    if (devices <= DEVICE_LIMIT)
        return TY_OK;
    return ty_fail(error, TY_EPARSE, "cluster \"%.80s\": found %llu devices, expected at most %d",
                   d->text, (unsigned long long)devices, DEVICE_LIMIT);
}

static ty_status parse_hosts(const description *d, ty_cluster *cluster, ty_error *error)
{
    uint64_t count = 1;
    uint32_t host, last = d->count - 1;
    ty_status status;

    if (d->count > 1) {
        char *digits = d->words[0].text;
        size_t length = strlen(digits);
        digits[length - 1] = '\0'; /* the x */
        status = read_count(d, 0, digits, &count, NULL);
        digits[length - 1] = 'x';
        if (status != TY_OK)
            return fail_at(d, 0, error, "a number of hosts from 1 to 262144, followed by \"x\"",
                           NULL);
    }
    if (d->count > 2)
        return fail_at(d, 2, error, "nothing after the host", NULL);
    TY_CHECK(read_host(d, last, &host, error), status, done);
    TY_CHECK(check_size(d, count * devices_in(&d->catalogue->hosts[host]), error), status, done);
    status = build_hosts(d, count, host, cluster, error);
done:
    return status;
}

/* ---- Levels ------------------------------------------------------------------------------ */

enum { POD, LEAF, HOST, GPU, LEVEL_COUNT };
static const char *const level_names[LEVEL_COUNT] = {"pod", "leaf", "host", "gpu"};

typedef struct fabric {
    uint64_t levels[LEVEL_COUNT];
    uint32_t device, inside, network; /* of the catalogue */
    double oversubscription;
} fabric;

/* "host:8": the level and its count, or a failure that names the nearest level. */
static ty_status read_level(const description *d, uint32_t i, int *level, uint64_t *count,
                            ty_error *error)
{
    char key[16];
    const char *text = d->words[i].text, *colon = strchr(text, ':');
    size_t length = colon == NULL ? strlen(text) : (size_t)(colon - text);

    snprintf(key, sizeof key, "%.*s", (int)(length < sizeof key ? length : sizeof key - 1), text);
    for (*level = 0; *level < LEVEL_COUNT; (*level)++)
        if (colon != NULL && strcmp(key, level_names[*level]) == 0)
            return read_count(d, i, colon + 1, count, error);
    return fail_at(d, i, error,
                   "pod:N, leaf:N, host:N or gpu:N, or a count and a host (\"16x HOST\")",
                   ty_suggest(key, level_names, LEVEL_COUNT, sizeof level_names[0]));
}

static ty_status read_levels(const description *d, uint32_t *next, fabric *f, ty_error *error)
{
    int previous = -1, level;
    uint64_t devices = 1;
    ty_status status;

    for (; previous != GPU; (*next)++) {
        uint64_t count;
        if (*next == d->count)
            return fail_at(d, *next, error, previous == HOST ? "gpu:N" : "host:N and gpu:N", NULL);
        TY_CHECK(read_level(d, *next, &level, &count, error), status, done);
        if (level <= previous)
            return fail_at(d, *next, error, "each level once, the outermost first", NULL);
        if (level == GPU && previous != HOST)
            return fail_at(d, *next, error, "host:N before the devices of a host", NULL);
        f->levels[level] = count;
        devices *= count;
        TY_CHECK(check_size(d, devices, error), status, done);
        previous = level;
    }
    status = TY_OK;
done:
    return status;
}

static ty_status read_oversubscription(const description *d, uint32_t i, double *out,
                                       ty_error *error)
{
    static const char key[] = "oversub:";
    const char *text = d->words[i].text, *digits = text + sizeof key - 1;
    char *end;

    if (strncmp(text, key, sizeof key - 1) == 0 && isdigit((unsigned char)*digits)) {
        *out = strtod(digits, &end);
        if (*end == '\0' && isfinite(*out) && *out >= 1 && *out <= 1000)
            return TY_OK;
    }
    return fail_at(d, i, error, "oversub:R with R from 1 to 1000, or nothing", NULL);
}

static ty_status parse_fabric(const description *d, fabric *f, ty_error *error)
{
    uint32_t next = 0;
    ty_status status;

    *f = (fabric){.levels = {1, 1, 1, 1}, .oversubscription = 1};
    TY_CHECK(read_levels(d, &next, f, error), status, done);
    TY_CHECK(read_device(d, next++, &f->device, error), status, done);
    TY_CHECK(read_link(d, next++, false, &f->inside, error), status, done);
    TY_CHECK(read_link(d, next++, true, &f->network, error), status, done);
    if (next < d->count)
        TY_CHECK(read_oversubscription(d, next++, &f->oversubscription, error), status, done);
    if (next < d->count)
        return fail_at(d, next, error, "nothing after the oversubscription", NULL);
done:
    return status;
}

/* A host: hub, perhaps a device switch, and devices, each with its NIC. */
static ty_status add_fabric_host(type_table *t, const fabric *f, uint32_t number, uint32_t leaf,
                                 uint32_t device_type, ty_error *error)
{
    bool has_switch = t->catalogue->links[f->inside].use == LINK_TO_SWITCH;
    uint32_t port = t->catalogue->links[f->network].port;
    uint32_t hub, inner, device, nic;
    char name[64];
    ty_status status;

    snprintf(name, sizeof name, "host-%u", number);
    TY_CHECK(cluster_add_vertex(t->cluster, TY_VERTEX_HOST, name, 0, &hub, error), status, done);
    inner = hub;
    if (has_switch) {
        snprintf(name, sizeof name, "host-%u/device-switch", number);
        TY_CHECK(cluster_add_vertex(t->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, &inner, error),
                 status, done);
    }
    for (uint32_t g = 0; g < f->levels[GPU]; g++) {
        snprintf(name, sizeof name, "host-%u/gpu-%u", number, g);
        TY_CHECK(cluster_add_device(t->cluster, name, device_type, hub, &device, error), status,
                 done);
        snprintf(name, sizeof name, "host-%u/nic-%u", number, g);
        TY_CHECK(cluster_add_vertex(t->cluster, TY_VERTEX_NIC, name, 0, &nic, error), status, done);
        TY_CHECK(add_typed_link(t, device, inner, f->inside, false, 1, error), status, done);
        if (has_switch)
            TY_CHECK(add_typed_link(t, device, hub, port, false, 1, error), status, done);
        TY_CHECK(add_typed_link(t, device, nic, port, false, 1, error), status, done);
        TY_CHECK(add_typed_link(t, nic, leaf, f->network, false, 1, error), status, done);
    }
done:
    return status;
}

/* A switch one level up, or NO_INDEX where a single one below needs none. */
static ty_status add_upper(type_table *t, bool is_needed, const char *name, uint32_t *vertex,
                           ty_error *error)
{
    *vertex = NO_INDEX;
    if (!is_needed)
        return TY_OK;
    return cluster_add_vertex(t->cluster, TY_VERTEX_SWITCH, name, 0, vertex, error);
}

static ty_status add_pod(type_table *t, const fabric *f, uint32_t pod, uint32_t core,
                         uint32_t device_type, ty_error *error)
{
    uint32_t leaves = (uint32_t)f->levels[LEAF], hosts = (uint32_t)f->levels[HOST];
    double uplinks = (double)hosts * (double)f->levels[GPU] / f->oversubscription;
    uint32_t spine, leaf;
    char name[64];
    ty_status status;

    snprintf(name, sizeof name, "spine-%u", pod);
    TY_CHECK(add_upper(t, leaves > 1 || core != NO_INDEX, name, &spine, error), status, done);
    if (core != NO_INDEX)
        TY_CHECK(add_typed_link(t, spine, core, f->network, true, uplinks * leaves, error), status,
                 done);
    for (uint32_t l = 0; l < leaves; l++) {
        uint32_t number = pod * leaves + l;
        snprintf(name, sizeof name, "leaf-%u", number);
        TY_CHECK(cluster_add_vertex(t->cluster, TY_VERTEX_SWITCH, name, 0, &leaf, error), status,
                 done);
        if (spine != NO_INDEX)
            TY_CHECK(add_typed_link(t, leaf, spine, f->network, true, uplinks, error), status,
                     done);
        for (uint32_t h = 0; h < hosts; h++)
            TY_CHECK(add_fabric_host(t, f, number * hosts + h, leaf, device_type, error), status,
                     done);
    }
done:
    return status;
}

static ty_status parse_levels(const description *d, ty_cluster *cluster, ty_error *error)
{
    type_table types = {0};
    fabric f;
    uint32_t device_type, core;
    ty_status status;

    TY_CHECK(parse_fabric(d, &f, error), status, cleanup);
    TY_CHECK(type_table_open(&types, cluster, d->catalogue, error), status, cleanup);
    TY_CHECK(cluster_add_device_type(cluster, &d->catalogue->device_types[f.device], &device_type,
                                     error),
             status, cleanup);
    TY_CHECK(add_upper(&types, f.levels[POD] > 1, "core", &core, error), status, cleanup);
    for (uint32_t pod = 0; pod < f.levels[POD]; pod++)
        TY_CHECK(add_pod(&types, &f, pod, core, device_type, error), status, cleanup);
cleanup:
    ty_free(types.links);
    return status;
}

/* ---- Both -------------------------------------------------------------------------------- */

/* "16x", "-3x", "0x": a number, good or bad, followed by x. */
static bool is_count(const char *text)
{
    size_t length = strlen(text);
    return length >= 2 && text[length - 1] == 'x' &&
           (isdigit((unsigned char)text[0]) || text[0] == '-' || text[0] == '+');
}

/* The name of a cluster is its description with single blanks. */
static ty_status join(const description *d, char **out, ty_error *error)
{
    ty_text text = {0};

    for (uint32_t i = 0; i < d->count; i++)
        ty_text_addf(&text, "%s%s", i == 0 ? "" : " ", d->words[i].text);
    ty_status status = ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}

static ty_status parse(description *d, ty_cluster **out, ty_error *error)
{
    cluster_problem problem = {0};
    ty_cluster *cluster = NULL;
    char *name = NULL;
    bool is_levels;
    ty_status status;

    TY_CHECK(split(d, error), status, cleanup);
    if (d->count == 0) {
        status = ty_fail(error, TY_EPARSE,
                         "cluster: found an empty description, expected e.g. \"16x dgx-a100\"");
        goto cleanup;
    }
    TY_CHECK(join(d, &name, error), status, cleanup);
    TY_CHECK(cluster_new(name, &cluster, error), status, cleanup);
    is_levels =
        strchr(d->words[0].text, ':') != NULL || (d->count > 1 && !is_count(d->words[0].text));
    TY_CHECK(is_levels ? parse_levels(d, cluster, error) : parse_hosts(d, cluster, error), status,
             cleanup);
    TY_CHECK(cluster_finish(cluster, &problem, error), status, cleanup);
    if (problem.expected != NULL) {
        status = ty_fail(
            error, TY_EPARSE, "cluster \"%.80s\": found vertex \"%s\", expected %s", d->text,
            problem.vertex == NO_INDEX ? "none" : ty_cluster_vertex_name(cluster, problem.vertex),
            problem.expected);
        goto cleanup;
    }
    *out = cluster;
    cluster = NULL; /* given away */
cleanup:
    ty_cluster_free(cluster);
    ty_free(name);
    return status;
}

ty_status cluster_describe(const char *text, ty_cluster **out, ty_error *error)
{
    description d = {.text = text, .copy = ty_strdup(text)};
    catalogue *c = NULL;
    ty_status status;

    if (d.copy == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a cluster");
        goto cleanup;
    }
    TY_CHECK(catalogue_load(&c, error), status, cleanup);
    d.catalogue = c;
    status = parse(&d, out, error);
cleanup:
    catalogue_free(c);
    ty_free(d.copy);
    return status;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ty_status ty_catalogue_list(char ***names, uint32_t *count, ty_error *error)
{
    catalogue *c = NULL;
    char **list = NULL;
    uint32_t filled = 0;
    ty_status status;

    TY_CHECK(catalogue_load(&c, error), status, cleanup);
    list = ty_alloc(c->host_count, sizeof *list);
    for (; list != NULL && filled < c->host_count; filled++)
        if ((list[filled] = ty_strdup(c->hosts[filled].name)) == NULL)
            break;
    if (list == NULL || filled < c->host_count) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for the catalogue");
        goto cleanup;
    }
    qsort(list, filled, sizeof *list, compare_strings);
    *names = list;
    *count = filled;
    list = NULL; /* given away */
cleanup:
    for (uint32_t i = 0; list != NULL && i < filled; i++)
        ty_free(list[i]);
    ty_free(list);
    catalogue_free(c);
    return status;
}
