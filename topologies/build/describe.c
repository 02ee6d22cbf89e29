/* One line of text -> cluster; docs/guides/describe-a-cluster.md is its manual.
 *   line   = NAME | part | part + part ... | [site] + [site] ... WAN
 *   site   = [site:N] "[" part or part + part ... "]"
 *   part   = [COUNTx] HOST [gpu:G] [WORDS]        hosts around one non-blocking switch; gpu:G:
 *                                                 only their first G devices
 *          | [pod:P] [leaf:L] host:H HOST [WORDS] [oversub:R]
 *          | [pod:P] [leaf:L] host:H gpu:G @DEVICE INSIDE NETWORK [WORDS] [oversub:R]
 *          | torus:XxYxZ @DEVICE LINK [host:D]     closed in every direction
 *          | mesh:XxYxZ @DEVICE LINK [host:D]      open
 *   LINK, INSIDE, NETWORK = KIND | KIND=RATE     "nvlink3=300GB/s": the kind with a custom rate
 *   WORDS = of the network, in any order:
 *          nics=N | nics=NxRATE             NICs of a host: "nics=1", "nics=4x200Gb/s"
 *          roce, infiniband, efa, ena, gvnic, tcp: another transport than the network's
 *          flows=N                          connections of a NIC to each peer
 *          p2p=pcie | p2p=host              PCIe devices exchange directly or through host memory
 *          NETWORK                          instead of the network of a HOST
 *   DEVICE = name | NAME{KEY=VALUE,...} | FILE    custom: describe_device.c
 *
 * With gpu:G, every device has its own NIC, and with sockets (Ethernet) a host has one, unless
 * nics= gives the number per host. Hosts that may share a device switch, as the trays of a rack, do
 * so in the order of the line. Leaves connect to one spine (per pod), spines to one core. A real
 * fabric has many spines, which share the traffic. One spine with their total bandwidth keeps the
 * uplinks' sum and their oversubscription. */
#include "build.h"
#include "describe_device.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_LIMIT = 256 };

typedef struct word {
    char *text;
    size_t column; /* from 1 */
} word;

typedef struct description {
    const char *text; /* as given */
    char *copy;       /* the words, each terminated */
    word *words;      /* [WORD_LIMIT] */
    uint32_t count;
    const catalogue *catalogue;
    link_words *links; /* [links of the catalogue] */
} description;

/* ---- Words: whatever stands between blanks, and each of + [ ] -------------------------------- */

static bool is_mark(char c)
{
    return c == '[' || c == ']' || c == '+';
}

static ty_status split(description *d, ty_error *error)
{
    const char *at = d->text;
    char *out = d->copy; /* twice the text's size: a mark takes two bytes */

    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        if (*at == '\0')
            return TY_OK;
        if (d->count == WORD_LIMIT)
            return ty_fail(error, TY_EPARSE,
                           "cluster \"%.80s\": found more than %d words, expected \"16x HOST\" or "
                           "\"leaf:4 host:8 gpu:8 @DEVICE LINK NETWORK\"",
                           d->text, WORD_LIMIT);
        d->words[d->count++] = (word){out, (size_t)(at - d->text) + 1};
        if (is_mark(*at))
            *out++ = *at++;
        else
            while (*at != '\0' && !isspace((unsigned char)*at) && !is_mark(*at))
                *out++ = *at++;
        *out++ = '\0';
    }
}

static bool is_word(const description *d, uint32_t i, const char *text)
{
    return i < d->count && strcmp(d->words[i].text, text) == 0;
}

/* End of the part that starts at `i`: at + or ], or the end of the line. */
static uint32_t part_end(const description *d, uint32_t i)
{
    while (i < d->count && !is_mark(d->words[i].text[0]))
        i++;
    return i;
}

/* TY_EPARSE: where, what was found, what was expected. */
static ty_status fail_at(const description *d, uint32_t i, ty_error *error, const char *expected,
                         const char *suggestion)
{
    if (i >= d->count)
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\": found its end after %u word%s, expected %s", d->text,
                       d->count, d->count == 1 ? "" : "s", expected);
    return ty_fail(error, TY_EPARSE,
                   "cluster \"%.80s\", word %u, column %zu: found \"%.60s\", expected %s%s%s%s",
                   d->text, i + 1, d->words[i].column, d->words[i].text, expected,
                   suggestion != NULL ? "; did you mean \"" : "",
                   suggestion != NULL ? suggestion : "", suggestion != NULL ? "\"?" : "");
}

static ty_status read_host(const description *d, uint32_t i, uint32_t *host, ty_error *error)
{
    const catalogue *c = d->catalogue;
    const char *near;

    if (i < d->count && (*host = catalogue_find_host(c, d->words[i].text)) != NO_INDEX)
        return TY_OK;
    near = i < d->count
               ? ty_suggest(d->words[i].text, &c->hosts[0].name, c->host_count, sizeof c->hosts[0])
               : NULL;
    return fail_at(d, i, error,
                   near != NULL ? "a host of the catalogue"
                                : "a host of the catalogue (trainyard cluster list), or local:N",
                   near);
}

static ty_status read_device(const description *d, uint32_t i, uint32_t *device, ty_error *error)
{
    const catalogue *c = d->catalogue;
    const char *name = i < d->count && d->words[i].text[0] == '@' ? d->words[i].text + 1 : NULL;

    if (name != NULL && (*device = catalogue_match_name(c, name)) != NO_INDEX)
        return TY_OK;
    return fail_at(d, i, error, "@ and a device of the catalogue",
                   name == NULL ? NULL
                                : ty_suggest(name, &c->device_types[0].name, c->device_type_count,
                                             sizeof c->device_types[0]));
}

/* Custom rate of a kind of link on this line, the same at each mention.
 * @param share of the rate that carries data */
static ty_status read_rate(const description *d, uint32_t i, const char *text, double share,
                           double *rate, ty_error *error)
{
    double bytes_per_s;

    if (ty_parse_bandwidth(text, &bytes_per_s, NULL) != TY_OK || !(bytes_per_s > 0))
        return fail_at(d, i, error, "a rate behind \"=\", such as \"nvlink4=400GB/s\"", NULL);
    bytes_per_s *= share;
    if (*rate > 0 && (*rate < bytes_per_s || *rate > bytes_per_s))
        return fail_at(d, i, error, "one rate for each kind of link", NULL);
    *rate = bytes_per_s;
    return TY_OK;
}

/* Reads a link inside hosts, or one of the network. */
static ty_status read_link(const description *d, uint32_t i, bool is_network, uint32_t *link,
                           ty_error *error)
{
    const catalogue *c = d->catalogue;
    const char *near = NULL;

    if (i < d->count) {
        char *rate = strchr(d->words[i].text, '=');
        uint32_t found;
        link_use use;
        if (rate != NULL)
            *rate = '\0';
        found = catalogue_find_link(c, d->words[i].text);
        if (rate != NULL)
            *rate = '=';
        use = found == NO_INDEX ? LINK_USE_COUNT : c->links[found].use;
        if (is_network ? use == LINK_NETWORK : use == LINK_TO_SWITCH || use == LINK_TO_HOST) {
            const double share = c->transports[c->links[found].type.transport].rate_share;
            *link = found;
            if (rate == NULL)
                return TY_OK;
            TY_TRY(read_rate(d, i, rate + 1, c->links[found].needs_rate ? share : 1,
                             &d->links[found].rate, error));
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

/* A network that is named after its transport has no rate of its own. */
static ty_status need_rate(const description *d, uint32_t i, uint32_t link, ty_error *error)
{
    if (!d->catalogue->links[link].needs_rate || d->links[link].rate > 0)
        return TY_OK;
    return fail_at(d, i, error, "a rate of the network, such as \"roce=100Gb/s\"", NULL);
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

/* Refuses implausibly many devices before building anything. */
static ty_status check_size(const description *d, uint64_t devices, ty_error *error)
{
    if (devices <= DEVICE_LIMIT)
        return TY_OK;
    return ty_fail(error, TY_EPARSE, "cluster \"%.80s\": found %llu devices, expected at most %d",
                   d->text, (unsigned long long)devices, DEVICE_LIMIT);
}

/* "16x", "-3x", "0x": a number, valid or not, followed by x. */
static bool is_count(const char *text)
{
    size_t length = strlen(text);
    return length >= 2 && text[length - 1] == 'x' &&
           (isdigit((unsigned char)text[0]) || text[0] == '-' || text[0] == '+');
}

/* State of building a line: the prefix of names, and the number of hosts so far. */
typedef struct site {
    builder *b;
    const char *prefix; /* "" or "site-1/" */
    uint32_t hosts, racks;
    uint64_t devices; /* so far, in all sites */
    uint32_t top;     /* the switch that connects all; NO_INDEX: none yet */
} site;

/* The one switch of hosts without levels, created on first use. */
static ty_status need_fabric(site *s, ty_error *error)
{
    char name[80];

    if (s->top != NO_INDEX)
        return TY_OK;
    snprintf(name, sizeof name, "%sfabric", s->prefix);
    return ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_SWITCH, name, 0, &s->top, error);
}

/* Trays of a rack share its device switch, if there are several. */
static ty_status add_hosts(site *s, uint64_t count, uint32_t host, uint32_t network_switch,
                           ty_error *error)
{
    const uint32_t rack = s->b->catalogue->hosts[host].domain_hosts;
    uint32_t shared = NO_INDEX;
    char name[80];

    for (uint64_t h = 0; h < count; h++) {
        if (rack > 0 && h % rack == 0) {
            shared = NO_INDEX;
            snprintf(name, sizeof name, "%srack-%u/nvswitch", s->prefix, s->racks++);
            if (h + 1 < count)
                TY_TRY(ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0,
                                             &shared, error));
        }
        snprintf(name, sizeof name, "%shost-%u", s->prefix, s->hosts++);
        TY_TRY(builder_host_in_domain(s->b, host, name, network_switch, shared, error));
    }
    return TY_OK;
}

/* "16x" before a host; 1 if absent. */
static ty_status read_multiple(const description *d, uint32_t i, uint64_t *count, ty_error *error)
{
    char *digits = d->words[i].text;
    size_t length = strlen(digits);
    ty_status status;

    digits[length - 1] = '\0'; /* the x */
    status = read_count(d, i, digits, count, NULL);
    digits[length - 1] = 'x';
    if (status != TY_OK)
        return fail_at(d, i, error, "a number of hosts from 1 to 262144, followed by \"x\"", NULL);
    return TY_OK;
}

/* "gpu:4": the first devices of a catalogue host, some or all. */
static ty_status read_part(const description *d, uint32_t i, uint32_t host, uint32_t *devices,
                           ty_error *error)
{
    static const char key[] = "gpu:";
    const char *text = d->words[i].text;
    char expected[128];
    uint64_t count;

    if (strncmp(text, key, sizeof key - 1) == 0 &&
        ty_parse_uint(text + sizeof key - 1, 1, *devices, &count, NULL) == TY_OK) {
        *devices = (uint32_t)count;
        return TY_OK;
    }
    snprintf(expected, sizeof expected,
             "nothing after the host, gpu:1 to gpu:%u of %.40s, or its network", *devices,
             d->catalogue->hosts[host].name);
    return fail_at(d, i, error, expected, NULL);
}

/* ---- Words of the network ------------------------------------------------------------------ */

/* Network of a host: its kind of link, and the words of the line. */
typedef struct network {
    uint32_t kind;
    bool is_own;            /* not that of the catalogue's host */
    uint32_t devices, most; /* of a host: devices; NICs of the catalogue's, or 0 */
    uint32_t nics;          /* 0: unspecified */
    bool has_p2p, is_staged;
    link_words words;
} network;

bool names_network(const catalogue *c, const char *text)
{
    static const char *const keys[] = {"nics", "flows", "p2p"};
    char name[64];
    uint32_t link;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "= "), text);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        if (strcmp(name, keys[k]) == 0)
            return true;
    link = catalogue_find_link(c, name);
    return link != NO_INDEX && c->links[link].use == LINK_NETWORK;
}

/* "nics=1" or "nics=4x200Gb/s": the NICs of a host, and the rate of each. */
static ty_status read_nics(const description *d, uint32_t i, const char *text, network *n,
                           double *rate, ty_error *error)
{
    const char *times = strchr(text, 'x');
    char digits[16], expected[96];
    uint64_t count = 0;

    snprintf(digits, sizeof digits, "%.*s", (int)(times != NULL ? times - text : 15), text);
    if (ty_parse_uint(digits, 1, n->most > 0 ? n->most : 1024, &count, NULL) != TY_OK ||
        (n->most == 0 && n->devices % count != 0 && count % n->devices != 0)) {
        snprintf(expected, sizeof expected, "nics=N or nics=NxRATE, N from 1 to the %u of the host",
                 n->most);
        return fail_at(d, i, error,
                       n->most > 0
                           ? expected
                           : "nics=N or nics=NxRATE, N a divisor or a multiple of a host's devices",
                       NULL);
    }
    n->nics = (uint32_t)count;
    return times == NULL ? TY_OK : read_rate(d, i, times + 1, 1, rate, error);
}

static ty_status read_p2p(const description *d, uint32_t i, const char *path, network *n,
                          ty_error *error)
{
    n->has_p2p = true;
    n->is_staged = strcmp(path, "host") == 0;
    return n->is_staged || strcmp(path, "pcie") == 0
               ? TY_OK
               : fail_at(d, i, error, "p2p=pcie (direct) or p2p=host (through host memory)", NULL);
}

static ty_link_transport transport_of(const char *text)
{
    for (int t = TY_LINK_NONE + 1; t < TY_LINK_COUNT; t++)
        if (strcmp(text, ty_link_transport_name((ty_link_transport)t)) == 0)
            return (ty_link_transport)t;
    return TY_LINK_NONE;
}

/* Reads one word. @param rate that of "nics=" */
static ty_status read_network_word(const description *d, uint32_t i, network *n, double *rate,
                                   ty_error *error)
{
    const char *text = d->words[i].text;
    uint64_t flows;

    if (strncmp(text, "nics=", 5) == 0)
        return read_nics(d, i, text + 5, n, rate, error);
    if (strncmp(text, "p2p=", 4) == 0)
        return read_p2p(d, i, text + 4, n, error);
    if (strncmp(text, "flows=", 6) == 0) {
        if (ty_parse_uint(text + 6, 1, FLOWS_MAXIMUM, &flows, NULL) != TY_OK)
            return fail_at(d, i, error, "flows=N with N from 1 to 1024", NULL);
        n->words.flows = (uint32_t)flows;
        return TY_OK;
    }
    if (transport_of(text) != TY_LINK_NONE) {
        n->words.transport = transport_of(text);
        return TY_OK;
    }
    if (n->is_own)
        return fail_at(d, i, error, "one network of the host", NULL);
    n->is_own = true;
    return read_link(d, i, true, &n->kind, error);
}

/* Reads the words of a host's network, and applies them to its kind of link. */
static ty_status read_network(const description *d, uint32_t *next, uint32_t end, network *n,
                              ty_error *error)
{
    const catalogue *c = d->catalogue;
    const uint32_t first = *next;
    ty_link_transport transport;
    double rate = 0;
    link_words *words;

    for (; *next < end && names_network(c, d->words[*next].text); (*next)++)
        TY_TRY(read_network_word(d, *next, n, &rate, error));
    words = &d->links[n->kind];
    transport =
        n->words.transport != TY_LINK_NONE ? n->words.transport : c->links[n->kind].type.transport;
    if (rate > 0 && c->links[n->kind].needs_rate)
        rate *= c->transports[transport].rate_share;
    if (rate > 0 && words->rate > 0 && (rate < words->rate || rate > words->rate))
        return fail_at(d, first, error, "one rate for each kind of link", NULL);
    if (rate > 0)
        words->rate = rate;
    TY_TRY(need_rate(d, *next, n->kind, error));
    if (words->is_used &&
        (words->transport != n->words.transport || words->flows != n->words.flows))
        return fail_at(d, first, error, "one transport and flows= for each kind of link", NULL);
    words->transport = n->words.transport;
    words->flows = n->words.flows;
    words->is_used = true;
    if (n->nics == 0 && n->is_own && ty_link_transport_is_sockets(transport))
        n->nics = 1;
    return TY_OK;
}

static host_words words_of(const network *n)
{
    return (host_words){n->is_own ? n->kind : NO_INDEX, n->nics, n->has_p2p, n->is_staged};
}

static network network_of(const catalogue_host *host)
{
    return (network){.kind = host->network,
                     .devices = catalogue_host_count_of(host, TY_VERTEX_DEVICE),
                     .most = catalogue_host_count_of(host, TY_VERTEX_NIC)};
}

static ty_status parse_hosts(const description *d, uint32_t first, uint32_t end, site *s,
                             ty_error *error)
{
    uint64_t count = 1;
    uint32_t host, devices, all, at = first;
    network n;
    ty_status status;

    if (is_count(d->words[at].text))
        TY_TRY(read_multiple(d, at++, &count, error));
    TY_TRY(read_host(d, at++, &host, error));
    n = network_of(&d->catalogue->hosts[host]);
    all = devices = n.devices;
    if (at < end && !names_network(d->catalogue, d->words[at].text))
        TY_TRY(read_part(d, at++, host, &devices, error));
    TY_TRY(read_network(d, &at, end, &n, error));
    if (at < end)
        return fail_at(d, at, error, "nothing after the devices and the network of a host", NULL);
    s->devices += count * devices;
    TY_TRY(check_size(d, s->devices, error));
    TY_TRY(need_fabric(s, error));
    s->b->devices_per_host = devices < all ? devices : 0;
    s->b->host = words_of(&n);
    status = add_hosts(s, count, host, s->top, error);
    s->b->devices_per_host = 0;
    return status;
}

/* ---- Levels ------------------------------------------------------------------------------ */

enum { POD, LEAF, HOST, GPU, LEVEL_COUNT };
static const char *const level_names[LEVEL_COUNT] = {"pod", "leaf", "host", "gpu"};

typedef struct fabric {
    uint64_t levels[LEVEL_COUNT];
    uint32_t host;           /* of the catalogue; NO_INDEX: defined by the members below */
    uint32_t device, inside; /* of the catalogue */
    network network;
    uint32_t nics; /* of a host */
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
                   "a count and a host of the catalogue (\"16x HOST\"; trainyard cluster list), "
                   "local:N, or pod:N, leaf:N, host:N or gpu:N",
                   ty_suggest(key, level_names, LEVEL_COUNT, sizeof level_names[0]));
}

/* Reads levels down to gpu:N, or to host:N before a catalogue host. */
static ty_status read_levels(const description *d, uint32_t *next, uint32_t end, fabric *f,
                             ty_error *error)
{
    int previous = -1, level;
    uint64_t devices = 1;

    for (; previous != GPU; (*next)++) {
        uint64_t count;
        if (*next == end)
            return fail_at(
                d, *next, error,
                previous == HOST ? "gpu:N or a host of the catalogue" : "host:N and gpu:N", NULL);
        if (previous == HOST && strchr(d->words[*next].text, ':') == NULL)
            break;
        TY_TRY(read_level(d, *next, &level, &count, error));
        if (level <= previous)
            return fail_at(d, *next, error, "each level once, the outermost first", NULL);
        if (level == GPU && previous != HOST)
            return fail_at(d, *next, error, "host:N before the devices of a host", NULL);
        f->levels[level] = count;
        devices *= count;
        TY_TRY(check_size(d, devices, error));
        previous = level;
    }
    return TY_OK;
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

/* Reads the content of a host: one of the catalogue, or devices with their links. */
static ty_status read_content(const description *d, uint32_t *next, uint32_t end, bool has_devices,
                              fabric *f, ty_error *error)
{
    if (has_devices) {
        TY_TRY(read_device(d, (*next)++, &f->device, error));
        TY_TRY(read_link(d, (*next)++, false, &f->inside, error));
        f->network = (network){.is_own = true, .devices = (uint32_t)f->levels[GPU]};
        TY_TRY(read_link(d, (*next)++, true, &f->network.kind, error));
    } else {
        TY_TRY(read_host(d, (*next)++, &f->host, error));
        f->network = network_of(&d->catalogue->hosts[f->host]);
        f->levels[GPU] = f->network.devices;
    }
    TY_TRY(read_network(d, next, end, &f->network, error));
    f->nics = f->network.nics > 0   ? f->network.nics
              : f->network.most > 0 ? f->network.most
                                    : f->network.devices;
    return TY_OK;
}

static ty_status parse_fabric(const description *d, uint32_t first, uint32_t end, fabric *f,
                              ty_error *error)
{
    uint32_t next = first;
    bool has_devices;

    *f = (fabric){.levels = {1, 1, 1, 1}, .oversubscription = 1, .host = NO_INDEX};
    TY_TRY(read_levels(d, &next, end, f, error));
    has_devices = strncmp(d->words[next - 1].text, "gpu:", 4) == 0;
    TY_TRY(read_content(d, &next, end, has_devices, f, error));
    if (next < end)
        TY_TRY(read_oversubscription(d, next++, &f->oversubscription, error));
    if (next < end)
        return fail_at(d, next, error, "nothing after the oversubscription", NULL);
    return TY_OK;
}

/* Adds a NIC, and the vertex that its devices connect to: the NIC itself for one device, else a
 * PCIe switch. */
static ty_status add_nic(site *s, const fabric *f, const char *host, uint32_t number, uint32_t hub,
                         uint32_t *nic, uint32_t *near, ty_error *error)
{
    const catalogue *c = s->b->catalogue;
    uint32_t bridge;
    char name[128];

    snprintf(name, sizeof name, "%s/nic-%u", host, number);
    TY_TRY(ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_NIC, name, 0, nic, error));
    *near = *nic;
    if (f->nics >= f->levels[GPU])
        return TY_OK;
    snprintf(name, sizeof name, "%s/pcie-%u", host, number);
    TY_TRY(ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, near, error));
    snprintf(name, sizeof name, "%.60s-bridge", c->links[c->links[f->network.kind].port].type.name);
    bridge = catalogue_find_link(c, name);
    TY_TRY(builder_link(s->b, *near, hub, bridge, false, 1, error));
    return builder_link(s->b, *nic, *near, bridge, false, 1, error);
}

/* Adds a host: hub, optional device switch, NICs and devices. */
static ty_status add_fabric_host(site *s, const fabric *f, uint32_t leaf, ty_error *error)
{
    const catalogue *c = s->b->catalogue;
    ty_cluster *cluster = s->b->cluster;
    const bool has_switch = c->links[f->inside].use == LINK_TO_SWITCH;
    const bool is_shared = f->nics < f->levels[GPU];
    const uint32_t port = c->links[f->network.kind].port;
    const uint32_t each = is_shared ? (uint32_t)f->levels[GPU] / f->nics : 1;
    const double lanes = is_shared ? 1 : f->nics / (double)f->levels[GPU];
    uint32_t hub, inner, device, nic = NO_INDEX, near = NO_INDEX;
    char host[80], name[128];

    snprintf(host, sizeof host, "%shost-%u", s->prefix, s->hosts++);
    TY_TRY(ty_cluster_add_vertex(cluster, TY_VERTEX_HOST, host, 0, &hub, error));
    cluster->vertices[hub].is_staged =
        f->network.has_p2p ? f->network.is_staged : c->devices[f->device].is_staged;
    inner = hub;
    if (has_switch) {
        snprintf(name, sizeof name, "%s/device-switch", host);
        TY_TRY(ty_cluster_add_vertex(cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, &inner, error));
    }
    for (uint32_t g = 0; g < f->levels[GPU]; g++) {
        snprintf(name, sizeof name, "%s/gpu-%u", host, g);
        TY_TRY(builder_device(s->b, name, f->device, hub, &device, error));
        if (g % each == 0)
            TY_TRY(add_nic(s, f, host, g / each, hub, &nic, &near, error));
        TY_TRY(builder_link(s->b, device, is_shared && !has_switch ? near : inner, f->inside, false,
                            1, error));
        if (has_switch && !is_shared)
            TY_TRY(builder_link(s->b, device, hub, port, false, 1, error));
        if (has_switch || !is_shared)
            TY_TRY(builder_link(s->b, device, near, port, false, 1, error));
        if (g % each == 0)
            TY_TRY(builder_link(s->b, nic, leaf, f->network.kind, false, lanes, error));
    }
    return TY_OK;
}

/* A switch one level up, or NO_INDEX if a single switch below needs none. */
static ty_status add_upper(site *s, bool is_needed, const char *kind, uint32_t number,
                           uint32_t *vertex, ty_error *error)
{
    char name[96];

    *vertex = NO_INDEX;
    if (!is_needed)
        return TY_OK;
    snprintf(name, sizeof name, "%s%s-%u", s->prefix, kind, number);
    return ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_SWITCH, name, 0, vertex, error);
}

static ty_status add_leaf(site *s, const fabric *f, uint32_t number, uint32_t spine,
                          ty_error *error)
{
    double uplinks = (double)f->levels[HOST] * f->nics / f->oversubscription;
    uint32_t leaf;

    TY_TRY(add_upper(s, true, "leaf", number, &leaf, error));
    if (s->top == NO_INDEX)
        s->top = leaf;
    if (spine != NO_INDEX)
        TY_TRY(builder_link(s->b, leaf, spine, f->network.kind, true, uplinks, error));
    if (f->host != NO_INDEX)
        return add_hosts(s, f->levels[HOST], f->host, leaf, error);
    for (uint32_t h = 0; h < f->levels[HOST]; h++)
        TY_TRY(add_fabric_host(s, f, leaf, error));
    return TY_OK;
}

static ty_status add_pod(site *s, const fabric *f, uint32_t pod, uint32_t core, ty_error *error)
{
    uint32_t leaves = (uint32_t)f->levels[LEAF], spine;
    double uplinks = (double)f->levels[HOST] * f->nics / f->oversubscription;

    TY_TRY(add_upper(s, leaves > 1 || core != NO_INDEX, "spine", pod, &spine, error));
    if (core != NO_INDEX)
        TY_TRY(builder_link(s->b, spine, core, f->network.kind, true, uplinks * leaves, error));
    if (s->top == NO_INDEX)
        s->top = spine;
    for (uint32_t l = 0; l < leaves; l++)
        TY_TRY(add_leaf(s, f, pod * leaves + l, spine, error));
    return TY_OK;
}

static ty_status parse_levels(const description *d, uint32_t first, uint32_t end, site *s,
                              ty_error *error)
{
    fabric f;
    char name[80];

    TY_TRY(parse_fabric(d, first, end, &f, error));
    s->devices += f.levels[POD] * f.levels[LEAF] * f.levels[HOST] * f.levels[GPU];
    TY_TRY(check_size(d, s->devices, error));
    s->b->host = words_of(&f.network);
    snprintf(name, sizeof name, "%score", s->prefix);
    if (f.levels[POD] > 1)
        TY_TRY(ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_SWITCH, name, 0, &s->top, error));
    for (uint32_t pod = 0, core = s->top; pod < f.levels[POD]; pod++)
        TY_TRY(add_pod(s, &f, pod, core, error));
    return TY_OK;
}

/* ---- Tori: every device has a router of its own, linked to its neighbors' ------------------- */

enum { DIMENSION_LIMIT = 4 };

typedef struct torus {
    uint32_t sizes[DIMENSION_LIMIT], dimensions, count;
    uint32_t device, link;
    uint32_t per_host;
    bool is_mesh; /* without wrap-around links */
} torus;

static bool is_torus_word(const char *text)
{
    return strncmp(text, "torus:", 6) == 0 || strncmp(text, "mesh:", 5) == 0;
}

static ty_status read_shape(const description *d, uint32_t i, torus *t, ty_error *error)
{
    const char *at = strchr(d->words[i].text, ':') + 1;
    uint64_t count = 1;

    for (t->dimensions = 0; t->dimensions < DIMENSION_LIMIT; at++) {
        char digits[16];
        size_t length = strcspn(at, "x");
        uint64_t size;
        if (length >= sizeof digits)
            break;
        memcpy(digits, at, length);
        digits[length] = '\0';
        if (ty_parse_uint(digits, 1, 4096, &size, NULL) != TY_OK)
            break;
        t->sizes[t->dimensions++] = (uint32_t)size;
        count *= size;
        if (count > DEVICE_LIMIT)
            return check_size(d, count, error);
        at += length;
        if (*at == '\0') {
            t->count = (uint32_t)count;
            return TY_OK;
        }
    }
    return fail_at(d, i, error,
                   "torus: or mesh: and up to four sizes from 1 to 4096, as in torus:4x4x4", NULL);
}

static ty_status parse_torus(const description *d, uint32_t first, uint32_t end, torus *t,
                             ty_error *error)
{
    static const char key[] = "host:";
    uint64_t per_host = 1;
    uint32_t next = first;

    t->is_mesh = d->words[first].text[0] == 'm';
    TY_TRY(read_shape(d, next++, t, error));
    TY_TRY(read_device(d, next++, &t->device, error));
    TY_TRY(read_link(d, next, true, &t->link, error));
    TY_TRY(need_rate(d, next++, t->link, error));
    if (next < end) {
        const char *text = d->words[next].text;
        if (strncmp(text, key, sizeof key - 1) != 0)
            return fail_at(d, next, error, "host:D, the devices of a host, or nothing", NULL);
        TY_TRY(read_count(d, next, text + sizeof key - 1, &per_host, error));
        if (t->count % per_host != 0)
            return fail_at(d, next, error, "a divisor of the number of devices", NULL);
        next++;
    }
    if (next < end)
        return fail_at(d, next, error, "nothing after the devices of a host", NULL);
    t->per_host = (uint32_t)per_host;
    return TY_OK;
}

/* Device, router and hub. The link to the device's router is inside the chip: as wide as all its
 * ports, with no latency. */
static ty_status add_cell(site *s, const torus *t, uint32_t i, uint32_t hub, uint32_t *router,
                          ty_error *error)
{
    const catalogue *c = s->b->catalogue;
    const link_type *link = &c->links[t->link].type;
    link_type inner = *link;
    char name[96], kind[96];
    uint32_t device;

    snprintf(kind, sizeof kind, "%.60s-port", link->name);
    inner.name = kind;
    inner.latency_s = 0;
    if (s->b->words[t->link].rate > 0)
        inner.bandwidth_bytes_per_s = s->b->words[t->link].rate;
    snprintf(name, sizeof name, "%srouter-%u", s->prefix, i);
    TY_TRY(ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_SWITCH, name, 0, router, error));
    snprintf(name, sizeof name, "%shost-%u/gpu-%u", s->prefix, i / t->per_host, i % t->per_host);
    TY_TRY(builder_device(s->b, name, t->device, hub, &device, error));
    TY_TRY(builder_link(s->b, device, hub, c->devices[t->device].port, false, 1, error));
    return builder_own_link(s->b, device, *router, &inner, 2 * t->dimensions, error);
}

/* In a dimension of size two, both ports of a torus connect to the same neighbor. */
static ty_status add_rows(site *s, const torus *t, const uint32_t *routers, ty_error *error)
{
    for (uint32_t dimension = 0, stride = 1; dimension < t->dimensions; dimension++) {
        uint32_t size = t->sizes[dimension];
        for (uint32_t i = 0; i < t->count && size > 1; i++) {
            uint32_t at = i / stride % size;
            uint32_t next = i + (at + 1 < size ? stride : stride - size * stride);
            if (at + 1 == size && (size == 2 || t->is_mesh))
                continue;
            TY_TRY(builder_link(s->b, routers[i], routers[next], t->link, true,
                                size == 2 && !t->is_mesh ? 2 : 1, error));
        }
        stride *= size;
    }
    return TY_OK;
}

static ty_status build_torus(const description *d, uint32_t first, uint32_t end, site *s,
                             ty_error *error)
{
    torus t = {0};
    uint32_t *routers = NULL, hub = NO_INDEX;
    char name[96];
    ty_status status;

    TY_CHECK(parse_torus(d, first, end, &t, error), status, cleanup);
    TY_CHECK(ty_check_memory((routers = ty_alloc(t.count, sizeof *routers)) != NULL, error), status,
             cleanup);
    for (uint32_t i = 0; i < t.count; i++) {
        if (i % t.per_host == 0) {
            snprintf(name, sizeof name, "%shost-%u", s->prefix, s->hosts++);
            TY_CHECK(ty_cluster_add_vertex(s->b->cluster, TY_VERTEX_HOST, name, 0, &hub, error),
                     status, cleanup);
        }
        TY_CHECK(add_cell(s, &t, i, hub, &routers[i], error), status, cleanup);
    }
    s->devices += t.count;
    s->top = routers[0];
    status = add_rows(s, &t, routers, error);
cleanup:
    ty_free(routers);
    return status;
}

/* ---- Sites and the whole ------------------------------------------------------------------- */

/* Levels and tori cannot be combined with other parts; hosts can. */
static ty_status build_parts(const description *d, uint32_t *next, site *s, ty_error *error)
{
    uint32_t first = *next;

    for (;;) {
        uint32_t end = part_end(d, *next);
        const char *text = d->words[*next].text;
        bool is_torus = *next < end && is_torus_word(text);
        bool is_levels =
            *next < end && !is_torus &&
            (strchr(text, ':') != NULL || (end - *next > 1 && !is_count(text) &&
                                           catalogue_find_host(d->catalogue, text) == NO_INDEX));
        ty_status status;
        if (*next == end)
            return fail_at(d, *next, error, "hosts (\"16x HOST\"), levels, a torus or a mesh",
                           NULL);
        if (is_torus || is_levels) {
            if (*next != first || is_word(d, end, "+"))
                return fail_at(d, *next == first ? end : *next, error,
                               "hosts on both sides of \"+\"", NULL);
            status = is_torus ? build_torus(d, *next, end, s, error)
                              : parse_levels(d, *next, end, s, error);
        } else {
            status = parse_hosts(d, *next, end, s, error);
        }
        *next = end;
        if (status != TY_OK || !is_word(d, end, "+"))
            return status;
        (*next)++;
    }
}

/* [site:N] "[" ... "]": N equal sites, each linked to a central vertex. */
static ty_status build_site(const description *d, uint32_t *next, builder *b, uint32_t wan,
                            uint32_t hub, uint32_t *number, uint64_t *devices, ty_error *error)
{
    uint64_t copies = 1;
    uint32_t first;

    if (*next < d->count && strncmp(d->words[*next].text, "site:", 5) == 0) {
        TY_TRY(read_count(d, *next, d->words[*next].text + 5, &copies, error));
        (*next)++;
    }
    if (!is_word(d, *next, "["))
        return fail_at(d, *next, error, "\"[\" before what is in the site", NULL);
    first = ++*next;
    for (uint64_t copy = 0; copy < copies; copy++) {
        char prefix[32];
        site s = {.b = b, .prefix = prefix, .devices = *devices, .top = NO_INDEX};
        snprintf(prefix, sizeof prefix, "site-%u/", (*number)++);
        *next = first;
        TY_TRY(build_parts(d, next, &s, error));
        TY_TRY(builder_link(b, s.top, hub, wan, false, 1, error));
        *devices = s.devices;
    }
    if (!is_word(d, *next, "]"))
        return fail_at(d, *next, error, "\"]\" or \"+\" after what is in the site", NULL);
    (*next)++;
    return TY_OK;
}

static ty_status build_sites(const description *d, builder *b, ty_error *error)
{
    uint32_t next = 0, number = 0, last = d->count - 1, wan, hub;
    uint64_t devices = 0;

    if (is_word(d, last, "]"))
        return fail_at(d, d->count, error, "a kind of link between the sites, such as \"wan10\"",
                       NULL);
    TY_TRY(read_link(d, last, true, &wan, error));
    TY_TRY(need_rate(d, last, wan, error));
    TY_TRY(ty_cluster_add_vertex(b->cluster, TY_VERTEX_SWITCH, "wan", 0, &hub, error));
    for (;;) {
        TY_TRY(build_site(d, &next, b, wan, hub, &number, &devices, error));
        if (!is_word(d, next, "+"))
            break;
        next++;
    }
    if (next != last)
        return fail_at(d, next, error, "\"+\" and another site, or the link between them", NULL);
    return TY_OK;
}

static ty_status build(const description *d, builder *b, ty_error *error)
{
    site s = {.b = b, .prefix = "", .top = NO_INDEX};
    uint32_t next = 0;
    ty_status status;

    if (is_word(d, 0, "[") || strncmp(d->words[0].text, "site:", 5) == 0)
        return build_sites(d, b, error);
    status = build_parts(d, &next, &s, error);
    if (status == TY_OK && next < d->count)
        return fail_at(d, next, error, "\"+\" or nothing", NULL);
    return status;
}

/* The name of a cluster is its description with single blanks. */
static ty_status join(const description *d, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    for (uint32_t i = 0; i < d->count; i++) {
        bool is_joined = i == 0 || is_word(d, i, "]") || is_word(d, i - 1, "[");
        ty_text_addf(&text, "%s%s", is_joined ? "" : " ", d->words[i].text);
    }
    status = ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}

/* @param name of the cluster; NULL: the line */
static ty_status parse(description *d, const char *name, ty_cluster **out, ty_error *error)
{
    cluster_problem problem = {0};
    ty_cluster *cluster = NULL;
    builder b = {0};
    char *line = NULL;
    ty_status status;

    TY_CHECK(split(d, error), status, cleanup);
    if (d->count == 0) {
        status = ty_fail(error, TY_EPARSE,
                         "cluster: found an empty description, expected e.g. \"16x dgx-a100\"");
        goto cleanup;
    }
    TY_CHECK(join(d, &line, error), status, cleanup);
    TY_CHECK(ty_cluster_new(name != NULL ? name : line, &cluster, error), status, cleanup);
    TY_CHECK(builder_open(&b, cluster, d->catalogue, error), status, cleanup);
    b.words = d->links;
    TY_CHECK(build(d, &b, error), status, cleanup);
    TY_CHECK(ty_cluster_finish(cluster, &problem, error), status, cleanup);
    if (problem.expected != NULL) {
        status = ty_fail(
            error, TY_EPARSE, "cluster \"%.80s\": found vertex \"%s\", expected %s", d->text,
            problem.vertex == NO_INDEX ? "none" : ty_cluster_vertex_name(cluster, problem.vertex),
            problem.expected);
        goto cleanup;
    }
    *out = cluster;
    cluster = NULL; /* ownership moved */
cleanup:
    builder_close(&b);
    ty_cluster_free(cluster);
    ty_free(line);
    return status;
}

/* A single word that is neither a host nor a cluster: both kinds of name are candidates. */
static ty_status check_name(const catalogue *c, const char *text, ty_error *error)
{
    const char *near;

    if (strpbrk(text, " \t[+:") != NULL || text[0] == '\0' ||
        catalogue_find_host(c, text) != NO_INDEX)
        return TY_OK;
    near = ty_suggest(text, &c->clusters[0].name, c->cluster_count, sizeof c->clusters[0]);
    if (near == NULL || ty_suggest(text, &c->hosts[0].name, c->host_count, sizeof c->hosts[0]))
        return TY_OK; /* handled by the reader of hosts */
    return ty_fail(error, TY_EPARSE,
                   "cluster \"%.80s\", word 1, column 1: found \"%.60s\", expected a host or a "
                   "cluster of the catalogue; did you mean \"%s\"?",
                   text, text, near);
}

ty_status describe_with(const catalogue *c, const char *text, ty_cluster **out, ty_error *error)
{
    description d = {.text = text, .catalogue = c};
    const char *name = NULL;
    catalogue own = {0};
    char *line = NULL;
    uint32_t known = catalogue_find_cluster(c, text);
    ty_status status;

    if (strpbrk(text, "{@") != NULL) {
        TY_CHECK(own_devices(text, c, &own, &line, error), status, cleanup);
        d.text = line;
        d.catalogue = &own;
        if (own.device_type_count > c->device_type_count)
            name = text;
    }

    if (known != NO_INDEX) {
        name = c->clusters[known].name;
        d.text = c->clusters[known].line;
    } else if (line == NULL) {
        TY_CHECK(check_name(c, text, error), status, cleanup);
    }
    d.copy = ty_alloc(2 * strlen(d.text) + 2, 1);
    d.words = ty_alloc(WORD_LIMIT, sizeof *d.words);
    d.links = ty_alloc(d.catalogue->link_count, sizeof *d.links);
    TY_CHECK(ty_check_memory(d.copy != NULL && d.words != NULL && d.links != NULL, error), status,
             cleanup);
    status = parse(&d, name, out, error);
cleanup:
    ty_free(d.copy);
    ty_free(d.words);
    ty_free(d.links);
    ty_free(line);
    own_devices_clear(&own);
    return status;
}

ty_status cluster_describe(const char *text, ty_cluster **out, ty_error *error)
{
    catalogue *c = NULL;
    ty_status status = catalogue_load(&c, error);

    if (status == TY_OK)
        status = describe_with(c, text, out, error);
    catalogue_free(c);
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
    uint32_t filled = 0, all = 0;
    ty_status status;

    TY_CHECK(catalogue_load(&c, error), status, cleanup);
    all = c->host_count + c->cluster_count;
    list = ty_alloc(all, sizeof *list);
    for (; list != NULL && filled < all; filled++) {
        uint32_t cluster = filled - c->host_count;
        list[filled] =
            ty_strdup(filled < c->host_count ? c->hosts[filled].name : c->clusters[cluster].name);
        if (list[filled] == NULL)
            break;
    }
    if (list == NULL || filled < all) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for the catalogue");
        goto cleanup;
    }
    qsort(list, filled, sizeof *list, compare_strings);
    *names = list;
    *count = filled;
    list = NULL; /* ownership moved */
cleanup:
    for (uint32_t i = 0; list != NULL && i < filled; i++)
        ty_free(list[i]);
    ty_free(list);
    catalogue_free(c);
    return status;
}
