/* Steps: numbers, checks and notes, and nested steps. */
#include "steps.h"

#include <stdio.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define MOST_REPEATS 10000
enum { MOST_DEPTH = 24 };

/* ---- Steps: numbers, checks and notes -------------------------------------------------------- */

/* "set", or "default": only values that no step has set. */
static ty_status set_members(steps_reader *r, const ty_json *step, const char *member,
                             bool is_default)
{
    const ty_json *table;
    double value;

    TY_TRY(ty_json_object(step, member, &table, r->error));
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const char *name = ty_json_key(ty_json_at(table, i));
        if (is_default && ty_steps_find(r->scope, name, strlen(name)) != NULL)
            continue;
        TY_TRY(ty_steps_value(r, table, name, 0, &value));
        TY_TRY(ty_steps_set(r, name, value));
    }
    return TY_OK;
}

static ty_status run_set(steps_reader *r, const ty_json *step)
{
    return set_members(r, step, "set", false);
}

static ty_status run_default(steps_reader *r, const ty_json *step)
{
    return set_members(r, step, "default", true);
}

/* "expected" refers to the key "at", or to the entire object. */
static ty_status run_require(steps_reader *r, const ty_json *step)
{
    ty_text expected = {0}, found = {0};
    const ty_json *node = r->scope->object;
    const char *key;
    double value;
    ty_status status;

    TY_CHECK(ty_steps_value(r, step, "require", 0, &value), status, done);
    TY_CHECK(ty_steps_text(r, step, "expected", &expected), status, done);
    if (ty_json_has(step, "found"))
        TY_CHECK(ty_steps_text(r, step, "found", &found), status, done);
    ty_json_ignore(step, "at");
    if (value != 0)
        goto done;
    if (r->pairs != NULL) {
        const training_pair *p = NULL;
        if (ty_json_has(step, "at")) {
            TY_CHECK(ty_json_string(step, "at", &key, r->error), status, done);
            p = ty_steps_find_setting(r, key);
        }
        status = p != NULL ? ty_steps_fail_pair(r, p, expected.data)
                           : ty_fail(r->error, TY_EPARSE, "%.160s: found %s, expected %s",
                                     r->source->path, found.data != NULL ? found.data : "settings",
                                     expected.data);
        goto done;
    }
    if (ty_json_has(step, "at")) {
        TY_CHECK(ty_json_string(step, "at", &key, r->error), status, done);
        if (ty_json_has(r->scope->object, key))
            TY_CHECK(ty_json_member(r->scope->object, key, &node, r->error), status, done);
    }
    status = ty_json_fail(node, r->error, "%s", expected.data);
done:
    ty_text_clear(&expected);
    ty_text_clear(&found);
    return status;
}

static ty_status run_note(steps_reader *r, const ty_json *step)
{
    ty_text note = {0};
    ty_status status = ty_steps_text(r, step, "note", &note);

    if (status == TY_OK && r->report != NULL)
        status = ty_import_report_add(r->report, note.data, r->error);
    else if (status == TY_OK)
        ty_import_note(r->source, "%s", note.data);
    ty_text_clear(&note);
    return status;
}

static ty_status run_switch(steps_reader *r, const ty_json *step)
{
    const char *word;
    ty_status status = ty_json_string(step, "switch", &word, r->error);

    if (status != TY_OK || r->switches == NULL)
        return status;
    ty_text_addf(r->switches, "%s%s", r->switches->length > 0 ? " " : "", word);
    return ty_text_check(r->switches, r->error);
}

static ty_status run_ignore(steps_reader *r, const ty_json *step)
{
    const ty_json *list;
    const char *key;

    TY_TRY(ty_json_array(step, "ignore", 1, 1000, &list, r->error));
    for (size_t i = 0; i < ty_json_size(list); i++) {
        TY_TRY(ty_json_as_string(ty_json_at(list, i), &key, r->error));
        if (r->pairs == NULL)
            ty_json_ignore(r->scope->object, key);
        for (uint32_t p = 0; r->pairs != NULL && p < r->pairs->count; p++)
            if (ty_steps_is_like(r, key, r->pairs->pairs[p].key))
                r->pairs->pairs[p].is_read = true;
    }
    return TY_OK;
}

/* ---- Steps: steps in steps ------------------------------------------------------------------- */

ty_status ty_steps_run_part(steps_reader *reader, const char *name)
{
    const ty_json *steps;

    TY_TRY(ty_json_array(reader->parts, name, 1, 1000, &steps, reader->error));
    return ty_steps_run(reader, steps);
}

static ty_status run_use(steps_reader *r, const ty_json *step)
{
    const ty_json *parts;
    const char *name;

    TY_TRY(ty_json_array(step, "use", 1, 100, &parts, r->error));
    for (size_t i = 0; i < ty_json_size(parts); i++) {
        TY_TRY(ty_json_as_string(ty_json_at(parts, i), &name, r->error));
        TY_TRY(ty_steps_run_part(r, name));
    }
    return TY_OK;
}

static ty_status enter_scope(steps_reader *r, const char *name, steps_scope **out)
{
    steps_scope *s = ty_steps_find_scope(r->scope, name, strlen(name));

    if (s == NULL) {
        s = ty_arena_alloc(r->arena, 1, sizeof *s);
        if (s == NULL)
            return ty_steps_out_of_memory(r);
        *s = (steps_scope){.name = name,
                           .prefix = "",
                           .outer = r->scope,
                           .next = r->scope->inner,
                           .object = r->scope->object};
        r->scope->inner = s;
    }
    *out = s;
    return TY_OK;
}

/* Steps with their own numbers: {"scope": "vision", "object": "vision_config", ...}. */
static ty_status run_scope(steps_reader *r, const ty_json *step)
{
    steps_scope *before = r->scope, *s = NULL;
    const char *name, *key;
    const ty_json *steps;
    ty_status status;

    TY_CHECK(ty_json_string(step, "scope", &name, r->error), status, done);
    TY_CHECK(enter_scope(r, name, &s), status, done);
    if (ty_json_has(step, "object")) {
        TY_CHECK(ty_json_string(step, "object", &key, r->error), status, done);
        TY_CHECK(ty_json_object(r->whole, key, &s->object, r->error), status, done);
    }
    if (ty_json_has(step, "prefix"))
        TY_CHECK(ty_json_string(step, "prefix", &s->prefix, r->error), status, done);
    TY_CHECK(ty_json_array(step, "steps", 1, 1000, &steps, r->error), status, done);
    r->scope = s;
    status = ty_steps_run(r, steps);
done:
    r->scope = before;
    return status;
}

/* Steps for `block` from "from" on, "repeat" times. */
static ty_status run_repeat(steps_reader *r, const ty_json *step)
{
    const ty_json *steps;
    double times, first;
    ty_status status;

    TY_CHECK(ty_steps_value(r, step, "repeat", 0, &times), status, done);
    TY_CHECK(ty_steps_value(r, step, "from", 0, &first), status, done);
    TY_CHECK(ty_json_array(step, "steps", 1, 1000, &steps, r->error), status, done);
    for (double i = 0; i < times && i < MOST_REPEATS; i++) {
        r->block = (uint64_t)(first + i);
        TY_CHECK(ty_steps_run(r, steps), status, done);
    }
done:
    r->block = UINT64_MAX;
    return status;
}

static const struct {
    const char *key;
    ty_status (*run)(steps_reader *r, const ty_json *step);
} kinds[] = {
    {"set", run_set},        {"default", run_default},  {"require", run_require},
    {"note", run_note},      {"switch", run_switch},    {"ignore", run_ignore},
    {"use", run_use},        {"scope", run_scope},      {"repeat", run_repeat},
    {"open", ty_steps_open}, {"layer", ty_steps_layer}, {"settle", ty_steps_settle},
    {"fits", ty_steps_fits},
};

static ty_status run_one(steps_reader *r, const ty_json *step)
{
    static const char *const optional[] = {
        "needed",    "minimum", "maximum", "or_list", "or_number", "words",
        "otherwise", "of",      "at",      "where",   "found",     "literal",
    };
    size_t kind = 0;
    bool is_done = false;
    double applies;
    if (!ty_json_is_object(step))
        return ty_json_fail(step, r->error, "a step: {\"set\": ...}, or another kind");
    TY_TRY(ty_steps_value(r, step, "if", 1, &applies));
    if (applies == 0)
        return TY_OK;
    while (kind < COUNT(kinds) && !ty_json_has(step, kinds[kind].key))
        kind++;
    if (kind < COUNT(kinds))
        TY_TRY(kinds[kind].run(r, step));
    else
        TY_TRY(ty_steps_run_keys(r, step, &is_done));
    if (kind == COUNT(kinds) && !is_done) {
        return ty_json_fail(step, r->error, "a step: {\"set\": ...}, or another kind");
    }
    for (size_t i = 0; i < COUNT(optional); i++) /* for keys that the configuration lacks */
        ty_json_ignore(step, optional[i]);
    return ty_json_end(step, r->error);
}

ty_status ty_steps_run(steps_reader *reader, const ty_json *steps)
{
    ty_status status = TY_OK;

    if (++reader->depth > MOST_DEPTH)
        return ty_json_fail(steps, reader->error, "steps in one another at most %d deep",
                            MOST_DEPTH);
    for (size_t i = 0; i < ty_json_size(steps) && status == TY_OK; i++)
        status = run_one(reader, ty_json_at(steps, i));
    reader->depth--;
    return status;
}
