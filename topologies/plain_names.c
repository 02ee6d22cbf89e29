/* "8x A100", "p4d", "H100x8", "4090": what people type for a cluster, as a line that describe.c
 * reads. */
#include "plain_names.h"
#include "importer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Where a name's number is. */
typedef enum place { PLACE_BEHIND, PLACE_BEFORE, PLACE_NONE, PLACE_COUNT } place;

/* "NAMEx8" and "NAME x 8", "8x NAME" and "8 NAME", "NAME": the number, 0 without one, and the name
 * in `name`, which has room for the text and one more. */
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
    if (where == PLACE_NONE) /* "4090", "910b" too */
        return length > 0;
    while (isdigit((unsigned char)name[start]))
        start++;
    if (start == 0)
        return false;
    end = start;
    if (tolower((unsigned char)name[end]) == 'x')
        end++;
    last = name[end];
    if (end == start) { /* room for the end of the number */
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

static uint32_t devices_of(const catalogue_host *host)
{
    uint32_t count = 0;

    for (uint32_t v = 0; v < host->vertex_count; v++)
        count += host->vertices[v].kind == TY_VERTEX_DEVICE;
    return count;
}

static ty_status host_by_alias(const catalogue *c, const char *name, uint32_t *host,
                               ty_error *error)
{
    char *target = NULL;
    ty_status status = ty_alias_find("topologies/catalogue", "aliases.json", name, &target, error);

    *host = target != NULL ? catalogue_find_host(c, target) : NO_INDEX;
    ty_free(target);
    return status;
}

/* The usual host of a device: the alias file's, or the only one that there is. */
static ty_status host_of_device(const catalogue *c, uint32_t device, uint32_t *host,
                                ty_error *error)
{
    uint32_t only = NO_INDEX, hosts = 0;
    ty_status status = host_by_alias(c, c->device_types[device].name, host, error);

    for (uint32_t h = 0; h < c->host_count; h++)
        if (c->hosts[h].device_type == device) {
            only = h;
            hosts++;
        }
    if (status == TY_OK && *host == NO_INDEX && hosts == 1)
        *host = only;
    return status;
}

/* `count` hosts, or `count` devices in as many hosts as hold them; a count of 0 is a host. */
static ty_status line_of(const catalogue *c, const char *text, const char *name, uint64_t count,
                         ty_text *line, ty_error *error)
{
    bool is_whole;
    const char *found =
        ty_name_find(name, &c->hosts[0].name, c->host_count, sizeof c->hosts[0], &is_whole);
    const uint32_t device = catalogue_match_name(c, name);
    uint32_t host = found != NULL ? catalogue_find_host(c, found) : NO_INDEX, meant, each;
    ty_status status = TY_OK;

    if (device != NO_INDEX && !is_whole) {
        TY_CHECK(host_of_device(c, device, &host, error), status, done);
        if (host == NO_INDEX)
            return ty_fail(
                error, TY_EPARSE,
                "cluster \"%.80s\": found %s, of which no host is the usual one: expected "
                "\"host:H gpu:G @%s LINK NETWORK\", or a host (trainyard cluster list)",
                text, c->device_types[device].name, c->device_types[device].name);
        each = devices_of(&c->hosts[host]);
        if (count == 0)
            count = each; /* "H100": a host of them */
        if (count % each != 0)
            return ty_fail(error, TY_EPARSE,
                           "cluster \"%.80s\": found %llu devices, and %s has %u each: expected "
                           "\"%llux %s\", or \"host:H gpu:G @%s LINK NETWORK\"",
                           text, (unsigned long long)count, c->hosts[host].name, each,
                           (unsigned long long)(count / each + 1), c->hosts[host].name,
                           c->device_types[device].name);
        count /= each;
    } else if (!is_whole) {
        TY_CHECK(host_by_alias(c, name, &meant, error), status, done);
        host = meant != NO_INDEX ? meant : host;
    }
    if (host != NO_INDEX)
        ty_text_addf(line, "%llux %s", (unsigned long long)(count > 0 ? count : 1),
                     c->hosts[host].name);
done:
    return status;
}

ty_status cluster_plain_line(const char *text, char **line, ty_error *error)
{
    catalogue *c = NULL;
    char *name = ty_alloc(strlen(text) + 2, 1);
    ty_text made = {0};
    uint64_t count;
    ty_status status;

    *line = NULL;
    if (name == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(catalogue_load(&c, error), status, cleanup);
    if (strpbrk(text, ":=@+[]{}") == NULL)
        for (place where = 0; where < PLACE_COUNT && made.length == 0; where++)
            if (split_count(text, where, name, &count))
                TY_CHECK(line_of(c, text, name, count, &made, error), status, cleanup);
    if (made.length > 0)
        status = ty_text_take(&made, line, error);
cleanup:
    ty_text_clear(&made);
    catalogue_free(c);
    ty_free(name);
    return status;
}
