/* Parts of SimGrid platforms: attributes with units, points and wires. */
#include "import_simgrid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct unit {
    const char *text;
    double factor;
} units[] = {
    {"", 1},
    {"f", 1},
    {"kf", 1e3},
    {"Mf", 1e6},
    {"Gf", 1e9},
    {"Tf", 1e12},
    {"Pf", 1e15},
    {"Ef", 1e18},
    {"flops", 1},
    {"kiloflops", 1e3},
    {"megaflops", 1e6},
    {"gigaflops", 1e9},
    {"teraflops", 1e12},
    {"petaflops", 1e15},
    {"exaflops", 1e18},
    {"Bps", 1},
    {"kBps", 1e3},
    {"MBps", 1e6},
    {"GBps", 1e9},
    {"TBps", 1e12},
    {"PBps", 1e15},
    {"bps", 0.125},
    {"kbps", 125},
    {"Mbps", 125e3},
    {"Gbps", 125e6},
    {"Tbps", 125e9},
    {"Pbps", 125e12},
    {"KiBps", 1024},
    {"MiBps", 1048576.0},
    {"GiBps", 1073741824.0},
    {"TiBps", 1099511627776.0},
    {"Kibps", 128},
    {"Mibps", 131072},
    {"Gibps", 134217728.0},
    {"Tibps", 137438953472.0},
    {"s", 1},
    {"ms", 1e-3},
    {"us", 1e-6},
    {"ns", 1e-9},
    {"ps", 1e-12},
    {"m", 60},
    {"h", 3600},
    {"d", 86400},
    {"w", 604800},
};

/* The k-th item of a list such as "100Mf, 50Mf"; the last if it has fewer. */
static const char *item_of(const char *list, uint32_t index)
{
    const char *comma;

    for (; index > 0 && (comma = strchr(list, ',')) != NULL; index--)
        list = comma + 1;
    return list;
}

ty_status simgrid_quantity(const importer *im, const xml_element *e, const char *key,
                           double minimum, double maximum, double *out, ty_error *error)
{
    const char *text = xml_attribute(e, key);
    const char *state = strcmp(key, "speed") == 0 ? xml_attribute(e, "pstate") : NULL;
    const char *item =
        text == NULL ? NULL : item_of(text, state != NULL ? (uint32_t)atoi(state) : 0);
    char *end = NULL;
    double value = item == NULL ? 0 : strtod(item, &end);

    for (size_t u = 0; item != NULL && end != item && u < sizeof units / sizeof units[0]; u++)
        if (strncmp(end, units[u].text, strlen(units[u].text)) == 0 &&
            strchr(", ", end[strlen(units[u].text)]) != NULL) { /* including the end of the text */
            *out = value * units[u].factor;
            if (*out >= minimum && *out <= maximum)
                return TY_OK;
            return import_fail(im, error, xml_line(e), "found %s=\"%.40s\", expected %g to %g %s",
                               key, text, minimum, maximum,
                               strcmp(key, "speed") == 0    ? "flop/s"
                               : strcmp(key, "core") == 0   ? "cores"
                               : strstr(key, "lat") != NULL ? "s"
                                                            : "B/s");
        }
    return import_fail(im, error, xml_line(e),
                       "found %s=\"%.40s\", expected a number with a unit (1Gf, 125MBps, 50us)",
                       key, text != NULL ? text : "");
}

ty_status simgrid_need(const importer *im, const xml_element *e, const char *key, const char **out,
                       ty_error *error)
{
    *out = xml_attribute(e, key);
    if (*out == NULL || (*out)[0] == '\0')
        return import_fail(im, error, xml_line(e), "found <%.40s> without %s, expected it",
                           xml_name(e), key);
    return TY_OK;
}

ty_status simgrid_point(platform *p, const char *name, unsigned line, uint32_t *index,
                        ty_error *error)
{
    ty_status status = tree_node_of(&p->names, name, line, index, error);

    if (status != TY_OK || p->names.count <= p->point_room)
        return status;
    point *points = ty_resize(p->points, p->names.room, sizeof *points);
    TY_TRY(ty_check_memory(points != NULL, error));
    memset(points + p->point_room, 0, (p->names.room - p->point_room) * sizeof *points);
    p->points = points;
    p->point_room = p->names.room;
    return TY_OK;
}

/* A host, router or switch with a new name. */
ty_status simgrid_new_point(platform *p, const char *name, unsigned line, double flop_per_s,
                            uint32_t *index, ty_error *error)
{
    uint32_t before = p->names.count;

    TY_TRY(simgrid_point(p, name, line, index, error));
    if (p->names.count == before)
        return import_fail(p->im, error, line, "found %.60s a second time, expected it once", name);
    p->points[*index] = (point){.is_host = flop_per_s > 0, .flop_per_s = flop_per_s};
    if (flop_per_s > 0 && !(p->speed > 0))
        p->speed = flop_per_s;
    return TY_OK;
}

ty_status simgrid_new_wire(platform *p, uint32_t from, uint32_t to, double bandwidth,
                           double latency, double lanes, ty_error *error)
{
    if (p->wire_count == LINK_LIMIT)
        return import_fail(p->im, error, 0, "found more than %d links, expected fewer", LINK_LIMIT);
    TY_TRY(ty_reserve(&p->wires, p->wire_count, &p->wire_room, sizeof *p->wires, error));
    p->wires[p->wire_count++] = (wire){bandwidth, latency, lanes, from, to, false};
    return TY_OK;
}

ty_status simgrid_new_junction(platform *p, uint32_t *index, ty_error *error)
{
    char name[48];

    snprintf(name, sizeof name, "junction-%u", p->junctions++);
    return simgrid_new_point(p, name, 0, 0, index, error);
}

ty_status simgrid_wire_named(platform *p, const xml_element *e, const char *key, uint32_t *out,
                             ty_error *error)
{
    static const char *const directions[] = {"", "_UP", "_DOWN"}; /* of SPLITDUPLEX */
    const char *id = xml_attribute(e, key);
    size_t length = id != NULL ? strlen(id) : 0;
    char name[SIMGRID_NAME_ROOM];

    for (size_t d = 0; d < 3 && length > 0 && length < sizeof name; d++) {
        size_t end = strlen(directions[d]);
        if (length <= end || strcmp(id + length - end, directions[d]) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - end), id);
        uint32_t index = tree_find(&p->link_names, name);
        if (index != NO_INDEX) {
            *out = p->link_wires[index];
            return TY_OK;
        }
    }
    return import_fail(p->im, error, xml_line(e),
                       "found %.20s %s=\"%.60s\", expected a link named before", xml_name(e), key,
                       id != NULL ? id : "");
}
