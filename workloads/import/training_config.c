/* Configuration files of training programs. Each kind is a file in training/: its identifying keys,
 * and the steps that read its layout and, if any, its model. The model is a zoo entry by name, one
 * given with the file, or sizes in the file. */
#include "ty_training_config.h"

#include "ty_plan.h"

#include "import.h"
#include "steps.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MOST_COUNT (1u << 30) /* bound on samples, devices and ranks, and on their products */
#define MOST_NAMED 12         /* keys in a note */
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

typedef struct reading {
    const char *path, *model;
    uint64_t vocabulary;
    bool is_arguments; /* Megatron-LM's: missing options are off */
    training_pairs pairs;
    ty_training_config *out;
    ty_error *error;
    ty_json_document *kinds; /* training/kinds.json */
    const ty_json *kind;     /* file of the kind, owned by `out` */
    const char *name;        /* of that file */
    steps_reader steps;
} reading;

static ty_status note(const reading *r, const char *text)
{
    return ty_import_report_add(&r->out->report, text, r->error);
}

/* Moves an importer's notes to the report. */
static ty_status take_notes(const reading *r, ty_import_report *report, ty_status status)
{
    for (uint32_t i = 0; i < report->note_count && status == TY_OK; i++)
        status = note(r, report->notes[i]);
    ty_import_report_clear(report);
    return status;
}

/* Imports the file itself as the model. */
static ty_status import_file(const reading *r)
{
    const ty_import_options options = {.model = r->model,
                                       .open_model = ty_workload_open,
                                       .vocabulary = r->vocabulary,
                                       .settings = &r->pairs};
    ty_import_report report = {0};
    const ty_status status =
        ty_workload_import(r->path, &options, &r->out->workload, &report, r->error);

    return take_notes(r, &report, status);
}

/* ---- Models ---------------------------------------------------------------------------------- */

/* Opens a model by name or file, with the configuration's sequence and batch. */
static ty_status open_model(const reading *r, const char *name, uint32_t sequence)
{
    ty_text line = {0};
    ty_status status;

    ty_text_addf(&line, "%s", name);
    if (sequence > 0)
        ty_text_addf(&line, " sequence=%u", sequence);
    if (r->out->global_batch > 0)
        ty_text_addf(&line, " batch=%u", r->out->global_batch);
    if (r->vocabulary > 0)
        ty_text_addf(&line, " vocabulary=%llu", (unsigned long long)r->vocabulary);
    TY_CHECK(ty_text_check(&line, r->error), status, cleanup);
    status = ty_workload_open(line.data, &r->out->workload, r->error);

cleanup:
    ty_text_clear(&line);
    return status;
}

static ty_status need_model(const reading *r, uint32_t sequence)
{
    if (r->model == NULL)
        return ty_fail(r->error, TY_EINVAL,
                       "%.200s: found %s, which has no model in it, expected one beside it "
                       "(--workload)",
                       r->path, r->out->format);
    return open_model(r, r->model, sequence);
}

/* ---- Names of models ------------------------------------------------------------------------- */

/* "llama3-8b" is a model of the zoo; so is "nemo.collections.llm.gpt.model.llama.Llama3Config8B",
 * the name of a class. */
static ty_status find_zoo_name(const reading *r, const char *name, const char **out)
{
    const char *config = strstr(name, "Config"), *dot = strrchr(name, '.');
    const ty_json *models;
    char plain[80];

    if (config != NULL && dot != NULL && dot < config)
        name = dot + 1;
    if (config != NULL)
        snprintf(plain, sizeof plain, "%.*s-%s", (int)(config - name), name,
                 config + strlen("Config"));
    else
        snprintf(plain, sizeof plain, "%s", name);
    for (char *at = plain; config != NULL && *at != '\0'; at++)
        *at = (char)(*at == '_' ? '-' : *at);
    TY_TRY(ty_json_object(ty_json_root(r->kinds), "models", &models, r->error));
    for (size_t i = 0; i < ty_json_size(models); i++) {
        const char *known = ty_json_key(ty_json_at(models, i));
        if (strcasecmp(known, plain) == 0)
            return ty_json_string(models, known, out, r->error);
    }
    return TY_OK;
}

/* Opens a model by the values of keys, joined by '-'. Only the last key is required. */
static ty_status open_named(const reading *r, const ty_json *names, uint32_t sequence)
{
    const training_pair *p = NULL;
    const ty_json *keys;
    const char *key, *expected, *zoo = NULL;
    ty_text name = {0};
    ty_status status;

    TY_CHECK(ty_json_array(names, "keys", 1, 8, &keys, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(keys); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(keys, i), &key, r->error), status, done);
        p = ty_steps_find_setting(&r->steps, key);
        ty_text_addf(&name, "%s%s", i > 0 ? "-" : "", p != NULL ? p->value : "");
    }
    TY_CHECK(ty_text_check(&name, r->error), status, done);
    if (p == NULL) {
        status = need_model(r, sequence);
        goto done;
    }
    TY_CHECK(ty_json_string(names, "expected", &expected, r->error), status, done);
    TY_CHECK(find_zoo_name(r, name.data, &zoo), status, done);
    status =
        zoo != NULL ? open_model(r, zoo, sequence) : ty_steps_fail_pair(&r->steps, p, expected);
done:
    ty_text_clear(&name);
    return status;
}

ty_status ty_training_flavor(const char *zoo, char family[TY_FLAVOR_SIZE],
                             char flavor[TY_FLAVOR_SIZE], ty_error *error)
{
    ty_json_document *kinds = NULL;
    const ty_json *table, *pair;
    const char *text;
    ty_status status;

    family[0] = flavor[0] = '\0';
    TY_CHECK(ty_steps_load(TY_TRAINING_FOLDER, "kinds", &kinds, error), status, done);
    TY_CHECK(ty_json_object(ty_json_root(kinds), "torchtitan", &table, error), status, done);
    if (!ty_json_has(table, zoo))
        goto done;
    TY_CHECK(ty_json_array(table, zoo, 2, 2, &pair, error), status, done);
    for (size_t i = 0; i < 2; i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(pair, i), &text, error), status, done);
        snprintf(i == 0 ? family : flavor, TY_FLAVOR_SIZE, "%s", text);
    }
done:
    ty_json_free(kinds);
    return status;
}

/* ---- Results of the steps -------------------------------------------------------------------- */

typedef enum member_kind { UINT32, UINT64, NUMBER, FLAG, TEXT } member_kind;

#define MEMBER(kind, name)                                                                         \
    {                                                                                              \
#name, kind, offsetof(ty_training_config, name)                                            \
    }
/* clang-format off */
static const struct {
    const char *name;
    member_kind kind;
    size_t offset;
} members[] = {
    MEMBER(UINT32, global_batch), MEMBER(UINT32, micro_batch), MEMBER(UINT32, accumulation),
    MEMBER(UINT32, tensor), MEMBER(UINT32, pipeline), MEMBER(UINT32, context),
    MEMBER(UINT32, expert), MEMBER(UINT32, virtual_stages), MEMBER(UINT32, data),
    MEMBER(UINT32, devices), MEMBER(UINT32, zero), MEMBER(UINT32, segment),
    MEMBER(NUMBER, share), MEMBER(NUMBER, device_share),
    MEMBER(FLAG, has_fixed_ranks), MEMBER(FLAG, has_zero), MEMBER(FLAG, has_sequence),
    MEMBER(FLAG, is_along_sequence), MEMBER(FLAG, has_overlap), MEMBER(FLAG, is_overlapped),
    MEMBER(UINT64, bucket_elements),
    MEMBER(TEXT, precision), MEMBER(TEXT, recompute), MEMBER(TEXT, schedule),
    MEMBER(TEXT, compression), MEMBER(TEXT, stack),
};
/* clang-format on */

static void take_members(const reading *r)
{
    for (size_t i = 0; i < COUNT(members); i++) {
        void *at = (char *)r->out + members[i].offset;
        const double value = ty_steps_number_of(&r->steps, members[i].name);
        const char *text = ty_steps_text_of(&r->steps, members[i].name);
        if (members[i].kind == UINT32)
            *(uint32_t *)at = (uint32_t)fmin(fmax(value, 0), UINT32_MAX);
        else if (members[i].kind == UINT64)
            *(uint64_t *)at = (uint64_t)fmin(fmax(value, 0), 1e18);
        else if (members[i].kind == NUMBER)
            *(double *)at = value;
        else if (members[i].kind == FLAG)
            *(bool *)at = value != 0;
        else if (text != NULL)
            *(const char **)at = text;
    }
}

/* ---- A kind ---------------------------------------------------------------------------------- */

/* Whether the file has all keys of one of the lists. */
static ty_status is_known_by(const reading *r, const ty_json *kind, bool *out)
{
    const ty_json *lists;
    const char *key;

    *out = false;
    TY_TRY(ty_json_array(kind, "known_by", 1, 8, &lists, r->error));
    for (size_t i = 0; i < ty_json_size(lists) && !*out; i++) {
        const ty_json *keys = ty_json_at(lists, i);
        *out = true;
        for (size_t k = 0; k < ty_json_size(keys); k++) {
            TY_TRY(ty_json_as_string(ty_json_at(keys, k), &key, r->error));
            if (ty_steps_find_setting(&(steps_reader){.pairs = (training_pairs *)&r->pairs}, key) ==
                NULL)
                *out = false;
        }
    }
    return TY_OK;
}

/* The first kind in training/kinds.json that matches the file. */
static ty_status find_kind(reading *r)
{
    const ty_json *names;
    ty_json_document *document = NULL;
    bool is_it = false;
    ty_status status;

    TY_CHECK(ty_steps_load(TY_TRAINING_FOLDER, "kinds", &r->kinds, r->error), status, done);
    TY_CHECK(ty_json_array(ty_json_root(r->kinds), "kinds", 1, 100, &names, r->error), status,
             done);
    for (size_t i = 0; i < ty_json_size(names) && !is_it; i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(names, i), &r->name, r->error), status, done);
        ty_json_free(document);
        document = NULL;
        TY_CHECK(ty_steps_load(TY_TRAINING_FOLDER, r->name, &document, r->error), status, done);
        TY_CHECK(is_known_by(r, ty_json_root(document), &is_it), status, done);
    }
    if (!is_it) {
        status = ty_fail(r->error, TY_EPARSE,
                         "%.200s: found no configuration that is known, expected torchtitan's "
                         "TOML, Megatron-LM's arguments, YAML of NeMo, Megatron-Bridge, "
                         "Megatron-LM or MaxText, or a "
                         "configuration of Accelerate or DeepSpeed",
                         r->path);
        goto done;
    }
    r->out->words = document;
    r->kind = ty_json_root(document);
    document = NULL; /* ownership moved */
done:
    ty_json_free(document);
    return status;
}

/* Reads the model's sizes from the file. */
static ty_status import_sizes(const reading *r)
{
    const ty_import_options options = {.vocabulary = r->vocabulary};
    ty_import_report report = {0};
    ty_status status = ty_import_settings(r->path, r->name, (training_pairs *)&r->pairs, &options,
                                          &r->out->workload, &report, r->error);

    if (status == TY_OK && !ty_json_has(r->kind, "has_quiet_model"))
        return take_notes(r, &report, status);
    ty_import_report_clear(&report);
    return status;
}

static ty_status read_model(reading *r)
{
    const uint32_t sequence = (uint32_t)ty_steps_number_of(&r->steps, "sequence");
    const ty_json *names, *steps;
    double is_named = 0;

    if (ty_json_has(r->kind, "imports_file") && r->model != NULL) {
        TY_TRY(import_file(r));
        TY_TRY(ty_json_array(r->kind, "model_steps", 1, 1000, &steps, r->error));
        return ty_steps_run(&r->steps, steps);
    }
    if (r->model != NULL)
        return open_model(r, r->model, sequence);
    if (ty_json_has(r->kind, "model")) {
        TY_TRY(ty_json_object(r->kind, "model", &names, r->error));
        TY_TRY(ty_steps_value(&r->steps, names, "if", 1, &is_named));
        if (is_named != 0)
            return open_named(r, names, sequence);
    }
    if (r->is_arguments)
        return import_file(r);
    return ty_json_has(r->kind, "model_steps") && !ty_json_has(r->kind, "imports_file")
               ? import_sizes(r)
               : need_model(r, sequence);
    return TY_OK;
}

/* The model's optimizer stays if the file names one of its kind, with the model's settings. */
static ty_status set_optimizer(const reading *r)
{
    const char *word = ty_steps_text_of(&r->steps, "optimizer");
    ty_optimizer *model = &r->out->workload->optimizer, own = *model;
    char line[160];

    if (word == NULL)
        return TY_OK;
    if (ty_optimizer_set(&own, word, NULL) == TY_OK) {
        *model = own.kind != model->kind ? own : *model;
        return TY_OK;
    }
    if (r->is_arguments) /* its importer says so */
        return TY_OK;
    snprintf(line, sizeof line, "optimizer %.60s is not known, the model's %s in its place", word,
             ty_optimizer_name(model->kind));
    return note(r, line);
}

static ty_status read_kind(reading *r)
{
    const ty_import_options options = {0};
    ty_import_source source = {.path = r->path, .options = &options, .error = r->error};
    const ty_json *steps;
    ty_status status;

    r->steps = (steps_reader){.source = &source,
                              .error = r->error,
                              .pairs = &r->pairs,
                              .is_arguments = r->is_arguments,
                              .report = &r->out->report,
                              .switches = &r->out->switches};
    if (ty_json_has(r->kind, "parts"))
        TY_CHECK(ty_json_object(r->kind, "parts", &r->steps.parts, r->error), status, done);
    TY_CHECK(ty_steps_start(&r->steps, NULL), status, done);
    TY_CHECK(ty_steps_set(&r->steps, "is_arguments", r->is_arguments), status, done);
    for (size_t i = 0; i < COUNT(members); i++)
        TY_CHECK(ty_steps_set(&r->steps, members[i].name, 0), status, done);
    TY_CHECK(ty_json_array(r->kind, "steps", 1, 1000, &steps, r->error), status, done);
    TY_CHECK(ty_steps_run(&r->steps, steps), status, done);
    take_members(r);
    TY_CHECK(read_model(r), status, done);
    status = set_optimizer(r);
done:
    ty_steps_end(&r->steps);
    return status;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* These programs count samples per EP rank. */
static ty_status count_expert_ranks(const reading *r, ty_training_config *c)
{
    if (c->expert <= 1)
        return TY_OK;
    if ((uint64_t)c->micro_batch * c->expert > MOST_COUNT)
        return ty_fail(
            r->error, TY_EPARSE,
            "%.160s: found a micro-batch of %u on each of %u expert-parallel ranks, expected "
            "at most 2^30 samples",
            r->path, c->micro_batch, c->expert);
    c->micro_batch *= c->expert;
    c->share *= c->expert;
    c->data = c->data % c->expert == 0 ? c->data / c->expert : 0;
    return TY_OK;
}

/* 0: not divisible. */
static uint32_t replicas_among(const ty_training_config *c, uint32_t devices)
{
    const double ranks =
        fmax(c->tensor, 1) * fmax(c->pipeline, 1) * fmax(c->context, 1) * fmax(c->expert, 1);

    if (c->data > 0)
        return c->data;
    return ranks <= devices && devices % (uint32_t)ranks == 0 ? devices / (uint32_t)ranks : 0;
}

static ty_status set_batch(ty_training_config *c, uint32_t devices, ty_error *error)
{
    const uint32_t replicas = replicas_among(c, devices);
    const double batch = c->device_share > 0 ? c->device_share * devices : c->share * replicas;

    if (c->global_batch == 0 && batch > MOST_COUNT)
        return ty_fail(error, TY_EPARSE,
                       "%s: found a step of %.4g samples (those of a device or replica times "
                       "their number), expected at most 2^30",
                       c->format, batch);
    if (c->global_batch == 0)
        c->global_batch = (uint32_t)batch;
    if (c->global_batch > 0 && c->workload != NULL)
        c->workload->global_batch = c->global_batch;
    return TY_OK;
}

ty_status ty_training_config_settle(ty_training_config *config, uint32_t devices, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    if (config->devices > 0 && config->devices != devices)
        ty_text_addf(&text, "the file starts %u devices, the cluster has %u: planned for these",
                     config->devices, devices);
    TY_CHECK(ty_text_check(&text, error), status, cleanup);
    if (text.length > 0)
        TY_CHECK(ty_import_report_add(&config->report, text.data, error), status, cleanup);
    TY_CHECK(set_batch(config, devices, error), status, cleanup);
    if (config->global_batch > 0)
        goto cleanup;
    ty_text_clear(&text);
    ty_text_addf(&text, "no batch is said: the model's, %u samples a step",
                 config->workload->global_batch);
    TY_CHECK(ty_text_check(&text, error), status, cleanup);
    status = ty_import_report_add(&config->report, text.data, error);

cleanup:
    ty_text_clear(&text);
    return status;
}

/* megatron/core/distributed/distributed_data_parallel.py: parameters of a bucket. */
#define LEAST_BUCKET_ELEMENTS 40000000
#define BUCKET_ELEMENTS_OF_RANK 1000000

ty_status ty_training_config_buckets(ty_training_config *config, uint32_t devices, ty_error *error)
{
    const double ranks = (double)replicas_among(config, devices) * fmax(config->context, 1) *
                         fmax(config->expert, 1);

    if (config->has_overlap && ranks == 1) {
        config->has_overlap = false;
        return config->is_overlapped
                   ? ty_import_report_add(&config->report,
                                          "overlap of gradients not used: there is one "
                                          "data-parallel rank",
                                          error)
                   : TY_OK;
    }
    if (config->bucket_elements == 0)
        config->bucket_elements =
            (uint64_t)fmax(LEAST_BUCKET_ELEMENTS, BUCKET_ELEMENTS_OF_RANK * ranks);
    return TY_OK;
}

/* Notes unread keys; the Megatron-LM importer notes its own. */
static ty_status note_unread(const reading *r)
{
    ty_text text = {0};
    uint32_t count = 0;
    ty_status status = TY_OK;

    if (r->is_arguments && r->model == NULL)
        return TY_OK;
    for (uint32_t i = 0; i < r->pairs.count; i++) {
        const training_pair *p = &r->pairs.pairs[i];
        if (p->is_read || p->value[0] == '\0')
            continue;
        if (count++ < MOST_NAMED)
            ty_text_addf(&text, "%s%.60s", count > 1 ? ", " : "keys not read: ", p->key);
    }
    if (count > MOST_NAMED)
        ty_text_addf(&text, " and %u more", count - MOST_NAMED);
    TY_CHECK(ty_text_check(&text, r->error), status, cleanup);
    if (count > 0)
        status = note(r, text.data);

cleanup:
    ty_text_clear(&text);
    return status;
}

ty_status ty_training_config_load(const char *path, const char *model, uint64_t vocabulary,
                                  ty_training_config *out, ty_error *error)
{
    ty_training_config config = {0};
    reading r = {
        .path = path, .model = model, .vocabulary = vocabulary, .out = &config, .error = error};
    char *bytes = NULL;
    size_t length = 0;
    ty_text conditional = {0}, line = {0}, unknown = {0};
    ty_status status;

    if (strlen(path) > 3 && strcmp(path + strlen(path) - 3, ".py") == 0) {
        status = ty_fail(error, TY_EPARSE,
                         "%.200s: found a recipe in Python, expected the YAML that it makes (NeMo: "
                         "--to-yaml; Megatron-Bridge: run_config.yaml of a checkpoint)",
                         path);
        goto cleanup;
    }
    TY_CHECK(ty_file_read(path, 0, &bytes, &length, error), status, cleanup);
    r.is_arguments = ty_is_megatron_arguments(bytes);
    if (r.is_arguments)
        status = ty_megatron_settings(path, bytes, length, &r.pairs, &conditional, &config.report,
                                      error);
    else
        status = ty_training_pairs_read(path, bytes, length, &r.pairs, &unknown, error);
    TY_CHECK(status, status, cleanup);
    if (unknown.length > 0)
        TY_CHECK(note(&r, unknown.data), status, cleanup);
    TY_CHECK(find_kind(&r), status, cleanup);
    ty_training_pairs_unread(&r.pairs);
    TY_CHECK(ty_json_string(r.kind, "format", &config.format, error), status, cleanup);
    if (r.is_arguments)
        config.format = "Megatron-LM arguments";
    TY_CHECK(ty_json_string(r.kind, "stack", &config.stack, error), status, cleanup);
    config.compression = "none"; /* unless the file sets it */
    TY_CHECK(read_kind(&r), status, cleanup);
    TY_CHECK(note_unread(&r), status, cleanup);
    if (conditional.length > 0) {
        ty_text_addf(&line, TY_MEGATRON_CONDITIONAL, conditional.data);
        TY_CHECK(ty_text_check(&line, error), status, cleanup);
        TY_CHECK(note(&r, line.data), status, cleanup);
    }
    TY_CHECK(count_expert_ranks(&r, &config), status, cleanup);
    if (config.data > 0) /* independent of the cluster */
        TY_CHECK(set_batch(&config, 0, error), status, cleanup);
    *out = config;
    config = (ty_training_config){0}; /* ownership moved */

cleanup:
    ty_training_config_clear(&config);
    ty_training_pairs_clear(&r.pairs);
    ty_json_free(r.kinds);
    ty_text_clear(&line);
    ty_text_clear(&conditional);
    ty_text_clear(&unknown);
    ty_free(bytes);
    return status;
}

void ty_training_config_clear(ty_training_config *config)
{
    ty_workload_free(config->workload);
    ty_json_free(config->words);
    ty_import_report_clear(&config->report);
    ty_text_clear(&config->switches);
    *config = (ty_training_config){0};
}

ty_status ty_training_config_bounds(const ty_training_config *config, ty_text *out, ty_error *error)
{
    if (config->has_fixed_ranks)
        ty_text_addf(out, "tp=%u,pp=%u,cp=%u", config->tensor, config->pipeline, config->context);
    return ty_text_check(out, error);
}

ty_status ty_training_config_fix(const ty_training_config *config, ty_text *out, ty_error *error)
{
    const struct {
        const char *key;
        uint32_t value;
        bool is_said;
    } rows[] = {
        {"tp", config->tensor, config->tensor > 0},
        {"pp", config->pipeline, config->pipeline > 0},
        {"cp", config->context, config->context > 0},
        {"ep", config->expert, config->expert > 0},
        {"dp", config->data, config->data > 0},
        {"vpp", config->virtual_stages, config->virtual_stages > 1},
        {"micro_batch", config->micro_batch, config->micro_batch > 0},
        {"zero", config->zero, config->has_zero},
    };

    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].is_said)
            ty_text_addf(out, "%s%s=%u", out->length > 0 ? "," : "", rows[i].key, rows[i].value);
    if (config->has_sequence)
        ty_text_addf(out, "%ssp=%d", out->length > 0 ? "," : "", config->is_along_sequence);
    if (config->recompute != NULL)
        ty_text_addf(out, "%srecompute=%s", out->length > 0 ? "," : "", config->recompute);
    if (config->recompute != NULL && config->segment > 1 && strcmp(config->recompute, "full") == 0)
        ty_text_addf(out, ":%u", config->segment);
    if (config->schedule != NULL)
        ty_text_addf(out, "%sschedule=%s", out->length > 0 ? "," : "", config->schedule);
    if (config->compression != NULL)
        ty_text_addf(out, "%scompression=%s", out->length > 0 ? "," : "", config->compression);
    if (config->has_overlap && !config->is_overlapped)
        ty_text_add(out, ",bucket=one");
    else if (config->has_overlap && config->bucket_elements > 0)
        ty_text_addf(out, ",bucket=%lluB",
                     (unsigned long long)(config->bucket_elements * TY_GRADIENT_ELEMENT_BYTES));
    return ty_text_check(out, error);
}
