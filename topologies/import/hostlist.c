/* Expands names in brackets. A name is a sequence of parts, each a text or a list of ranges; the
 * last list changes fastest. */
#include "hostlist.h"

#include "ty_topologies.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_ROOM = 256, PART_LIMIT = 8 };

/* A list of a name, and its state during expansion. */
typedef struct part {
    const char *text; /* after the bracket */
    size_t length;    /* before the closing one */
    size_t prefix;    /* length of the text before the bracket */
    const char *prefix_text;
} part;

typedef struct pattern {
    part parts[PART_LIMIT];
    size_t count;
    const char *tail;
    size_t tail_length;
} pattern;

typedef struct range {
    uint64_t low, high;
    int digits; /* "01": two */
} range;

static ty_status fail(const char *where, ty_error *error, const char *text, size_t length,
                      const char *expected)
{
    return ty_fail(error, TY_EPARSE, "%.200s: found \"%.*s\", expected %s", where,
                   (int)(length < 60 ? length : 60), text, expected);
}

/* "01", "01-04" */
static bool read_range(const char *text, size_t length, range *out)
{
    uint64_t values[2] = {0, 0};
    size_t at = 0, digits[2] = {0, 0};
    int count = 0;

    for (; count < 2; count++) {
        for (; at < length && isdigit((unsigned char)text[at]); at++, digits[count]++)
            values[count] = 10 * values[count] + (uint64_t)(text[at] - '0');
        if (digits[count] == 0 || digits[count] > 15)
            return false;
        if (at == length)
            break;
        if (text[at++] != '-')
            return false;
    }
    if (at != length || count == 2)
        return false;
    *out = (range){values[0], count == 1 ? values[1] : values[0], (int)digits[0]};
    return out->low <= out->high;
}

/* Reads the range at `at` in a list; moves past its comma. */
static bool next_range(const part *p, size_t *at, range *out)
{
    const char *start = p->text + *at;
    const char *comma;
    size_t length;

    if (*at > p->length)
        return false;
    comma = memchr(start, ',', p->length - *at);
    length = comma != NULL ? (size_t)(comma - start) : p->length - *at;
    *at += length + 1;
    return read_range(start, length, out);
}

/* Number of names in a list; 0 if invalid. */
static uint64_t size_of(const part *p, uint64_t limit)
{
    uint64_t size = 0;
    size_t at = 0;
    range r;

    do {
        if (!next_range(p, &at, &r))
            return 0;
        size += r.high - r.low + 1;
        if (size > limit)
            return limit + 1;
    } while (at <= p->length);
    return size;
}

static ty_status read_pattern(const char *text, size_t length, uint64_t limit, uint64_t *names,
                              const char *where, pattern *out, ty_error *error)
{
    size_t at = 0;

    *out = (pattern){0};
    *names = 1;
    for (;;) {
        const char *open = memchr(text + at, '[', length - at);
        const char *close = open == NULL ? NULL : memchr(open, ']', (size_t)(text + length - open));
        part *p = &out->parts[out->count];
        uint64_t size;
        if (open == NULL)
            break;
        if (close == NULL || out->count == PART_LIMIT)
            return fail(where, error, text, length, "names with up to eight lists in brackets");
        *p = (part){open + 1, (size_t)(close - open - 1), (size_t)(open - text) - at, text + at};
        size = size_of(p, limit);
        if (size == 0)
            return fail(where, error, open, (size_t)(close - open) + 1,
                        "numbers and ranges from low to high in brackets, as in [01-04,7]");
        *names *= size;
        if (*names > limit)
            return fail(where, error, text, length, "fewer names");
        out->count++;
        at = (size_t)(close - text) + 1;
    }
    out->tail = text + at;
    out->tail_length = length - at;
    if (length == 0 || memchr(out->tail, ']', out->tail_length) != NULL)
        return fail(where, error, text, length, "a name");
    return TY_OK;
}

typedef struct expansion {
    const pattern *pattern;
    hostlist_visit visit;
    void *data;
    const char *where;
} expansion;

static bool append(char *name, size_t *length, const char *text, size_t size)
{
    if (*length + size >= NAME_ROOM)
        return false;
    memcpy(name + *length, text, size);
    *length += size;
    name[*length] = '\0';
    return true;
}

/* Expands all names that begin with `name`; recursion is as deep as the number of lists, at most
 * PART_LIMIT. */
static ty_status expand(const expansion *e, size_t index, char *name, size_t length,
                        ty_error *error)
{
    const pattern *p = e->pattern;
    size_t at = 0;
    range r;

    if (index == p->count) {
        if (!append(name, &length, p->tail, p->tail_length))
            return fail(e->where, error, name, length, "a shorter name");
        return e->visit(e->data, name, error);
    }
    if (!append(name, &length, p->parts[index].prefix_text, p->parts[index].prefix))
        return fail(e->where, error, name, length, "a shorter name");
    while (at <= p->parts[index].length && next_range(&p->parts[index], &at, &r)) {
        for (uint64_t i = r.low; i <= r.high; i++) {
            char digits[32];
            size_t longer = length;
            int size = snprintf(digits, sizeof digits, "%0*llu", r.digits, (unsigned long long)i);
            if (!append(name, &longer, digits, (size_t)size))
                return fail(e->where, error, name, length, "a shorter name");
            TY_TRY(expand(e, index + 1, name, longer, error));
        }
    }
    return TY_OK;
}

/* End of the name at `at`: a comma outside of brackets. */
static size_t name_end(const char *text, size_t length, size_t at)
{
    bool is_inside = false;

    for (; at < length; at++) {
        if (text[at] == '[' || text[at] == ']')
            is_inside = text[at] == '[';
        else if (text[at] == ',' && !is_inside)
            break;
    }
    return at;
}

ty_status hostlist_each(const char *text, size_t length, uint64_t limit, const char *where,
                        hostlist_visit visit, void *data, ty_error *error)
{
    char name[NAME_ROOM];
    uint64_t total = 0, names;
    pattern p;

    for (size_t at = 0, end; at <= length; at = end + 1) {
        end = name_end(text, length, at);
        TY_TRY(read_pattern(text + at, end - at, limit, &names, where, &p, error));
        total += names;
        if (total > limit)
            return fail(where, error, text, length, "fewer names");
    }
    for (size_t at = 0, end; at <= length; at = end + 1) {
        expansion e = {&p, visit, data, where};
        end = name_end(text, length, at);
        TY_TRY(read_pattern(text + at, end - at, limit, &names, where, &p, error));
        name[0] = '\0';
        TY_TRY(expand(&e, 0, name, 0, error));
    }
    return TY_OK;
}

/* ---- For those who name hosts ------------------------------------------------------------ */

#define MOST_HOST_NAMES 1000000

typedef struct name_list {
    char **names;
    uint32_t count, room;
} name_list;

static ty_status keep_name(void *data, const char *name, ty_error *error)
{
    name_list *list = data;

    if (list->count < list->room) {
        list->names[list->count] = ty_strdup(name);
        TY_TRY(ty_check_memory(list->names[list->count] != NULL, error));
    }
    list->count++;
    return TY_OK;
}

ty_status ty_host_names(const char *text, uint32_t count, char ***names, ty_error *error)
{
    ty_status status;
    name_list list = {.names = ty_alloc(count, sizeof *list.names), .room = count};
    uint32_t kept;

    TY_TRY(ty_check_memory(list.names != NULL, error));
    status =
        hostlist_each(text, strlen(text), MOST_HOST_NAMES, "host names", keep_name, &list, error);
    if (status == TY_EPARSE || (status == TY_OK && list.count != count)) {
        if (status == TY_OK)
            ty_fail(
                error, TY_EINVAL,
                "host names: found %u in '%.80s', expected %u, one for each host, as in node[1-%u]",
                list.count, text, count, count);
        status = TY_EINVAL;
        if (error != NULL)
            error->status = TY_EINVAL;
    }
    if (status == TY_OK) {
        *names = list.names;
        return TY_OK;
    }
    kept = list.count < list.room ? list.count : list.room;
    for (uint32_t i = 0; i < kept; i++)
        ty_free(list.names[i]);
    ty_free(list.names);
    return status;
}
