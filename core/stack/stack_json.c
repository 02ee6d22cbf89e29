/* Stacks as `trainyard.stack/1`: in the catalogue, in files, in plans. The stack in `like` is read
 * first; the stack's own members then replace its figures. */
#include "json_parts.h"
#include "stack_on.h"
#include "stack_plans.h"
#include "ty_base.h"
#include "ty_json.h"

#include <stdlib.h>
#include <string.h>

#define SCHEMA "trainyard.stack/1"
#define FOLDER "planner/stacks"
#define SUFFIX ".json"
#define MOST_FITTED 100000
#define MOST_JUDGED 1000
#define MOST_SWITCHES 100
#define MOST_LIKE 16 /* longest chain of `like`; a longer one counts as a cycle */

/* ---- Tables ---------------------------------------------------------------------------------- */

JSON_NAMES(provenance_name, ty_provenance, ty_provenance_name)
JSON_NAMES(attention_name, ty_stack_attention, ty_stack_attention_name)
JSON_NAMES(memory_name, ty_stack_memory, ty_stack_memory_name)

static const json_field choice_fields[] = {
    {"attention", JSON_NAME, JSON_AT(ty_stack, attention), .name = attention_name,
     .name_count = TY_STACK_ATTENTION_COUNT},
    {"memory", JSON_NAME, JSON_AT(ty_stack, memory), .name = memory_name,
     .name_count = TY_STACK_MEMORY_COUNT},
    {"has_dropout", JSON_BOOL, JSON_AT(ty_stack, has_dropout)},
    {"overlaps_exchange", JSON_BOOL, JSON_AT(ty_stack, overlaps_exchange)},
    {"has_equal_stages", JSON_BOOL, JSON_AT(ty_stack, has_equal_stages)},
};
static const json_record choices_record = JSON_RECORD(ty_stack, choice_fields);

static const json_field fitted_fields[] = {
    {"source", JSON_TEXT, JSON_AT(ty_stack_fitted, source)},
    {"model", JSON_TEXT, JSON_AT(ty_stack_fitted, model), .is_optional = true},
};
static const json_record fitted_record = JSON_FLAT_RECORD(ty_stack_fitted, fitted_fields);

static const json_field judged_fields[] = {
    {"device", JSON_TEXT, JSON_AT(ty_stack_judged, device)},
    {"rows", JSON_UINT32, JSON_AT(ty_stack_judged, rows), 1, UINT32_MAX},
    {"mean_error", JSON_NUMBER, JSON_AT(ty_stack_judged, mean_error), 0, 1e6},
};
static const json_record judged_record = JSON_FLAT_RECORD(ty_stack_judged, judged_fields);

static const json_field switch_fields[] = {
    {"switch", JSON_TEXT, JSON_AT(ty_stack_switch, name)},
    {"constants", JSON_TEXT, JSON_AT(ty_stack_switch, words)},
    {"source", JSON_TEXT, JSON_AT(ty_stack_switch, source)},
};
static const json_record switch_record = JSON_RECORD(ty_stack_switch, switch_fields);

/* `fitted` is written even if it is empty, because a stack always has a name. Switches are not
 * written: plans carry the constants that they set. */
static const json_field list_fields[] = {
    {"fitted", JSON_ROWS, JSON_AT(ty_stack, fitted), 0, MOST_FITTED, .of = &fitted_record,
     .count_at = offsetof(ty_stack, fitted_count), .is_optional = true, JSON_SAID(ty_stack, name)},
    {"judged", JSON_ROWS, JSON_AT(ty_stack, judged), 0, MOST_JUDGED, .of = &judged_record,
     .count_at = offsetof(ty_stack, judged_count), .is_optional = true},
    {"switches", JSON_ROWS, JSON_AT(ty_stack, switches), 0, MOST_SWITCHES, .of = &switch_record,
     .count_at = offsetof(ty_stack, switch_count), .is_optional = true},
};
const json_record ty_stack_lists_record = JSON_RECORD(ty_stack, list_fields);
static const json_record judged_list = {&list_fields[1], 1, sizeof(ty_stack), false};
static const json_record evidence_record = {list_fields, 2, sizeof(ty_stack), false};

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_constants(const ty_stack *stack, ty_json_writer *writer)
{
    const ty_stack_constant *constant;

    for (uint32_t i = 0; (constant = ty_stack_constant_at(i)) != NULL; i++) {
        double value;
        memcpy(&value, (const char *)stack + constant->offset, sizeof value);
        ty_stack_figure_to_json(constant, value, stack->sources[i], writer);
    }
    ty_stack_on_to_json(stack, writer);
}

void ty_stack_to_json(const ty_stack *stack, ty_json_writer *writer, const char *key)
{
    ty_json_open(writer, key, '{');
    ty_json_put_string(writer, "schema", SCHEMA);
    ty_json_put_string(writer, "name", stack->name);
    ty_json_put_string(writer, "title", stack->title);
    ty_json_put_string(writer, "source", stack->source);
    ty_json_put_string(writer, "provenance", ty_provenance_name(stack->provenance));
    write_constants(stack, writer);
    ty_record_put(&choices_record, stack, NULL, writer);
    ty_stack_plans_to_json(&stack->plans, writer);
    ty_record_put(&evidence_record, stack, NULL, writer);
    ty_json_close(writer, '}');
}

ty_status ty_stack_digest(const ty_stack *stack, ty_digest *out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    char *compact = NULL;
    ty_status status;

    ty_stack_to_json(stack, &writer, NULL);
    TY_CHECK(ty_text_check(&text, error), status, cleanup);
    TY_CHECK(ty_json_parse(text.data, text.length, "stack", &document, error), status, cleanup);
    TY_CHECK(ty_json_text(ty_json_root(document), &compact, error), status, cleanup);
    *out = ty_digest_of(compact, strlen(compact));

cleanup:
    ty_free(compact);
    ty_json_free(document);
    ty_text_clear(&text);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* A stack's own figure applies to all devices that it does not name. */
static ty_status read_constant(const ty_json *object, uint32_t i, ty_stack *stack, ty_error *error)
{
    const ty_stack_constant *constant = ty_stack_constant_at(i);

    ty_stack_everywhere(stack, i);
    return ty_stack_figure_read(object, constant, ty_stack_value(stack, constant),
                                &stack->sources[i], error);
}

/* Names are used in commands, comments of scripts and file names. */
static ty_status check_name(const ty_json *object, const ty_stack *stack, ty_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    const ty_json *value;

    if (strspn(stack->name, letters) == strlen(stack->name))
        return TY_OK;
    TY_TRY(ty_json_member(object, "name", &value, error));
    return ty_json_fail(value, error, "letters, digits, '-', '_' and '.'");
}

/* Whether to read a member: all of them, unless defaults replace missing ones. */
static bool is_said(const ty_json *object, const char *key, bool has_base)
{
    return !has_base || ty_json_has(object, key);
}

/* Reads a stack's own members over those of the stack that it is like. */
static ty_status read_members(const ty_json *object, bool has_base, ty_stack *stack,
                              ty_error *error)
{
    int choice;

    TY_TRY(ty_json_schema(object, SCHEMA, error));
    TY_TRY(ty_stack_text_read(object, "name", &stack->name, error));
    TY_TRY(check_name(object, stack, error));
    TY_TRY(ty_stack_text_read(object, "title", &stack->title, error));
    TY_TRY(ty_stack_text_read(object, "source", &stack->source, error));
    TY_TRY(ty_json_name(object, "provenance", provenance_name, TY_DATASHEET + 1, &choice, error));
    stack->provenance = (ty_provenance)choice;
    for (uint32_t i = 0; ty_stack_constant_at(i) != NULL; i++) {
        const ty_stack_constant *constant = ty_stack_constant_at(i);
        if (!has_base && constant->may_be_missing && !ty_json_has(object, constant->key))
            *ty_stack_value(stack, constant) = constant->usual;
        else if (is_said(object, constant->key, has_base))
            TY_TRY(read_constant(object, i, stack, error));
    }
    if (ty_json_has(object, "on"))
        TY_TRY(ty_stack_on_read(object, stack, error));
    for (uint32_t i = 0; i < choices_record.field_count; i++) {
        const json_record one = {&choice_fields[i], 1, sizeof *stack, false};
        if (is_said(object, choice_fields[i].key, has_base))
            TY_TRY(ty_record_read(object, &one, stack, NULL, error));
    }
    if (!has_base)
        stack->plans = ty_stack_all_plans();
    if (ty_json_has(object, "plans"))
        TY_TRY(ty_stack_plans_read(object, &stack->plans, error));
    for (uint32_t i = 0; i < ty_stack_lists_record.field_count; i++) {
        const json_record one = {&list_fields[i], 1, sizeof *stack, false};
        if (i > 0 || ty_json_has(object, "fitted")) /* it inherits only `fitted` from the base */
            ty_record_clear(&one, stack);
        TY_TRY(ty_record_read(object, &one, stack, NULL, error));
    }
    return ty_json_end(object, error);
}

void ty_stack_free(ty_stack *stack)
{
    if (stack == NULL)
        return;
    ty_free(stack->name);
    ty_free(stack->asked);
    ty_free(stack->why);
    ty_free(stack->title);
    ty_free(stack->source);
    ty_record_clear(&ty_stack_lists_record, stack);
    ty_stack_on_free(stack);
    for (uint32_t i = 0; stack->sources != NULL && ty_stack_constant_at(i) != NULL; i++)
        ty_free(stack->sources[i]);
    ty_free(stack->sources);
    ty_free(stack);
}

static ty_status new_stack(ty_stack **out, ty_error *error)
{
    ty_stack *stack = ty_alloc(1, sizeof *stack);
    uint32_t count = 0;

    while (ty_stack_constant_at(count) != NULL)
        count++;
    if (stack != NULL)
        stack->sources = ty_alloc(count, sizeof *stack->sources);
    if (stack == NULL || stack->sources == NULL) {
        ty_stack_free(stack);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    *out = stack;
    return TY_OK;
}

/* @return false without memory; NULL is copied as NULL. */
static bool copy_text(const char *text, char **out)
{
    *out = ty_strdup(text);
    return text == NULL || *out != NULL;
}

ty_status ty_stack_copy(const ty_stack *stack, ty_stack **out, ty_error *error)
{
    ty_stack *copy = NULL;
    char **sources;
    bool is_whole;

    TY_TRY(new_stack(&copy, error));
    sources = copy->sources;
    *copy = *stack;
    copy->sources = sources;
    copy->switch_count = 0;
    copy->switches = NULL;
    copy->fitted_count = 0;
    copy->judged_count = 0;
    copy->judged = ty_alloc(stack->judged_count, sizeof *copy->judged);
    copy->on_count = 0;
    copy->on = NULL;
    copy->fitted = ty_alloc(stack->fitted_count, sizeof *copy->fitted);
    is_whole = copy->fitted != NULL && copy->judged != NULL && ty_stack_on_copy(stack, copy);
    is_whole &= copy_text(stack->name, &copy->name);
    is_whole &= copy_text(stack->asked, &copy->asked);
    is_whole &= copy_text(stack->why, &copy->why);
    is_whole &= copy_text(stack->title, &copy->title);
    is_whole &= copy_text(stack->source, &copy->source);
    for (uint32_t i = 0; ty_stack_constant_at(i) != NULL && is_whole; i++)
        is_whole = copy_text(stack->sources[i], &copy->sources[i]);
    for (uint32_t i = 0; i < stack->fitted_count && is_whole; i++) {
        copy->fitted_count = i + 1;
        is_whole = copy_text(stack->fitted[i].source, &copy->fitted[i].source);
        is_whole &= copy_text(stack->fitted[i].model, &copy->fitted[i].model);
    }
    for (uint32_t i = 0; i < stack->judged_count && is_whole; i++) {
        copy->judged_count = i + 1;
        copy->judged[i] = stack->judged[i];
        is_whole = copy_text(stack->judged[i].device, &copy->judged[i].device);
    }
    if (!is_whole) {
        ty_stack_free(copy);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    *out = copy;
    return TY_OK;
}

ty_status ty_stack_from_json(const ty_json *object, ty_stack **out, ty_error *error)
{
    ty_stack *stack = NULL;
    ty_status status = TY_OK;

    TY_TRY(new_stack(&stack, error));
    status = read_members(object, false, stack, error);
    if (status == TY_OK)
        *out = stack;
    else
        ty_stack_free(stack);
    return status;
}

/* ---- The catalogue --------------------------------------------------------------------------- */

static bool ends_in_suffix(const char *text)
{
    size_t length = strlen(text), suffix = strlen(SUFFIX);
    return length > suffix && strcmp(text + length - suffix, SUFFIX) == 0;
}

ty_status ty_stack_names(char ***names, uint32_t *count, ty_error *error)
{
    return ty_data_names(FOLDER, SUFFIX, names, count, error);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static ty_status fail_unknown(const char *name, char **names, uint32_t count, ty_error *error)
{
    const char *close = ty_suggest(name, names, count, sizeof *names);

    if (close != NULL)
        return ty_fail(error, TY_EINVAL, "no stack or file '%.100s'; did you mean '%s'?", name,
                       close);
    return ty_fail(error, TY_EINVAL,
                   "no stack or file '%.100s', nor one called like it among the %u of the "
                   "catalogue (trainyard stack list)",
                   name, count);
}

static bool is_path(const char *text)
{
    return strcmp(text, "-") == 0 || strchr(text, '/') != NULL || ends_in_suffix(text);
}

/* `text` relative to the folder of `from`; NULL: unchanged. */
static ty_status path_beside(const char *from, const char *text, char **out, ty_error *error)
{
    const char *slash = from == NULL || text[0] == '/' ? NULL : strrchr(from, '/');
    ty_text path = {0};
    ty_status status;

    if (slash != NULL)
        ty_text_append(&path, from, (size_t)(slash - from) + 1);
    ty_text_add(&path, text);
    status = ty_text_take(&path, out, error);
    ty_text_clear(&path);
    return status;
}

/* The file of a stack, by any of its spellings. */
static ty_status find_file(const char *from, const char *text, char **path, ty_error *error)
{
    ty_status status;
    char **names = NULL, *file = NULL;
    uint32_t count = 0, i = 0;
    ty_text name = {0};
    bool is_file, is_whole = false;

    if (is_path(text))
        return path_beside(from, text, path, error);
    TY_CHECK(ty_stack_names(&names, &count, error), status, cleanup);
    while (i < count && strcmp(names[i], text) != 0)
        i++;
    TY_CHECK(path_beside(from, text, &file, error), status, cleanup);
    is_file = text[0] != '\0' && ty_file_exists(file);
    if (i == count && !is_file) { /* if no such file exists, "Megatron" is megatron */
        const char *meant = ty_name_find(text, names, count, sizeof *names, &is_whole);
        for (i = 0; i < count && !(is_whole && names[i] == meant);)
            i++;
    }
    if (i < count) {
        ty_free(file);
        file = NULL;
        ty_text_addf(&name, "%s" SUFFIX, names[i]);
        TY_CHECK(ty_text_take(&name, &file, error), status, cleanup);
        status = ty_data_path(FOLDER, file, path, error);
        goto cleanup;
    }
    if (!is_file) {
        status = fail_unknown(text, names, count, error);
        goto cleanup;
    }
    *path = file;
    file = NULL;

cleanup:
    ty_text_clear(&name);
    ty_free(file);
    ty_names_free(names, count);
    return status;
}

/* The chain of stacks being read; each is in `like` of the one before. */
typedef struct chain {
    const struct chain *before;
    char *path; /* canonical, so that a file has only one */
    int length;
} chain;

static ty_status read_file(const char *path, const chain *before, ty_stack **out, ty_error *error);

/* Reads the stack in `like` of `object` into *out, with the sources of its figures. */
static ty_status read_base(const ty_json *object, const char *path, const chain *self,
                           ty_stack **out, ty_error *error)
{
    const ty_json *member;
    const char *like;
    char *base_path = NULL, place[TY_JSON_PLACE_SIZE];
    ty_stack *base = NULL;
    ty_error detail = {0};
    ty_status status;

    TY_CHECK(ty_json_string(object, "like", &like, error), status, cleanup);
    TY_CHECK(ty_json_member(object, "like", &member, error), status, cleanup);
    ty_json_place(member, place);
    status = strcmp(like, "-") == 0
                 ? ty_fail(&detail, TY_EINVAL, "standard input is read only once")
                 : find_file(path, like, &base_path, &detail);
    if (status != TY_OK) {
        status = ty_fail(error, status == TY_EINVAL ? TY_EPARSE : status, "%s: %s", place,
                         detail.message);
        goto cleanup;
    }
    for (const chain *c = self; c != NULL; c = c->before) {
        char *known = realpath(base_path, NULL);
        bool is_same = known != NULL && strcmp(known, c->path) == 0;
        free(known);
        if (is_same || self->length >= MOST_LIKE) {
            status = ty_json_fail(member, error, "a stack that is not like this one in turn");
            goto cleanup;
        }
    }
    TY_CHECK(read_file(base_path, self, &base, error), status, cleanup);
    for (uint32_t i = 0; ty_stack_constant_at(i) != NULL; i++) {
        if (base->sources[i] == NULL)
            base->sources[i] = ty_strdup(base->source);
        TY_CHECK(ty_check_memory(base->sources[i] != NULL, error), status, cleanup);
    }
    for (uint32_t o = 0; o < base->on_count; o++)
        for (int i = 0; i < TY_STACK_DEVICE_CONSTANTS; i++) {
            char **source = &base->on[o].sources[i];
            if (*source == NULL)
                *source = ty_strdup(base->source);
            TY_CHECK(ty_check_memory(*source != NULL, error), status, cleanup);
        }
    *out = base;
    base = NULL;

cleanup:
    ty_stack_free(base);
    ty_free(base_path);
    return status;
}

static ty_status read_file(const char *path, const chain *before, ty_stack **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_stack *stack = NULL;
    chain self = {.before = before, .length = before == NULL ? 1 : before->length + 1};
    char *known = NULL;
    const ty_json *root;
    bool has_base;
    ty_status status;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    known = realpath(path, NULL); /* none for standard input */
    self.path = known != NULL ? known : (char *)path;
    root = ty_json_root(document);
    has_base = ty_json_has(root, "like");
    if (has_base)
        TY_CHECK(read_base(root, path, &self, &stack, error), status, cleanup);
    else
        TY_CHECK(new_stack(&stack, error), status, cleanup);
    TY_CHECK(read_members(root, has_base, stack, error), status, cleanup);
    *out = stack;
    stack = NULL;

cleanup:
    free(known);
    ty_stack_free(stack);
    ty_json_free(document);
    return status;
}

/* ---- Words ----------------------------------------------------------------------------------- */

/* "compute_scale=1.12" or "h100:product_share=0.7" of `length` letters.
 * @param source of the figure */
static ty_status change(ty_stack *stack, const char *word, size_t length, const char *source,
                        ty_error *error)
{
    const size_t key = strcspn(word, "=");
    const ty_stack_constant *constant;
    ty_text name = {0};
    double value, *place;
    char *end, **place_source, *asked = NULL;
    uint32_t i = 0;
    ty_status status;

    if (key >= length)
        return ty_fail(error, TY_EINVAL,
                       "stack: found '%.*s', expected a constant and its value, as in "
                       "compute_scale=1.12",
                       (int)(length < 60 ? length : 60), word);
    ty_text_append(&name, word, key);
    TY_CHECK(ty_text_check(&name, error), status, done);
    TY_CHECK(ty_stack_find(stack, key > 0 ? name.data : "", NULL, &constant, &place, error), status,
             done);
    value = strtod(word + key + 1, &end);
    if (end != word + length || end == word + key + 1 ||
        !(value >= constant->minimum && value <= constant->maximum)) {
        status =
            ty_fail(error, TY_EINVAL, "stack: found '%.*s', expected a number from %g to %g",
                    (int)(length < 60 ? length : 60), word, constant->minimum, constant->maximum);
        goto done;
    }
    TY_CHECK(ty_check_memory((asked = ty_strdup(source)) != NULL, error), status, done);
    while (ty_stack_constant_at(i) != constant)
        i++;
    place_source = &stack->sources[i];
    if (place == ty_stack_value(stack, constant))
        ty_stack_everywhere(stack, i);
    for (uint32_t o = 0; o < stack->on_count && i < TY_STACK_DEVICE_CONSTANTS; o++)
        if (place == &stack->on[o].values[i])
            place_source = &stack->on[o].sources[i];
    *place = value;
    ty_free(*place_source);
    *place_source = asked;
done:
    ty_text_clear(&name);
    return status;
}

/* Appends `more` to an owned text. */
static ty_status extend(char **text, const char *between, const char *more, ty_error *error)
{
    ty_text longer = {0};
    char *taken;

    ty_text_addf(&longer, "%s%s%s", *text, between, more);
    TY_TRY(ty_text_take(&longer, &taken, error));
    ty_free(*text);
    *text = taken;
    return TY_OK;
}

/* Constants, separated by blanks. */
static ty_status change_words(ty_stack *stack, const char *words, const char *source,
                              ty_error *error)
{
    for (words += strspn(words, " "); words[0] != '\0'; words += strspn(words, " ")) {
        const size_t length = strcspn(words, " ");
        TY_TRY(change(stack, words, length, source, error));
        words += length;
    }
    return TY_OK;
}

static const ty_stack_switch *switch_of(const ty_stack *stack, const char *word, size_t length)
{
    for (uint32_t i = 0; i < stack->switch_count; i++)
        if (strlen(stack->switches[i].name) == length &&
            memcmp(stack->switches[i].name, word, length) == 0)
            return &stack->switches[i];
    return NULL;
}

/* Constants and switches, after the name or the path and a blank. */
static ty_status change_all(ty_stack *stack, const char *words, ty_error *error)
{
    bool has_constants = false;

    words += strspn(words, " ");
    if (words[0] == '\0')
        return TY_OK;
    ty_record_clear(&judged_list, stack);
    TY_TRY(extend(&stack->title, ", ", words, error));
    for (; words[0] != '\0'; words += strspn(words, " ")) {
        const size_t length = strcspn(words, " ");
        const ty_stack_switch *s = switch_of(stack, words, length);
        has_constants = has_constants || s == NULL;
        TY_TRY(s != NULL ? change_words(stack, s->words, s->source, error)
                         : change(stack, words, length, "as asked", error));
        words += length;
    }
    return has_constants ? extend(&stack->name, "-", "changed", error) : TY_OK;
}

/* The end of the name or path in "a b=1 c=2": the blank before the first word with '='. */
static size_t name_length(const char *text)
{
    const char *equals = strchr(text, '=');
    size_t length = strlen(text);

    if (equals == NULL)
        return length;
    for (length = (size_t)(equals - text); length > 0 && text[length] != ' ';)
        length--;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    return length > 0 ? length : strlen(text);
}

ty_status ty_stack_open(const char *text, ty_stack **out, ty_error *error)
{
    const size_t length = ty_file_exists(text) ? strlen(text) : name_length(text);
    ty_text name = {0};
    char *path = NULL;
    ty_stack *stack = NULL;
    ty_status status;

    ty_text_append(&name, text, length);
    TY_CHECK(ty_text_check(&name, error), status, cleanup);
    TY_CHECK(find_file(NULL, length > 0 ? name.data : "", &path, error), status, cleanup);
    TY_CHECK(read_file(path, NULL, &stack, error), status, cleanup);
    TY_CHECK(change_all(stack, text + length, error), status, cleanup);
    TY_CHECK(ty_check_memory((stack->asked = ty_strdup(text)) != NULL, error), status, cleanup);
    *out = stack;
    stack = NULL;

cleanup:
    ty_stack_free(stack);
    ty_text_clear(&name);
    ty_free(path);
    return status;
}
