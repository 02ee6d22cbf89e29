/* A custom device in a description: @NAME{bf16=400e12,memory=48GiB,bandwidth=1.5TB/s,...}, or
 * @FILE of trainyard.device/1. It becomes an entry in a copy of the catalogue, for the rest of the
 *       description to name. */
#include "describe_device.h"

#include "ty_base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN_LIMIT = 16, DEVICE_FILE_LIMIT = 1 << 20 };

static const char schema[] = "trainyard.device/1";

/* Default, as for unmeasured devices of the catalogue. */
#define USUAL_LAUNCH_S 5e-6
#define USUAL_EFFICIENCY 0.7
#define USUAL_MEMORY_EFFICIENCY 0.9
/* Rate of units without matrix engines; devices of the catalogue have an eighth to a thirtieth. */
#define USUAL_FP32_SHARE 0.0625

typedef struct reading {
    const char *text; /* the description, for messages */
    catalogue *own;
    uint32_t first;               /* first device of `own` that is not the catalogue's */
    const char *files[OWN_LIMIT]; /* source file of each; NULL: the description */
    ty_device_type type;
    catalogue_device links;
} reading;

struct key {
    const char *name;
    ty_status (*read)(reading *r, const struct key *key, const char *value, ty_error *error);
    size_t at; /* offset of a figure in the device */
    double minimum, maximum;
    const char *expected;
};

static ty_status fail_value(const reading *r, const char *key, const char *value,
                            const char *expected, ty_error *error)
{
    return ty_fail(error, TY_EPARSE, "cluster \"%.80s\": %s: found \"%.40s\", expected %s", r->text,
                   key, value, expected);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static ty_status read_figure(reading *r, const struct key *key, const char *value, ty_error *error)
{
    double number;

    if (value[strspn(value, "0123456789.eE-")] != '\0' ||
        ty_parse_bandwidth(value, &number, NULL) != TY_OK || number < key->minimum ||
        number > key->maximum)
        return fail_value(r, key->name, value, key->expected, error);
    *(double *)(void *)((char *)&r->type + key->at) = number;
    return TY_OK;
}

static ty_status read_memory(reading *r, const struct key *key, const char *value, ty_error *error)
{
    if (ty_parse_bytes(value, &r->type.memory_bytes, NULL) != TY_OK || r->type.memory_bytes == 0)
        return fail_value(r, key->name, value, "a size such as 48GiB", error);
    r->type.usable_memory_bytes = 0;
    return TY_OK;
}

static ty_status read_bandwidth(reading *r, const struct key *key, const char *value,
                                ty_error *error)
{
    double *out = &r->type.memory_bandwidth_bytes_per_s;

    if (ty_parse_bandwidth(value, out, NULL) != TY_OK || !(*out >= 1 && *out <= 1e18))
        return fail_value(r, key->name, value, "a bandwidth such as 1.5TB/s", error);
    return TY_OK;
}

static ty_status read_launch(reading *r, const struct key *key, const char *value, ty_error *error)
{
    if (ty_parse_seconds(value, &r->type.launch_overhead_s, NULL) != TY_OK ||
        r->type.launch_overhead_s > 1)
        return fail_value(r, key->name, value, "a time such as 5us", error);
    return TY_OK;
}

static bool find_port(reading *r, const char *name)
{
    const uint32_t link = catalogue_find_link(r->own, name);

    if (link == NO_INDEX || r->own->links[link].use != LINK_TO_HOST)
        return false;
    r->links.port = link;
    return true;
}

static ty_status read_port(reading *r, const struct key *key, const char *value, ty_error *error)
{
    return find_port(r, value)
               ? TY_OK
               : fail_value(r, key->name, value,
                            "a link of the catalogue to the host such as pcie5", error);
}

/* Missing figures are those of another device. */
static bool find_like(reading *r, const char *name)
{
    uint32_t device = catalogue_find_device(r->own, name);

    if (device == NO_INDEX)
        device = catalogue_match_device(r->own, "alias", name);
    if (device == NO_INDEX)
        return false;
    r->type = r->own->device_types[device];
    r->links = r->own->devices[device];
    return true;
}

static ty_status read_like(reading *r, const struct key *key, const char *value, ty_error *error)
{
    return find_like(r, value)
               ? TY_OK
               : fail_value(r, key->name, value, "a device of the catalogue", error);
}

#define FIGURE(member, minimum, maximum, expected)                                                 \
    read_figure, offsetof(ty_device_type, member), minimum, maximum, expected
#define RATE(member) FIGURE(member, 1, 1e18, "flop/s such as 400e12")
#define SHARE(member) FIGURE(member, 1e-3, 1, "a share of the peak such as 0.7")

static const struct key keys[] = {
    {.name = "like", .read = read_like},
    {"fp32", RATE(peak_fp32_flop_per_s)},
    {"tf32", RATE(peak_tf32_flop_per_s)},
    {"bf16", RATE(peak_fp16_flop_per_s)},
    {"fp16", RATE(peak_fp16_flop_per_s)},
    {"fp8", RATE(peak_fp8_flop_per_s)},
    {"fp4", RATE(peak_fp4_flop_per_s)},
    {.name = "memory", .read = read_memory},
    {.name = "bandwidth", .read = read_bandwidth},
    {"efficiency", SHARE(matmul_efficiency)},
    {"memory_efficiency", SHARE(memory_efficiency)},
    {"power", FIGURE(power_w, 0, 1e6, "watts such as 350")},
    {.name = "launch", .read = read_launch},
    {.name = "port", .read = read_port},
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

static ty_status read_pair(reading *r, char *pair, ty_error *error)
{
    char *equals = strchr(pair, '=');
    const char *near;

    if (equals != NULL)
        *equals = '\0';
    for (size_t k = 0; k < KEY_COUNT && equals != NULL; k++)
        if (strcmp(keys[k].name, pair) == 0)
            return keys[k].read(r, &keys[k], equals + 1, error);
    near = ty_suggest(pair, &keys[0].name, KEY_COUNT, sizeof keys[0]);
    return ty_fail(
        error, TY_EPARSE,
        "cluster \"%.80s\": found \"%.40s\", expected like=, fp32=, tf32=, bf16=, "
        "fp8=, fp4=, memory=, bandwidth=, efficiency=, memory_efficiency=, power=, launch= or "
        "port=%s%s%s",
        r->text, pair, near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
        near != NULL ? "\"?" : "");
}

/* ---- A device -------------------------------------------------------------------------------- */

static bool is_complete(const ty_device_type *type)
{
    return (type->peak_fp32_flop_per_s > 0 || type->peak_fp16_flop_per_s > 0) &&
           type->memory_bytes > 0 && type->memory_bandwidth_bytes_per_s > 0;
}

/* Adds the device. @param source of its figures; copied */
static ty_status add(reading *r, const char *source, const char *file, ty_error *error)
{
    ty_device_type *t = &r->type;
    const bool has_fp32 = t->peak_fp32_flop_per_s > 0;
    const char *guess = has_fp32 ? "" : "; fp32 at a sixteenth of the bf16 rate";
    const size_t room = strlen(source) + strlen(guess) + 1;

    t->source = ty_arena_alloc(r->own->arena, room, 1);
    TY_TRY(ty_check_memory(t->source != NULL, error));
    snprintf(t->source, room, "%s%s", source, guess);
    if (!has_fp32)
        t->peak_fp32_flop_per_s = USUAL_FP32_SHARE * t->peak_fp16_flop_per_s;
    r->files[r->own->device_type_count - r->first] = file;
    r->own->device_types[r->own->device_type_count] = r->type;
    r->own->devices[r->own->device_type_count++] = r->links;
    return TY_OK;
}

static void begin(reading *r)
{
    r->type = (ty_device_type){.launch_overhead_s = USUAL_LAUNCH_S,
                               .matmul_efficiency = USUAL_EFFICIENCY,
                               .memory_efficiency = USUAL_MEMORY_EFFICIENCY};
    r->links = (catalogue_device){
        .scale_up = NO_INDEX, .direct = NO_INDEX, .port = catalogue_find_link(r->own, "pcie4")};
}

/* Adds the device of "NAME{...}". @param body text between the braces; modified */
static ty_status add_device(reading *r, const char *name, size_t length, char *body,
                            ty_error *error)
{
    char *rest = NULL, *pair, *own = ty_arena_alloc(r->own->arena, length + 1, 1);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(own != NULL, error));
    memcpy(own, name, length);
    own[length] = '\0';
    begin(r);
    for (pair = strtok_r(body, ",", &rest); pair != NULL && status == TY_OK;
         pair = strtok_r(NULL, ",", &rest))
        TY_TRY(read_pair(r, pair, error));
    r->type.name = own;
    if (length == 0 || catalogue_find_device(r->own, own) != NO_INDEX)
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\": found device \"%.40s\", expected a name of its own that "
                       "no device has",
                       r->text, own);
    if (!is_complete(&r->type))
        return ty_fail(
            error, TY_EPARSE,
            "cluster \"%.80s\": @%s: expected bf16= or fp32=, memory= and bandwidth=, or "
            "like= a device that has them",
            r->text, own);
    return add(r, "as the description says, else estimates", NULL, error);
}

/* ---- A file of a device ---------------------------------------------------------------------- */

static bool is_device_file(const char *name, size_t length)
{
    return memchr(name, '/', length) != NULL ||
           (length > 5 && strncmp(name + length - 5, ".json", 5) == 0);
}

/* Reads members that name a link or a device. */
static ty_status read_names(reading *r, const ty_json *object, ty_error *error)
{
    const char *text;

    if (ty_json_has(object, "like")) {
        TY_TRY(ty_json_string(object, "like", &text, error));
        if (!find_like(r, text))
            return ty_json_fail(object, error, "as like a device of the catalogue");
    }
    if (ty_json_has(object, "port")) {
        TY_TRY(ty_json_string(object, "port", &text, error));
        if (!find_port(r, text))
            return ty_json_fail(object, error,
                                "as port a link of the catalogue to the host such as pcie5");
    }
    return TY_OK;
}

static ty_status read_file(reading *r, const ty_json *object, const char *path, ty_error *error)
{
    const char *name, *source;
    char *own;

    TY_TRY(ty_json_schema(object, schema, error));
    TY_TRY(ty_json_string(object, "name", &name, error));
    TY_TRY(ty_json_string(object, "source", &source, error));
    if (name[0] == '\0' || name[strcspn(name, " \t\n@{}[]+=")] != '\0' ||
        catalogue_find_device(r->own, name) != NO_INDEX)
        return ty_json_fail(object, error,
                            "a name of its own that no device has, without blanks and @{}[]+=");
    begin(r);
    TY_TRY(read_names(r, object, error));
    TY_TRY(ty_cluster_read_device(object, &r->type, error));
    TY_TRY(ty_json_end(object, error));
    if (!is_complete(&r->type))
        return ty_json_fail(object, error,
                            "peak_fp16_flop_per_s or peak_fp32_flop_per_s, memory_bytes and "
                            "memory_bandwidth_bytes_per_s, or like a device that has them");
    TY_TRY(ty_check_memory((own = ty_arena_strdup(r->own->arena, name)) != NULL, error));
    r->type.name = own;
    return add(r, source, path, error);
}

/* Adds the device of a file; reads it once even if named several times. */
static ty_status add_file(reading *r, const char *name, size_t length, uint32_t *device,
                          ty_error *error)
{
    char *path = ty_arena_alloc(r->own->arena, length + 1, 1), *text = NULL;
    const char *content;
    ty_json_document *document = NULL;
    size_t size;
    ty_status status;

    TY_TRY(ty_check_memory(path != NULL, error));
    memcpy(path, name, length);
    path[length] = '\0';
    for (uint32_t i = r->first; i < r->own->device_type_count; i++)
        if (r->files[i - r->first] != NULL && strcmp(r->files[i - r->first], path) == 0) {
            *device = i;
            return TY_OK;
        }
    *device = r->own->device_type_count;
    TY_CHECK(ty_file_read(path, DEVICE_FILE_LIMIT, &text, &size, error), status, cleanup);
    content = text;
    ty_skip_mark(&content, &size);
    TY_CHECK(ty_json_parse(content, size, path, &document, error), status, cleanup);
    status = read_file(r, ty_json_root(document), path, error);
cleanup:
    ty_json_free(document);
    ty_free(text);
    return status;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static ty_status copy_entries(const catalogue *c, catalogue *own, ty_error *error)
{
    size_t count = c->device_type_count;

    *own = *c;
    own->device_types = ty_alloc(count + OWN_LIMIT, sizeof *own->device_types);
    own->devices = ty_alloc(count + OWN_LIMIT, sizeof *own->devices);
    TY_TRY(ty_check_memory(own->device_types != NULL && own->devices != NULL, error));
    memcpy(own->device_types, c->device_types, count * sizeof *own->device_types);
    memcpy(own->devices, c->devices, count * sizeof *own->devices);
    return TY_OK;
}

ty_status own_devices(const char *text, const catalogue *c, catalogue *own, char **line,
                      ty_error *error)
{
    reading r = {.text = text, .own = own, .first = c->device_type_count};
    char *copy = ty_strdup(text), *at = copy;
    ty_text out = {0};
    ty_status status = TY_OK;

    *own = (catalogue){0};
    TY_TRY(ty_check_memory(copy != NULL, error));
    TY_CHECK(copy_entries(c, own, error), status, cleanup);
    for (;;) {
        const size_t plain = strcspn(at, "@{");
        char *name = at + plain + 1, *end, *close;
        bool is_file;
        uint32_t device;
        if (at[plain] == '\0')
            break;
        end = name + strcspn(name, "{] \t\n");
        close = *end == '{' ? strchr(end, '}') : NULL;
        is_file = is_device_file(name, (size_t)(end - name)) && *end != '{';
        if (at[plain] == '{' || (*end == '{' && close == NULL) ||
            ((close != NULL || is_file) &&
             own->device_type_count == c->device_type_count + OWN_LIMIT)) {
            status = ty_fail(error, TY_EPARSE,
                             "cluster \"%.80s\": found \"%.40s\", expected @NAME{KEY=VALUE,...} or "
                             "@FILE.json at most %d times",
                             text, *end == '{' ? end : at + plain, OWN_LIMIT);
            goto cleanup;
        }
        if (is_file) {
            TY_CHECK(add_file(&r, name, (size_t)(end - name), &device, error), status, cleanup);
            ty_text_append(&out, at, plain + 1);
            ty_text_add(&out, own->device_types[device].name);
            at = end;
            continue;
        }
        ty_text_append(&out, at, (size_t)(end - at));
        at = end;
        if (close != NULL) {
            *close = '\0';
            TY_CHECK(add_device(&r, name, (size_t)(end - name), end + 1, error), status, cleanup);
            at = close + 1;
        }
    }
    ty_text_add(&out, at);
    status = ty_text_take(&out, line, error);

cleanup:
    ty_text_clear(&out);
    ty_free(copy);
    return status;
}

void own_devices_clear(catalogue *own)
{
    ty_free(own->device_types);
    ty_free(own->devices);
    *own = (catalogue){0};
}

ty_status ty_device_file_check(const char *path, ty_error *error)
{
    catalogue *c = NULL, own = {0};
    reading r = {.text = path, .own = &own};
    uint32_t device;
    ty_status status;

    TY_CHECK(catalogue_load(&c, error), status, cleanup);
    r.first = c->device_type_count;
    TY_CHECK(copy_entries(c, &own, error), status, cleanup);
    status = add_file(&r, path, strlen(path), &device, error);
cleanup:
    own_devices_clear(&own);
    catalogue_free(c);
    return status;
}
