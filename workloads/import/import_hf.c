/* Hugging Face config.json, and diffusers': selects the family in families/ for a configuration and
 * runs its steps. Ignores keys unrelated to sizes, and notes other unknown keys. */
#include "steps.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define FOLDER "workloads/families"
#define FAMILY_SCHEMA "trainyard.family/1"
enum { LONGEST_TYPE = 64 };

typedef struct config {
    ty_import_source *source;
    ty_error *error;
    ty_json_document *common, *family; /* families/common.json, and the family's file */
    const ty_json *outer;              /* the entire file */
    const ty_json *root;               /* its language model part */
    const char *name;                  /* name of the family */
    const ty_json *steps;
    bool reads_whole_file;
} config;

/* ---- Files of families ----------------------------------------------------------------------- */

typedef bool (*is_type)(const char *asked, const char *type);

static bool is_same(const char *asked, const char *type)
{
    return strcmp(asked, type) == 0;
}

/* "Qwen3MoeForCausalLM" and "qwen3_moe": the same letters and digits before the purpose of the
 * class.
 */
static bool is_class_of(const char *class_name, const char *type)
{
    static const char *const endings[] = {"For", "Model", "LMHead", "PreTrained"};
    size_t length = strlen(class_name), at = 0;

    for (size_t i = 0; i < COUNT(endings); i++) {
        const char *ending = strstr(class_name, endings[i]);
        if (ending != NULL && (size_t)(ending - class_name) < length)
            length = (size_t)(ending - class_name);
    }
    for (; *type != '\0'; type++) {
        if (!isalnum((unsigned char)*type))
            continue;
        if (at == length || tolower((unsigned char)class_name[at]) != tolower((unsigned char)*type))
            return false;
        at++;
    }
    return at == length && at > 0;
}

/* The i-th type of a family: its name, then types of the same shapes; NULL: no more. */
static ty_status type_of(const config *c, const ty_json *family, size_t i, const char **out)
{
    const ty_json *list;
    ty_status status = TY_OK;

    *out = NULL;
    if (i == 0)
        return ty_json_string(family, "name", out, c->error);
    if (!ty_json_has(family, "types"))
        return TY_OK;
    TY_TRY(ty_json_array(family, "types", 1, 100, &list, c->error));
    if (i <= ty_json_size(list))
        status = ty_json_as_string(ty_json_at(list, i - 1), out, c->error);
    return status;
}

/* The family with the requested type, NULL if there is none; appends all types to `types`. */
static ty_status search(config *c, const char *asked, is_type is_it, ty_json_document **out,
                        ty_text *types)
{
    char **names = NULL;
    uint32_t count = 0;
    ty_json_document *document = NULL;
    const char *type = "";
    ty_status status;

    TY_CHECK(ty_data_names(FOLDER, ".json", &names, &count, c->error), status, done);
    for (uint32_t f = 0; f < count && *out == NULL; f++) {
        if (strcmp(names[f], "common") == 0)
            continue;
        TY_CHECK(ty_steps_load(FOLDER, names[f], &document, c->error), status, done);
        for (size_t i = 0; *out == NULL; i++) {
            TY_CHECK(type_of(c, ty_json_root(document), i, &type), status, done);
            if (type == NULL)
                break;
            if (types != NULL)
                ty_text_append(types, type, strlen(type) + 1);
            else if (is_it(asked, type)) {
                *out = document;
                document = NULL; /* ownership moved */
            }
        }
        ty_json_free(document);
        document = NULL;
    }
done:
    ty_json_free(document);
    ty_names_free(names, count);
    return status;
}

/* Finds the file named after the type, else the family that lists it. A part may have the model's
 * type plus "_text". */
static ty_status find_type(config *c, const char *type, ty_json_document **out)
{
    const size_t length = strlen(type);
    char plain[LONGEST_TYPE], *path = NULL, file[LONGEST_TYPE + 8];
    ty_status status = TY_OK;

    if (length == 0 || length >= LONGEST_TYPE || strcmp(type, "common") == 0 ||
        strspn(type, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != length)
        return TY_OK;
    snprintf(file, sizeof file, "%s.json", type);
    if (ty_data_path(FOLDER, file, &path, NULL) == TY_ENOMEM)
        status = ty_fail(c->error, TY_ENOMEM, "%s: out of memory", c->source->path);
    else
        status = path != NULL ? ty_steps_load(FOLDER, type, out, c->error)
                              : search(c, type, is_same, out, NULL);
    if (status != TY_OK || *out != NULL || length <= 5 || strcmp(type + length - 5, "_text") != 0)
        goto done;
    memcpy(plain, type, length - 5);
    plain[length - 5] = '\0';
    status = find_type(c, plain, out);
done:
    ty_free(path);
    return status;
}

static ty_status take(config *c, ty_json_document *document)
{
    const ty_json *family = ty_json_root(document);

    ty_json_free(c->family);
    c->family = document;
    TY_TRY(ty_json_schema(family, FAMILY_SCHEMA, c->error));
    TY_TRY(ty_json_string(family, "name", &c->name, c->error));
    TY_TRY(ty_json_array(family, "steps", 1, 1000, &c->steps, c->error));
    c->reads_whole_file = false;
    if (ty_json_has(family, "reads_whole_file"))
        TY_TRY(ty_json_bool(family, "reads_whole_file", &c->reads_whole_file, c->error));
    ty_json_ignore(family, "types");
    ty_json_ignore(family, "source");
    return ty_json_end(family, c->error);
}

/* ---- Which family ---------------------------------------------------------------------------- */

static ty_status fail_type(config *c, const ty_json *object, const char *key)
{
    ty_json_document *none = NULL;
    ty_text types = {0};
    const char **names = NULL;
    size_t count = 0, i = 0;
    int index;
    ty_status status;

    TY_CHECK(search(c, "", is_same, &none, &types), status, done);
    TY_CHECK(ty_text_check(&types, c->error), status, done);
    for (size_t at = 0; at < types.length; at++)
        count += types.data[at] == '\0';
    names = ty_alloc(count, sizeof *names);
    TY_CHECK(ty_check_memory(names != NULL, c->error), status, done);
    for (size_t at = 0; i < count; at += strlen(types.data + at) + 1)
        names[i++] = types.data + at;
    status = ty_json_enum(object, key, names, count, &index, c->error);
done:
    ty_text_clear(&types);
    ty_free(names);
    return status;
}

static ty_status take_type(config *c, const ty_json *object, const char *key)
{
    ty_json_document *found = NULL;
    const char *type;

    TY_TRY(ty_json_string(object, key, &type, c->error));
    TY_TRY(find_type(c, type, &found));
    return found != NULL ? take(c, found) : fail_type(c, object, key);
}

/* By the first class of `architectures`; does not guess for an unknown class. */
static ty_status take_architecture(config *c)
{
    ty_json_document *found = NULL;
    const ty_json *list;
    const char *name;

    TY_TRY(ty_json_array(c->root, "architectures", 1, 100, &list, c->error));
    TY_TRY(ty_json_as_string(ty_json_at(list, 0), &name, c->error));
    TY_TRY(search(c, name, is_class_of, &found, NULL));
    if (found == NULL)
        return ty_json_fail(ty_json_at(list, 0), c->error,
                            "a \"model_type\", or a class of a family that is known");
    TY_TRY(take(c, found));
    ty_import_note(c->source, "model_type is missing; taken for %s because of %s", c->name, name);
    return TY_OK;
}

/* By a distinctive key, in the order of common.json. */
static ty_status take_by_key(config *c)
{
    const ty_json *table;
    ty_json_document *found = NULL;
    const char *name;

    TY_TRY(ty_json_object(ty_json_root(c->common), "known_by", &table, c->error));
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const char *key = ty_json_key(ty_json_at(table, i));
        if (!ty_json_has(c->root, key))
            continue;
        TY_TRY(ty_json_string(table, key, &name, c->error));
        TY_TRY(ty_steps_load(FOLDER, name, &found, c->error));
        TY_TRY(take(c, found));
        ty_import_note(c->source, "model_type is missing; taken for %s because of %s", name, key);
        return TY_OK;
    }
    return fail_type(c, c->root, "model_type");
}

/* The language model part of a file with several; families that read the entire file have none. */
static ty_status find_root(config *c)
{
    const ty_json *parts;
    ty_json_document *found = NULL;
    const char *type = "", *key;
    bool is_whole = false;

    if (ty_json_has(c->outer, "model_type"))
        TY_TRY(ty_json_string(c->outer, "model_type", &type, c->error));
    TY_TRY(ty_json_array(ty_json_root(c->common), "text_parts", 1, 100, &parts, c->error));
    for (size_t i = 0; i < ty_json_size(parts); i++) {
        TY_TRY(ty_json_as_string(ty_json_at(parts, i), &key, c->error));
        if (!ty_json_has(c->outer, key))
            continue;
        TY_TRY(find_type(c, type, &found));
        is_whole = found != NULL && ty_json_has(ty_json_root(found), "reads_whole_file");
        ty_json_free(found);
        return is_whole ? TY_OK : ty_json_object(c->outer, key, &c->root, c->error);
    }
    return TY_OK;
}

static ty_status find_family(config *c)
{
    static const char *const keys[] = {"model_type", "_class_name"};

    c->root = c->outer;
    TY_TRY(find_root(c));
    if (c->root != c->outer && !ty_json_has(c->root, "model_type") &&
        ty_json_has(c->outer, "model_type")) /* the file's type implies that of its part */
        return take_type(c, c->outer, "model_type");
    for (size_t i = 0; i < COUNT(keys); i++)
        if (ty_json_has(c->root, keys[i]))
            return take_type(c, c->root, keys[i]);
    return ty_json_has(c->root, "architectures") ? take_architecture(c) : take_by_key(c);
}

/* ---- Unread keys ----------------------------------------------------------------------------- */

static ty_status list_unread(const config *c, const ty_json *object, ty_text *unknown)
{
    const ty_json *ignored;
    const char *key;

    TY_TRY(ty_json_array(ty_json_root(c->common), "ignored", 1, 1000, &ignored, c->error));
    for (size_t i = 0; i < ty_json_size(ignored); i++) {
        TY_TRY(ty_json_as_string(ty_json_at(ignored, i), &key, c->error));
        ty_json_ignore(object, key);
    }
    if (ty_json_has(object, "quantization_config"))
        ty_import_note(c->source, "quantization_config: sizes are those before quantization");
    ty_json_ignore(object, "quantization_config");
    while ((key = ty_json_next_unread(object)) != NULL)
        ty_text_addf(unknown, "%s%.60s", unknown->length > 0 ? ", " : "", key);
    return ty_text_check(unknown, c->error);
}

static ty_status note_unread(const config *c)
{
    ty_text unknown = {0};
    ty_status status = list_unread(c, c->root, &unknown);

    if (status == TY_OK && c->outer != c->root)
        status = list_unread(c, c->outer, &unknown);
    if (status == TY_OK && unknown.length > 0)
        ty_import_note(c->source, "keys that are not known, ignored: %s", unknown.data);
    ty_text_clear(&unknown);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool has_any(const ty_json *object, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ty_json_has(object, names[i]))
            return true;
    return false;
}

static bool probe(ty_import_source *source)
{
    static const char *const types[] = {"model_type", "architectures", "_class_name"};
    static const char *const blocks[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    static const char *const features[] = {"hidden_size", "n_embd", "d_model", "n_embed"};
    const ty_json *root = ty_import_json(source);

    return root != NULL && ty_json_is_object(root) && !ty_json_has(root, "schema") &&
           (has_any(root, types, COUNT(types)) ||
            (has_any(root, blocks, COUNT(blocks)) && has_any(root, features, COUNT(features))));
}

/* "rope_theta" or GPT-NeoX's "rotary_emb_base", since Transformers 5 in "rope_parameters"; 0 if
 * absent or no integer. */
static uint64_t rotary_base_of(const config *c)
{
    static const char *const names[] = {"rope_theta", "rotary_emb_base"};
    const ty_json *inside = NULL;

    if (ty_json_has(c->root, "rope_parameters") &&
        ty_json_object(c->root, "rope_parameters", &inside, NULL) != TY_OK)
        return 0;

    for (size_t i = 0; i < 2 * COUNT(names); i++) {
        const ty_json *object = i < COUNT(names) ? c->root : inside;
        const char *name = names[i % COUNT(names)];
        double base;
        if (object != NULL && ty_json_has(object, name) &&
            ty_json_number(object, name, 1, 1e15, &base, NULL) == TY_OK && base == floor(base))
            return (uint64_t)base;
    }
    return 0;
}

/* Runs the steps of a language model, then applies the user's values and the common steps. */
static ty_status read_language_model(config *c, steps_reader *r, ty_transformer *t)
{
    const uint64_t asked = ty_import_vocabulary(c->source);
    ty_status status = TY_OK;

    TY_TRY(ty_steps_run_part(r, "language_checks"));
    if (asked > 0)
        TY_TRY(ty_steps_set(r, "vocabulary", (double)asked));
    TY_TRY(ty_steps_transformer(r, t));
    if (t->is_fused)
        ty_import_note(c->source, "fused attention assumed: scores are not kept");
    if (ty_json_has(c->outer, "vision_config"))
        status = ty_steps_run_part(r, "image_before_text");
    return status;
}

static ty_status run(config *c, steps_reader *r, ty_workload **out)
{
    ty_import_training training = {0};
    ty_transformer t = {0};
    char whole[TY_JSON_PLACE_SIZE];
    uint64_t base;

    TY_TRY(ty_steps_start(r, c->root));
    TY_TRY(ty_json_object(ty_json_root(c->common), "parts", &r->parts, c->error));
    TY_TRY(ty_steps_set(r, "is_part", c->root != c->outer));
    TY_TRY(ty_steps_set(r, "asked_sequence", (double)c->source->options->sequence));
    TY_TRY(ty_steps_run(r, c->steps));
    if (!c->reads_whole_file)
        TY_TRY(read_language_model(c, r, &t));
    base = rotary_base_of(c);
    TY_TRY(note_unread(c));
    if (r->builder != NULL) {
        ty_builder *builder = r->builder;
        r->builder = NULL; /* finishing frees it */
        return ty_import_finish_model(c->source, builder, &training, out);
    }
    ty_json_place(c->root, whole);
    TY_TRY(ty_import_transformer(c->source, &t, &training, whole, out));
    (*out)->rotary_base = t.positions > 0 ? 0 : base;
    return TY_OK;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    config c = {.source = source, .outer = ty_import_json(source), .error = source->error};
    steps_reader r = {.source = source, .error = source->error, .whole = c.outer};
    ty_status status;

    TY_CHECK(ty_steps_load(FOLDER, "common", &c.common, source->error), status, done);
    TY_CHECK(find_family(&c), status, done);
    status = run(&c, &r, out);
done:
    ty_steps_end(&r);
    ty_json_free(c.family);
    ty_json_free(c.common);
    return status;
}

const ty_import_format ty_import_hf = {"Hugging Face config.json", probe, read, false};
