/* DeepSpeed's ds_config.json: batch and optimizer, but no model. With a given model, the file sets
 * its training; without one it is refused. Keys and defaults: deepspeed.ai, "DeepSpeed
 * Configuration JSON". The training script sets "auto" values.
 */
#include "import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MOST_SAMPLES (1u << 30)

static bool probe(ty_import_source *source)
{
    static const char *const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                       "zero_optimization"};
    const ty_json *root = ty_import_json(source);

    if (root == NULL || !ty_json_is_object(root) || ty_json_has(root, "schema"))
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (ty_json_has(root, keys[i]))
            return true;
    return false;
}

static ty_status fail_without_model(ty_import_source *source)
{
    const ty_json *root = ty_import_json(source);
    char batch[64] = "";
    uint64_t samples;

    if (ty_json_has(root, "train_batch_size") &&
        ty_json_uint64(root, "train_batch_size", 1, MOST_SAMPLES, &samples, NULL) == TY_OK)
        snprintf(batch, sizeof batch, " with batch=%llu behind it", (unsigned long long)samples);
    return ty_fail(source->error, TY_EPARSE,
                   "%s: found a DeepSpeed configuration, which has no model in it; expected the "
                   "model's config.json%s, or a model beside it (--workload)",
                   source->path, batch);
}

/* ---- Values that may be left to the script -------------------------------------------------- */

/* Whether a member exists and is not "auto", which gets a note. */
static bool is_said(ty_import_source *source, const ty_json *object, const char *key)
{
    const char *text;

    if (!ty_json_has(object, key))
        return false;
    if (ty_json_string(object, key, &text, NULL) != TY_OK || strcmp(text, "auto") != 0)
        return true;
    ty_import_note(source, "%s is auto: the model's in its place", key);
    return false;
}

static ty_status read_count(ty_import_source *source, const ty_json *root, const char *key,
                            uint64_t *out)
{
    *out = 0;
    return is_said(source, root, key)
               ? ty_json_uint64(root, key, 1, MOST_SAMPLES, out, source->error)
               : TY_OK;
}

static ty_status read_number(ty_import_source *source, const ty_json *object, const char *key,
                             double maximum, double *out)
{
    return is_said(source, object, key)
               ? ty_json_number(object, key, 0.0, maximum, out, source->error)
               : TY_OK;
}

/* ---- Batch ---------------------------------------------------------------------------------- */

/* train_batch_size is micro-batch x accumulation x devices; the file omits the number of
 * devices. */
static ty_status read_batch(ty_import_source *source, uint32_t *batch)
{
    const ty_json *root = ty_import_json(source);
    uint64_t samples, micro, accumulation;

    TY_TRY(read_count(source, root, "train_batch_size", &samples));
    TY_TRY(read_count(source, root, "train_micro_batch_size_per_gpu", &micro));
    TY_TRY(read_count(source, root, "gradient_accumulation_steps", &accumulation));
    micro *= accumulation > 0 ? accumulation : 1;
    if (samples > 0 && micro > 0 && samples % micro != 0)
        return ty_fail(source->error, TY_EPARSE,
                       "%s:/train_batch_size: found %llu, expected a multiple of the %llu samples "
                       "of a device",
                       source->path, (unsigned long long)samples, (unsigned long long)micro);
    if (samples > 0)
        *batch = (uint32_t)samples;
    else if (micro > 0)
        ty_import_note(source,
                       "%llu samples a device and step, of devices that the file does not count: "
                       "the model's batch of %u",
                       (unsigned long long)micro, *batch);
    if (source->options->batch > 0)
        *batch = source->options->batch;
    return TY_OK;
}

/* ---- Optimizer ------------------------------------------------------------------------------ */

static ty_status read_betas(ty_import_source *source, const ty_json *params, ty_optimizer *o)
{
    const ty_json *betas;

    if (!is_said(source, params, "betas"))
        return TY_OK;
    TY_TRY(ty_json_array(params, "betas", 2, 2, &betas, source->error));
    TY_TRY(ty_json_as_number(ty_json_at(betas, 0), 0.0, 1.0, &o->beta1, source->error));
    return ty_json_as_number(ty_json_at(betas, 1), 0.0, 1.0, &o->beta2, source->error);
}

static void note_unread(ty_import_source *source, const ty_json *object, const char *what)
{
    const char *key;

    while ((key = ty_json_next_unread(object)) != NULL)
        ty_import_note(source, "%s%.60s is ignored", what, key);
}

static ty_status read_params(ty_import_source *source, const ty_json *params, ty_optimizer *o)
{
    const ty_optimizer_row *row = ty_optimizer_row_of(o->kind);

    TY_TRY(read_number(source, params, "lr", HUGE_VAL, &o->learning_rate));
    TY_TRY(read_number(source, params, "weight_decay", HUGE_VAL, &o->weight_decay));
    if (row->has_momentum)
        TY_TRY(read_number(source, params, "momentum", 1.0, &o->momentum));
    if (row->has_betas) {
        TY_TRY(read_betas(source, params, o));
        TY_TRY(read_number(source, params, "eps", HUGE_VAL, &o->epsilon));
    }
    note_unread(source, params, "optimizer.params.");
    return TY_OK;
}

/* An optimizer that differs in kind from the model's starts from PyTorch's defaults. */
static ty_status read_optimizer(ty_import_source *source, ty_optimizer *out)
{
    const ty_json *root = ty_import_json(source), *object, *params;
    const char *type;
    ty_optimizer own = *out;

    if (!ty_json_has(root, "optimizer"))
        return TY_OK;
    TY_TRY(ty_json_object(root, "optimizer", &object, source->error));
    TY_TRY(ty_json_string(object, "type", &type, source->error));
    if (ty_optimizer_set(&own, type, NULL) != TY_OK) {
        ty_json_ignore(object, "params");
        ty_import_note(source, "optimizer %.60s is not known, the model's %s in its place", type,
                       ty_optimizer_name(out->kind));
    } else {
        if (own.kind != out->kind)
            *out = own;
        if (ty_json_has(object, "params")) {
            TY_TRY(ty_json_object(object, "params", &params, source->error));
            TY_TRY(read_params(source, params, out));
        }
    }
    note_unread(source, object, "optimizer.");
    return TY_OK;
}

/* ---- The whole ------------------------------------------------------------------------------ */

/* Notes on keys that belong to the plan, with the matching options. */
static void note_plan(ty_import_source *source)
{
    const ty_json *root = ty_import_json(source), *zero;
    uint64_t stage;

    if (ty_json_has(root, "zero_optimization")) {
        if (ty_json_object(root, "zero_optimization", &zero, NULL) == TY_OK &&
            ty_json_has(zero, "stage") &&
            ty_json_uint64(zero, "stage", 0, 3, &stage, NULL) == TY_OK)
            ty_import_note(source, "ZeRO is the plan's: --fix zero=%llu",
                           (unsigned long long)stage);
        ty_json_ignore(root, "zero_optimization");
    }
    for (const char *const *key = (const char *const[]){"bf16", "fp16", NULL}; *key != NULL; key++)
        if (ty_json_has(root, *key)) {
            ty_import_note(source, "precision is the plan's: --precision %s, where it is enabled",
                           *key);
            ty_json_ignore(root, *key);
        }
    note_unread(source, root, "");
}

static ty_status open_model(ty_import_source *source, ty_workload **out)
{
    const char *model = source->options->model;
    ty_text text = {0};
    ty_status status;

    ty_text_addf(&text, "%s", model);
    if (source->options->sequence > 0)
        ty_text_addf(&text, " sequence=%llu", (unsigned long long)source->options->sequence);
    if (ty_import_vocabulary(source) > 0)
        ty_text_addf(&text, " vocabulary=%llu", (unsigned long long)source->options->vocabulary);
    TY_CHECK(ty_text_check(&text, source->error), status, done);
    status = source->options->open_model(text.data, out, source->error);
done:
    ty_text_clear(&text);
    return status;
}

static ty_status note_origin(ty_import_source *source, ty_workload *workload)
{
    ty_text text = {0};
    char *origin = NULL;
    ty_status status;

    ty_text_addf(&text, "%s; batch and optimizer of a DeepSpeed configuration", workload->source);
    TY_CHECK(ty_text_take(&text, &origin, source->error), status, done);
    ty_free(workload->source);
    workload->source = origin;
done:
    ty_text_clear(&text);
    return status;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    ty_workload *workload = NULL;
    ty_status status;

    if (source->options->model == NULL)
        return fail_without_model(source);
    TY_CHECK(open_model(source, &workload), status, cleanup);
    TY_CHECK(read_batch(source, &workload->global_batch), status, cleanup);
    TY_CHECK(read_optimizer(source, &workload->optimizer), status, cleanup);
    if (source->options->settings == NULL)
        note_plan(source);
    TY_CHECK(note_origin(source, workload), status, cleanup);
    TY_CHECK(ty_workload_check(workload, source->path, source->error), status, cleanup);
    *out = workload;
    workload = NULL; /* ownership moved */
cleanup:
    ty_workload_free(workload);
    return status;
}

const ty_import_format ty_import_deepspeed = {"DeepSpeed configuration", probe, read, false};
