/* Values by name, and the renderer that fills templates from them. */
#include "launch.h"
#include "ty_base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Values ------------------------------------------------------------------------------ */

static launch_value *add_value(launch_values *v, const char *key)
{
    launch_value *grown = ty_resize(v->items, v->count + 1, sizeof *grown);

    if (grown == NULL) {
        v->failed = TY_ENOMEM;
        return NULL;
    }
    v->items = grown;
    grown[v->count] = (launch_value){.key = key};
    return &grown[v->count++];
}

void ty_launch_put_text(launch_values *v, const char *key, const char *text)
{
    launch_value *value = v != NULL && text != NULL ? add_value(v, key) : NULL;

    if (value != NULL && (value->text = ty_strdup(text)) == NULL) {
        v->count--;
        v->failed = TY_ENOMEM;
    }
}

void ty_launch_put(launch_values *v, const char *key, const char *format, ...)
{
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ty_launch_put_text(v, key, text);
}

void ty_launch_put_name(launch_values *v, const char *key, const char *name, int most)
{
    char shortened[600];
    ty_text text = {0};

    snprintf(shortened, sizeof shortened, "%.*s", most, name);
    ty_quote_visible(&text, shortened, "");
    ty_launch_put_taken(v, key, &text);
}

void ty_launch_put_taken(launch_values *v, const char *key, ty_text *text)
{
    if (text->failed == TY_OK)
        ty_launch_put_text(v, key, text->data != NULL ? text->data : "");
    else
        v->failed = text->failed;
    ty_text_clear(text);
}

void ty_launch_put_uint(launch_values *v, const char *key, uint64_t number)
{
    ty_launch_put(v, key, "%llu", (unsigned long long)number);
}

void ty_launch_put_number(launch_values *v, const char *key, double number)
{
    char text[32];

    ty_format_number(number, text);
    ty_launch_put_text(v, key, text);
}

void ty_launch_put_flag(launch_values *v, const char *key, bool is_set)
{
    ty_launch_put_text(v, key, is_set ? "1" : NULL);
}

static const launch_value *find(const launch_values *v, const char *key, size_t length)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (strncmp(v->items[i].key, key, length) == 0 && v->items[i].key[length] == '\0')
            return &v->items[i];
    return NULL;
}

launch_values *ty_launch_put_row(launch_values *v, const char *key)
{
    launch_value *list = v != NULL ? (launch_value *)find(v, key, strlen(key)) : NULL;
    launch_values *grown;

    if (v == NULL)
        return NULL;
    if (list == NULL)
        list = add_value(v, key);
    grown = list == NULL ? NULL : ty_resize(list->rows, list->row_count + 1, sizeof *grown);
    if (grown == NULL) {
        v->failed = TY_ENOMEM;
        return NULL;
    }
    list->rows = grown;
    grown[list->row_count] = (launch_values){0};
    return &grown[list->row_count++];
}

void ty_launch_values_clear(launch_values *v)
{
    for (uint32_t i = 0; i < v->count; i++) {
        for (uint32_t r = 0; r < v->items[i].row_count; r++)
            ty_launch_values_clear(&v->items[i].rows[r]);
        ty_free(v->items[i].rows);
        ty_free(v->items[i].text);
    }
    ty_free(v->items);
    *v = (launch_values){0};
}

static bool has_failed(const launch_values *v)
{
    bool failed = v->failed != TY_OK;

    for (uint32_t i = 0; i < v->count && !failed; i++)
        for (uint32_t r = 0; r < v->items[i].row_count && !failed; r++)
            failed = has_failed(&v->items[i].rows[r]);
    return failed;
}

/* ---- Filters ----------------------------------------------------------------------------- */

/* Counts the columns before the first word of the text's last line. */
static int indentation(const ty_text *text)
{
    const char *line = text->data != NULL ? text->data + text->length : "";

    while (text->data != NULL && line > text->data && line[-1] != '\n')
        line--;
    return (int)strspn(line, " ");
}

/* Escapes non-ASCII characters: readers differ in which of them end a line. */
static void put_yaml(ty_text *text, const char *value)
{
    ty_text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0';) {
        const int more = *c < 0x80 ? 0 : *c < 0xe0 ? 1 : *c < 0xf0 ? 2 : 3;
        uint32_t point = more == 0 ? *c : *c & (0x3fu >> more);
        bool is_valid = *c < 0x80 || (*c >= 0xc2 && *c < 0xf5);
        for (int i = 1; i <= more && is_valid; i++) {
            is_valid = (c[i] & 0xc0) == 0x80;
            point = point << 6 | (c[i] & 0x3f);
        }
        if (!is_valid) {
            text->failed = TY_EINVAL;
            return;
        }
        c += more + 1;
        if (point == '\n' || point == '\t')
            ty_text_add(text, point == '\n' ? "\\n" : "\\t");
        else if (point == '"' || point == '\\')
            ty_text_addf(text, "\\%c", (int)point);
        else if (point >= 0x20 && point < 0x7f)
            ty_text_addf(text, "%c", (int)point);
        else
            ty_text_addf(text,
                         point > 0xffff ? "\\U%08X"
                         : point > 0xff ? "\\u%04X"
                                        : "\\x%02X",
                         point);
    }
    ty_text_add(text, "\"");
}

/* Writes lines with spaces or a sign before all but the first, and without the last line's end. */
static void put_lines(ty_text *text, const char *value, int columns, const char *sign)
{
    for (bool is_first = true; *value != '\0'; is_first = false) {
        const size_t length = strcspn(value, "\n");
        if (!is_first)
            ty_text_addf(text, "\n%*s", length > 0 ? columns : 0, sign);
        ty_text_append(text, value, length);
        value += length + (value[length] == '\n');
    }
}

static void put_comment(ty_text *text, const char *value)
{
    ty_text_add(text, "# ");
    put_lines(text, value, 2, "# ");
}

static void put_block(ty_text *text, const char *value)
{
    const size_t length = strlen(value);
    bool is_literal = length > 0 && value[0] != ' ' && value[0] != '\n' && value[length - 1] != ' ';

    for (size_t i = 0; i < length && is_literal; i++)
        is_literal = value[i] == '\n' || (value[i] >= 0x20 && value[i] < 0x7f &&
                                          (value[i] != ' ' || value[i + 1] != '\n'));
    if (!is_literal) {
        put_yaml(text, value);
        return;
    }
    ty_text_add(text, value[length - 1] != '\n'                 ? "|-"
                      : length > 1 && value[length - 2] == '\n' ? "|+"
                                                                : "|");
    ty_text_addf(text, "\n%*s", indentation(text) + 2, "");
    put_lines(text, value, indentation(text), "");
}

static void put_indented(ty_text *text, const char *value)
{
    put_lines(text, value, indentation(text), "");
}

/* TOML distinguishes integers from floats. */
static void put_float(ty_text *text, const char *value)
{
    ty_text_addf(text, "%s%s", value, strpbrk(value, ".e") != NULL ? "" : ".0");
}

static const struct filter {
    const char *name;
    void (*put)(ty_text *text, const char *value);
} filters[] = {
    {"", ty_text_add},        {"shell", ty_quote_shell}, {"yaml", put_yaml},   {"block", put_block},
    {"indent", put_indented}, {"comment", put_comment},  {"float", put_float},
};

/* ---- Rendering --------------------------------------------------------------------------- */

/* Scopes in which names are looked up: the rows of the open blocks, innermost first. */
typedef struct scope {
    const launch_values *values;
    const struct scope *outer;
} scope;

typedef struct renderer {
    const char *owner, *start; /* of the template */
    ty_text *text;
    ty_error *error;
    ty_status status;
    int depth; /* of open blocks */
} renderer;

static void fail(renderer *r, const char *what, const char *at, size_t length)
{
    if (r->status == TY_OK)
        r->status = ty_fail(r->error, TY_EINVAL, "template of %s: %s '%.*s'", r->owner, what,
                            (int)length, at);
}

static const launch_value *look_up(const scope *s, const char *key, size_t length)
{
    const launch_value *value = NULL;

    for (; s != NULL && value == NULL; s = s->outer)
        value = find(s->values, key, length);
    return value;
}

static const char *template_of(const char *owner, const char *name, size_t length)
{
    const char *shared = NULL;
    char own[128];

    snprintf(own, sizeof own, "%s.%.*s", owner, (int)length, name);
    for (const launch_template *t = ty_launch_templates; t->name != NULL; t++) {
        if (strcmp(t->name, own) == 0)
            return t->text;
        if (strncmp(t->name, name, length) == 0 && t->name[length] == '\0')
            shared = t->text;
    }
    return shared;
}

static bool holds(const scope *s, const char *condition, size_t length)
{
    const bool is_opposite = condition[0] == '!';
    const char *key = condition + is_opposite, *end = condition + length,
               *word = memchr(condition, '=', length);
    const launch_value *value = look_up(s, key, (size_t)((word != NULL ? word : end) - key));
    bool is_so = false;

    if (value != NULL && value->text == NULL)
        is_so = value->row_count > 0;
    else if (value != NULL && word != NULL)
        is_so = strlen(value->text) == (size_t)(end - word - 1) &&
                memcmp(value->text, word + 1, (size_t)(end - word - 1)) == 0;
    else if (value != NULL)
        is_so = value->text[0] != '\0' && strcmp(value->text, "0") != 0;
    return is_so != is_opposite;
}

static const char *render(renderer *r, const scope *s, const char *at, bool is_shown);

/* {{name|filter}} or {{>name|filter}}. */
static void put_value(renderer *r, const scope *s, const char *tag, size_t length, bool is_line)
{
    const bool is_template = tag[0] == '>';
    const char *bar = memchr(tag, '|', length), *name = tag + is_template,
               *filter = bar != NULL ? bar + 1 : "";
    const size_t name_length = (size_t)((bar != NULL ? bar : tag + length) - name);
    const launch_value *value = is_template ? NULL : look_up(s, name, name_length);
    const size_t filter_length = bar != NULL ? (size_t)(tag + length - filter) : 0;
    const char *included = is_template ? template_of(r->owner, name, name_length) : NULL;
    ty_text made = {0};
    size_t f = 0;

    while (f < sizeof filters / sizeof filters[0] &&
           (strlen(filters[f].name) != filter_length ||
            memcmp(filters[f].name, filter, filter_length) != 0))
        f++;
    if (f == sizeof filters / sizeof filters[0] ||
        (included == NULL && (value == NULL || value->text == NULL))) {
        fail(r, "found no value, template or filter for", tag, length);
        return;
    }
    if (included != NULL) {
        const renderer outer = *r;
        r->text = &made;
        r->start = included;
        (void)render(r, s, included, true);
        r->text = outer.text;
        r->start = outer.start;
        if (!is_line && filters[f].put != put_block && made.length > 0 &&
            made.data[made.length - 1] == '\n')
            made.data[--made.length] = '\0';
        if (made.failed != TY_OK)
            outer.text->failed = made.failed;
    }
    filters[f].put(r->text, value != NULL ? value->text : made.data != NULL ? made.data : "");
    ty_text_clear(&made);
}

/* Renders up to the end of the block that `at` is in. @return the text after its closing tag */
static const char *render(renderer *r, const scope *s, const char *at, bool is_shown)
{
    while (r->status == TY_OK) {
        const char *tag = strstr(at, "{{"), *end = tag != NULL ? strstr(tag, "}}") : NULL,
                   *line = tag, *next;
        bool is_line;
        if (end == NULL) {
            ty_text_add(r->text, is_shown ? at : "");
            return at + strlen(at);
        }
        next = end + 2;
        while (line > at && line[-1] == ' ')
            line--;
        tag += 2;
        is_line =
            *next == '\n' && (line == r->start || line[-1] == '\n') &&
            (tag[0] == '#' || tag[0] == '/' ||
             (tag[0] == '>' && line == tag - 2 && memchr(tag, '|', (size_t)(end - tag)) == NULL));
        if (is_shown)
            ty_text_append(r->text, at, (size_t)((is_line ? line : tag - 2) - at));
        at = next + is_line;
        if (tag[0] == '/') {
            r->depth--;
            return at;
        }
        r->depth += tag[0] == '#';
        if (strncmp(tag, "#if ", 4) == 0) {
            at = render(r, s, at, is_shown && holds(s, tag + 4, (size_t)(end - tag - 4)));
        } else if (strncmp(tag, "#each ", 6) == 0) {
            const launch_value *list = look_up(s, tag + 6, (size_t)(end - tag - 6));
            const uint32_t count = is_shown && list != NULL ? list->row_count : 0;
            for (uint32_t i = 0; i < count; i++, r->depth++)
                (void)render(r, &(scope){&list->rows[i], s}, at, true);
            at = render(r, s, at, false);
        } else if (is_shown) {
            put_value(r, s, tag, (size_t)(end - tag), is_line);
        }
    }
    return at;
}

static ty_status render_all(const char *owner, const char *template, const launch_values *values,
                            ty_text *text, ty_error *error)
{
    renderer r = {.owner = owner, .start = template, .text = text, .error = error, .status = TY_OK};

    if (has_failed(values))
        return ty_fail(error, TY_ENOMEM, "out of memory");
    (void)render(&r, &(scope){values, NULL}, template, true);
    if (r.depth != 0)
        fail(&r, "blocks do not match in", template, strcspn(template, "\n"));
    return r.status != TY_OK ? r.status : ty_text_check(text, error);
}

ty_status ty_launch_render_text(const char *template, const launch_values *values, ty_text *text,
                                ty_error *error)
{
    return render_all("a table", template, values, text, error);
}

ty_status ty_launch_render(const char *owner, const char *name, const launch_values *values,
                           ty_text *text, ty_error *error)
{
    const char *template = template_of(owner, name, strlen(name));

    if (template == NULL)
        return ty_fail(error, TY_EINVAL, "--to %s: found no template of %s", owner, name);
    return render_all(owner, template, values, text, error);
}

/* ---- Files and refusals ------------------------------------------------------------------ */

ty_status ty_launch_add(launch *l, const char *name, ty_text *text, ty_error *error)
{
    ty_status status = TY_OK;
    ty_launch_files *files = l->files;
    ty_launch_file file = {0};
    ty_launch_file *grown;

    file.length = text->length;
    file.is_program = file.length > 2 && memcmp(text->data, "#!", 2) == 0;
    TY_CHECK(ty_text_take(text, &file.bytes, error), status, cleanup);
    file.name = ty_strdup(name);
    grown = ty_resize(files->files, files->count + 1, sizeof *grown);
    if (grown != NULL)
        files->files = grown;
    TY_CHECK(ty_check_memory(file.name != NULL && grown != NULL, error), status, cleanup);
    grown[files->count++] = file;
    file = (ty_launch_file){0};

cleanup:
    ty_text_clear(text);
    ty_free(file.bytes);
    ty_free(file.name);
    return status;
}

ty_status ty_launch_refuse(ty_error *error, const char *target, const char *format, ...)
{
    char reason[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return ty_fail(error, TY_EUNSUPPORTED, "--to %s: %s", target, reason);
}
