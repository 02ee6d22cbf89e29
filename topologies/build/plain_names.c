/* "8x A100", "p4d", "2 nodes of 8 h100", "aws p5": converts informal cluster names to a line that
 * describe.c reads. */
#include "plain_names.h"
#include "build.h"
#include "importer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ALIASES "topologies/catalogue", "aliases.json"

/* Position of a name's number. */
typedef enum place { PLACE_BEHIND, PLACE_BEFORE, PLACE_NONE, PLACE_COUNT } place;

/* Splits "NAMEx8" and "NAME x 8", "8x NAME" and "8 NAME", or "NAME" into the number, 0 without one,
 * and `name`, whose size is that of the text plus one. */
static bool split_count(const char *text, place where, char *name, uint64_t *count)
{
    size_t length = 0, start = 0, end;
    char last;

    for (const char *at = text; *at != '\0'; at++)
        if (!isspace((unsigned char)*at))
            name[length++] = *at;
    name[length] = '\0';
    *count = 0;
    if (where == PLACE_BEHIND) {
        end = length;
        while (end > 0 && isdigit((unsigned char)name[end - 1]))
            end--;
        if (end == length || end < 2 || tolower((unsigned char)name[end - 1]) != 'x')
            return false;
        if (ty_parse_uint(name + end, 1, DEVICE_LIMIT, count, NULL) != TY_OK)
            return false;
        name[end - 1] = '\0';
        return true;
    }
    if (where == PLACE_NONE) /* including "4090", "910b" */
        return length > 0;
    while (isdigit((unsigned char)name[start]))
        start++;
    if (start == 0)
        return false;
    end = start;
    if (tolower((unsigned char)name[end]) == 'x')
        end++;
    last = name[end];
    if (end == start) { /* end of the number */
        memmove(name + start + 1, name + start, length - start + 1);
        end++;
        length++;
    }
    name[start] = '\0';
    if (ty_parse_uint(name, 1, DEVICE_LIMIT, count, NULL) != TY_OK || last == '\0')
        return false;
    memmove(name, name + end, length - end + 1);
    return name[0] != '\0';
}

/* A number counts hosts before a host's name and devices before a device's, unless a word says
 * otherwise. */
typedef enum unit { UNIT_OF_NAME, UNIT_DEVICES, UNIT_HOSTS } unit;

typedef struct request {
    const char *text; /* as typed */
    char *name;       /* without blanks */
    uint64_t count;   /* 0: not specified */
    uint64_t each;    /* devices per host; 0: all */
    unit unit;
} request;

static const struct {
    const char *word;
    unit unit;
} unit_words[] = {
    {"nodes", UNIT_HOSTS},   {"node", UNIT_HOSTS},    {"hosts", UNIT_HOSTS},
    {"host", UNIT_HOSTS},    {"servers", UNIT_HOSTS}, {"machines", UNIT_HOSTS},
    {"gpus", UNIT_DEVICES},  {"gpu", UNIT_DEVICES},   {"devices", UNIT_DEVICES},
    {"cards", UNIT_DEVICES}, {"chips", UNIT_DEVICES}, {"accelerators", UNIT_DEVICES},
};
#define UNIT_WORD_COUNT (sizeof unit_words / sizeof unit_words[0])

static bool skip(char **at, const char *word)
{
    if (strncasecmp(*at, word, strlen(word)) != 0)
        return false;
    *at += strlen(word);
    return true;
}

/* "nodes of 8 h100", "8xh100" after another count, "h100 nodes": moves `name` to the name.
 * @return whether there was a unit */
static bool read_unit(request *r, char *scratch)
{
    static const char *const links[] = {"ofthe", "of", "with", "x"};
    char *at = r->name;
    size_t length;

    r->unit = UNIT_OF_NAME;
    for (size_t i = 0; i < UNIT_WORD_COUNT && r->unit == UNIT_OF_NAME; i++)
        if (skip(&at, unit_words[i].word))
            r->unit = unit_words[i].unit;
    for (size_t i = 0; i < sizeof links / sizeof links[0] && at > r->name; i++)
        if (skip(&at, links[i]))
            break;
    if (r->unit != UNIT_DEVICES && split_count(at, PLACE_BEFORE, scratch, &r->each)) {
        memmove(r->name, scratch, strlen(scratch) + 1);
        at = r->name;
        r->unit = UNIT_HOSTS;
    }
    memmove(r->name, at, strlen(at) + 1);
    length = strlen(r->name);
    for (size_t i = 0; i < UNIT_WORD_COUNT && r->unit == UNIT_OF_NAME; i++) {
        const size_t word = strlen(unit_words[i].word);
        if (length > word && strcasecmp(r->name + length - word, unit_words[i].word) == 0) {
            r->name[length - word] = '\0';
            r->unit = unit_words[i].unit;
        }
    }
    return r->unit != UNIT_OF_NAME && r->name[0] != '\0';
}

/* A name's entry in the catalogue; NO_INDEX: none of that kind. */
typedef struct meaning {
    uint32_t host, cluster;
    uint32_t device; /* `host` is its usual host then, if any */
} meaning;

static ty_status by_alias(const catalogue *c, const char *name, meaning *m, ty_error *error)
{
    char *target = NULL;
    ty_status status = ty_alias_find(ALIASES, name, &target, error);

    if (target != NULL) {
        m->host = catalogue_find_host(c, target);
        m->cluster = catalogue_find_cluster(c, target);
    }
    ty_free(target);
    return status;
}

/* The usual host of a device: the alias file's, or the only one. */
static ty_status host_of_device(const catalogue *c, meaning *m, ty_error *error)
{
    uint32_t only = NO_INDEX, hosts = 0;
    ty_status status = by_alias(c, c->device_types[m->device].name, m, error);

    m->cluster = NO_INDEX;
    for (uint32_t h = 0; h < c->host_count; h++)
        if (c->hosts[h].device_type == m->device) {
            only = h;
            hosts++;
        }
    if (status == TY_OK && m->host == NO_INDEX && hosts == 1)
        m->host = only;
    return status;
}

static ty_status find_meaning(const catalogue *c, const char *name, meaning *m, ty_error *error)
{
    bool is_whole;
    const char *host =
        ty_name_find(name, &c->hosts[0].name, c->host_count, sizeof c->hosts[0], &is_whole);
    const char *cluster;
    ty_status status;

    *m = (meaning){.host = host != NULL && is_whole ? catalogue_find_host(c, host) : NO_INDEX,
                   .cluster = NO_INDEX,
                   .device = NO_INDEX};
    if (m->host != NO_INDEX)
        return TY_OK;
    m->device = catalogue_match_name(c, name);
    if (m->device != NO_INDEX)
        return host_of_device(c, m, error);
    status = by_alias(c, name, m, error);
    if (status != TY_OK || m->host != NO_INDEX || m->cluster != NO_INDEX)
        return status;
    if (host != NULL)
        m->host = catalogue_find_host(c, host);
    cluster = ty_name_find(name, &c->clusters[0].name, c->cluster_count, sizeof c->clusters[0],
                           &is_whole);
    if (host == NULL && cluster != NULL && is_whole)
        m->cluster = catalogue_find_cluster(c, cluster);
    return TY_OK;
}

static bool is_nothing(const meaning *m)
{
    return m->host == NO_INDEX && m->device == NO_INDEX && m->cluster == NO_INDEX;
}

/* Full hosts, and one with the remaining devices. */
static void put_devices(const catalogue_host *host, uint64_t count, ty_text *line)
{
    const uint64_t all = catalogue_host_count_of(host, TY_VERTEX_DEVICE);

    if (count / all > 0)
        ty_text_addf(line, "%llux %s", (unsigned long long)(count / all), host->name);
    if (count % all > 0)
        ty_text_addf(line, "%s1x %s gpu:%llu", count / all > 0 ? " + " : "", host->name,
                     (unsigned long long)(count % all));
}

static ty_status put_hosts(const catalogue *c, const request *r, const catalogue_host *host,
                           ty_text *line, ty_error *error)
{
    const catalogue_host *tray = host->tray != NO_INDEX ? &c->hosts[host->tray] : NULL;
    const uint64_t all = catalogue_host_count_of(tray != NULL ? tray : host, TY_VERTEX_DEVICE);
    const uint64_t count = r->count > 0 ? r->count : 1;

    if (r->each > all)
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\": found %llu devices a host, and %s has %llu: expected at "
                       "most that many, or \"host:H gpu:G @DEVICE LINK NETWORK\"",
                       r->text, (unsigned long long)r->each, host->name, (unsigned long long)all);
    if (tray != NULL && r->unit == UNIT_HOSTS) /* the rack is one domain; its trays are hosts */
        put_devices(host, count * (r->each > 0 ? r->each : all), line);
    else
        ty_text_addf(line, "%llux %s", (unsigned long long)count, host->name);
    if (tray == NULL && r->each > 0 && r->each < all)
        ty_text_addf(line, " gpu:%llu", (unsigned long long)r->each);
    return TY_OK;
}

static ty_status line_of(const catalogue *c, const request *r, ty_text *line, ty_error *error)
{
    const char *bare = NULL;
    meaning m;

    TY_TRY(find_meaning(c, r->name, &m, error));
    if (is_nothing(&m)) {
        TY_TRY(ty_alias_strip(ALIASES, r->name, &bare, error));
        if (bare != NULL)
            TY_TRY(find_meaning(c, bare, &m, error));
    }
    if (m.device != NO_INDEX && m.host == NO_INDEX)
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\": found %s, a device without a usual host: expected "
                       "\"host:H gpu:G @%s LINK NETWORK\", or a host (trainyard cluster list)",
                       r->text, c->device_types[m.device].name, c->device_types[m.device].name);
    if (m.cluster != NO_INDEX && r->count <= 1 && r->unit == UNIT_OF_NAME)
        ty_text_add(line, c->clusters[m.cluster].name);
    if (m.host == NO_INDEX)
        return TY_OK;
    if (r->count > 0 &&
        (r->unit == UNIT_DEVICES || (r->unit == UNIT_OF_NAME && m.device != NO_INDEX)))
        put_devices(&c->hosts[m.host], r->count, line);
    else
        return put_hosts(c, r, &c->hosts[m.host], line, error);
    return TY_OK;
}

/* Where the words of the network begin: "2 nodes of 8 v100, eth10 nics=1". A comma separates words.
 * @param text changed: it ends where they begin */
static char *split_network(const catalogue *c, char *text)
{
    char *tail = text + strlen(text);

    for (char *at = text; *at != '\0'; at++)
        if (*at == ',')
            *at = ' ';
    for (char *at = tail; at > text;) {
        while (at > text && at[-1] == ' ')
            at--;
        while (at > text && at[-1] != ' ')
            at--;
        if (!names_network(c, at))
            break;
        tail = at;
    }
    if (tail > text && *tail != '\0')
        tail[-1] = '\0';
    return tail;
}

ty_status cluster_plain_line(const char *text, char **line, ty_error *error)
{
    catalogue *c = NULL;
    char *name = ty_alloc(2 * (strlen(text) + 2), 1), *copy = ty_strdup(text), *tail = NULL;
    ty_text made = {0};
    ty_status status;

    *line = NULL;
    TY_CHECK(ty_check_memory(name != NULL && copy != NULL, error), status, cleanup);
    TY_CHECK(catalogue_load(&c, error), status, cleanup);
    tail = split_network(c, copy);
    if (strpbrk(copy, ":=@+[]{}") == NULL)
        for (place where = 0; where < PLACE_COUNT && made.length == 0; where++) {
            request r = {.text = copy, .name = name};
            if (!split_count(copy, where, name, &r.count))
                continue;
            TY_CHECK(line_of(c, &r, &made, error), status, cleanup);
            if (made.length == 0 && read_unit(&r, name + strlen(text) + 2))
                TY_CHECK(line_of(c, &r, &made, error), status, cleanup);
        }
    if (made.length > 0) {
        ty_text_addf(&made, "%s%s", *tail != '\0' ? " " : "", tail);
        status = ty_text_take(&made, line, error);
    }
cleanup:
    ty_text_clear(&made);
    catalogue_free(c);
    ty_free(copy);
    ty_free(name);
    return status;
}
