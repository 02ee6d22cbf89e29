/* Records of published training speed as question, layout and seconds. What a source leaves out is
 * filled from its entry under "stacks" in constants.json: the usual choice of that software. */
#include "parts.h"

#include "ty_file.h"
#include "ty_memory.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What software trained, on which machine: as constants.json says for a family of records. */
typedef struct stack {
    char constants[32];
    char cluster[128]; /* a description of two hosts, for the device */
    bool is_fused, has_dropout, sequence_parallel, overlap_gradients, overlap_tensor;
    uint32_t zero;
    double gradient_bytes, fp8_ratio;
} stack;

typedef struct reader {
    const ty_json *record, *model, *batch, *cluster, *parallel, *measured;
    ty_layout_record *out;
    ty_error *error;
    stack stack;
} reader;

/* ---- Optional members -------------------------------------------------------------------------
 */

/* A source may state a size in words ("128 then 512"): such a row is not predicted. */
static bool is_in_words(const reader *r, const ty_json *object, const char *key)
{
    for (size_t i = 0; i < ty_json_size(object); i++) {
        const ty_json *value = ty_json_at(object, i);
        if (strcmp(ty_json_key(value), key) == 0 && ty_json_is_string(value)) {
            snprintf(r->out->reason, sizeof r->out->reason, "%s is stated in words", key);
            return true;
        }
    }
    return false;
}

static ty_status size_of(const reader *r, const ty_json *object, const char *key,
                         uint32_t otherwise, uint32_t *out)
{
    *out = otherwise;
    if (object == NULL || !ty_json_has(object, key) || is_in_words(r, object, key))
        return TY_OK;
    return ty_json_uint32(object, key, 0, UINT32_MAX, out, r->error);
}

static ty_status flag_of(const reader *r, const ty_json *object, const char *key, bool otherwise,
                         bool *out)
{
    *out = otherwise;
    if (object == NULL || !ty_json_has(object, key))
        return TY_OK;
    return ty_json_bool(object, key, out, r->error);
}

static ty_status number_of(const reader *r, const ty_json *object, const char *key,
                           double otherwise, double *out)
{
    *out = otherwise;
    if (object == NULL || !ty_json_has(object, key) || is_in_words(r, object, key))
        return TY_OK;
    return ty_json_number(object, key, 0, HUGE_VAL, out, r->error);
}

static ty_status word_of(const reader *r, const ty_json *object, const char *key,
                         const char *otherwise, const char **out)
{
    *out = otherwise;
    if (object == NULL || !ty_json_has(object, key))
        return TY_OK;
    return ty_json_string(object, key, out, r->error);
}

static ty_status object_of(const reader *r, const char *key, const ty_json **out)
{
    *out = NULL;
    if (!ty_json_has(r->record, key))
        return TY_OK;
    return ty_json_object(r->record, key, out, r->error);
}

static void give_up(const reader *r, const char *why)
{
    if (r->out->reason[0] == '\0')
        snprintf(r->out->reason, sizeof r->out->reason, "%s", why);
}

/* ---- Stacks -----------------------------------------------------------------------------------
 */

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static ty_status read_stack(const reader *r, const ty_json *entry, stack *out)
{
    ty_status status = TY_OK;
    const char *constants, *cluster;

    TY_CHECK(ty_json_string(entry, "constants", &constants, r->error), status, cleanup);
    TY_CHECK(ty_json_string(entry, "cluster", &cluster, r->error), status, cleanup);
    snprintf(out->constants, sizeof out->constants, "%s", constants);
    snprintf(out->cluster, sizeof out->cluster, "%s", cluster);
    TY_CHECK(flag_of(r, entry, "fused", false, &out->is_fused), status, cleanup);
    TY_CHECK(flag_of(r, entry, "dropout", false, &out->has_dropout), status, cleanup);
    TY_CHECK(flag_of(r, entry, "sequence_parallel", false, &out->sequence_parallel), status,
             cleanup);
    TY_CHECK(flag_of(r, entry, "overlap_gradients", false, &out->overlap_gradients), status,
             cleanup);
    TY_CHECK(flag_of(r, entry, "overlap_tensor", false, &out->overlap_tensor), status, cleanup);
    TY_CHECK(size_of(r, entry, "zero", 0, &out->zero), status, cleanup);
    TY_CHECK(number_of(r, entry, "gradient_bytes", 4, &out->gradient_bytes), status, cleanup);
    TY_CHECK(number_of(r, entry, "fp8_ratio", 0, &out->fp8_ratio), status, cleanup);

cleanup:
    return status;
}

static ty_status is_fitted_row(const reader *r, const ty_json *set, bool *out)
{
    ty_status status = TY_OK;
    const ty_json *rows, *models;
    size_t family = strcspn(r->out->id, "/");

    *out = false;
    if (!ty_json_has(set, "rows"))
        return TY_OK;
    TY_CHECK(ty_json_object(set, "rows", &rows, r->error), status, cleanup);
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        models = ty_json_at(rows, i);
        if (strlen(ty_json_key(models)) != family ||
            strncmp(ty_json_key(models), r->out->id, family) != 0)
            continue;
        for (size_t m = 0; m < ty_json_size(models); m++) {
            const char *name;
            TY_CHECK(ty_json_as_string(ty_json_at(models, m), &name, r->error), status, cleanup);
            *out = *out || strcmp(name, r->out->model) == 0;
        }
    }

cleanup:
    return status;
}

/* The first entry whose family and device the record has. */
static ty_status find_stack(reader *r, const ty_json *root, const char *gpu)
{
    ty_status status = TY_OK;
    const ty_json *stacks, *sets, *set;

    TY_CHECK(ty_json_array(root, "stacks", 0, UINT32_MAX, &stacks, r->error), status, cleanup);
    TY_CHECK(ty_json_object(root, "sets", &sets, r->error), status, cleanup);
    for (size_t i = 0; i < ty_json_size(stacks); i++) {
        const ty_json *entry = ty_json_at(stacks, i);
        const char *family, *device;
        TY_CHECK(word_of(r, entry, "family", "", &family), status, cleanup);
        TY_CHECK(ty_json_string(entry, "gpu", &device, r->error), status, cleanup);
        if (!starts_with(r->out->id, family) || !starts_with(gpu, device))
            continue;
        TY_CHECK(read_stack(r, entry, &r->stack), status, cleanup);
        TY_CHECK(ty_json_object(sets, r->stack.constants, &set, r->error), status, cleanup);
        status = is_fitted_row(r, set, &r->out->is_fitted);
        goto cleanup;
    }
    give_up(r, "no constants for this device and software");

cleanup:
    return status;
}

static ty_status device_of(reader *r)
{
    ty_status status = TY_OK;
    ty_cluster *cluster = NULL;
    ty_layout_device *device = &r->out->question.device;

    TY_CHECK(ty_cluster_open(r->stack.cluster, NULL, &cluster, r->error), status, cleanup);
    *device = ty_layout_device_of(ty_cluster_device_type(cluster, 0));
    device->peak_fp8_flop_per_s = r->stack.fp8_ratio * device->peak_half_flop_per_s;

cleanup:
    ty_cluster_free(cluster);
    return status;
}

static ty_status read_machine(reader *r)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    char *path = NULL;
    const char *gpu;

    TY_CHECK(ty_json_string(r->cluster, "gpu", &gpu, r->error), status, cleanup);
    TY_CHECK(ty_data_path("planner/layout", "constants.json", &path, r->error), status, cleanup);
    TY_CHECK(ty_json_load(path, &document, r->error), status, cleanup);
    TY_CHECK(find_stack(r, ty_json_root(document), gpu), status, cleanup);
    if (r->out->reason[0] != '\0')
        goto cleanup;
    TY_CHECK(ty_layout_constants_load(r->stack.constants, &r->out->question.constants, r->error),
             status, cleanup);
    TY_CHECK(device_of(r), status, cleanup);

cleanup:
    ty_json_free(document);
    ty_free(path);
    return status;
}

/* ---- Model and cluster --------------------------------------------------------------------------
 */

static ty_status read_model(reader *r)
{
    ty_layout_shape *s = &r->out->question.shape;
    ty_status status = TY_OK;
    uint32_t expert_ffn, shared;
    const char *family, *attention;

    TY_CHECK(word_of(r, r->model, "family", "gpt", &family), status, cleanup);
    TY_CHECK(word_of(r, r->model, "attention", "", &attention), status, cleanup);
    TY_CHECK(size_of(r, r->model, "layers", 0, &s->layers), status, cleanup);
    TY_CHECK(size_of(r, r->model, "hidden", 0, &s->hidden), status, cleanup);
    TY_CHECK(size_of(r, r->model, "heads", s->hidden / 128, &s->heads), status, cleanup);
    TY_CHECK(size_of(r, r->model, "kv_heads", 0, &s->kv_heads), status, cleanup);
    TY_CHECK(size_of(r, r->model, "head_size", 0, &s->head_size), status, cleanup);
    TY_CHECK(size_of(r, r->model, "ffn", 0, &s->ffn), status, cleanup);
    TY_CHECK(size_of(r, r->model, "seq", 0, &s->sequence), status, cleanup);
    TY_CHECK(size_of(r, r->model, "vocab", 51200, &s->vocabulary), status, cleanup);
    TY_CHECK(size_of(r, r->model, "experts", 0, &s->experts), status, cleanup);
    TY_CHECK(size_of(r, r->model, "experts_per_token", 0, &s->experts_per_token), status, cleanup);
    TY_CHECK(size_of(r, r->model, "moe_ffn", s->ffn, &expert_ffn), status, cleanup);
    TY_CHECK(size_of(r, r->model, "shared_experts", 0, &shared), status, cleanup);
    TY_CHECK(size_of(r, r->model, "dense_layers", 0, &s->dense_layers), status, cleanup);
    TY_CHECK(flag_of(r, r->model, "gated", s->experts > 0, &s->is_gated), status, cleanup);
    s->expert_ffn = s->experts > 0 ? expert_ffn : 0;
    s->shared_ffn = shared * s->expert_ffn;
    s->is_causal = true;
    s->is_tied = !s->is_gated;
    s->is_fused = r->stack.is_fused;
    s->has_dropout = r->stack.has_dropout;
    s->positions = s->is_gated ? 0 : s->sequence;
    if (strcmp(family, "gpt") != 0 && strcmp(family, "moe-gpt") != 0)
        give_up(r, "not a decoder of equal layers");
    else if (attention[0] != '\0' && strcmp(attention, "gqa") != 0)
        give_up(r, "attention whose sizes are not stated");
    else if (s->layers == 0 || s->hidden == 0 || s->sequence == 0)
        give_up(r, "layers, hidden size or sequence not stated");

cleanup:
    return status;
}

static ty_status read_link(const reader *r, const char *link, const char *key, double *out)
{
    const ty_json *object;
    double gigabytes = 0;
    ty_status status = TY_OK;

    *out = 0;
    if (!ty_json_has(r->cluster, link))
        return TY_OK;
    TY_CHECK(ty_json_object(r->cluster, link, &object, r->error), status, cleanup);
    TY_CHECK(number_of(r, object, key, 0, &gigabytes), status, cleanup);
    *out = gigabytes * 1e9;

cleanup:
    return status;
}

static ty_status read_cluster(reader *r)
{
    ty_layout_cluster *c = &r->out->question.cluster;
    ty_status status = TY_OK;

    TY_CHECK(size_of(r, r->cluster, "gpus", 0, &c->devices), status, cleanup);
    TY_CHECK(size_of(r, r->cluster, "gpus_per_node", c->devices, &c->devices_per_host), status,
             cleanup);
    TY_CHECK(
        read_link(r, "intra_node", "GBps_per_gpu_per_direction", &c->host_bandwidth_bytes_per_s),
        status, cleanup);
    TY_CHECK(read_link(r, "inter_node", "GBps_per_node", &c->nic_bandwidth_bytes_per_s), status,
             cleanup);
    c->oversubscription = 1;
    if (c->devices == 0)
        give_up(r, "number of devices not stated");
    else if (c->devices_per_host > 1 && c->devices > 1 && !(c->host_bandwidth_bytes_per_s > 0))
        give_up(r, "links inside the host not stated");
    else if (c->devices > c->devices_per_host && !(c->nic_bandwidth_bytes_per_s > 0))
        give_up(r, "network between the hosts not stated");

cleanup:
    return status;
}

/* ---- Layout
 * -------------------------------------------------------------------------------------- */

static ty_status read_degrees(reader *r)
{
    ty_layout *l = &r->out->layout;
    ty_status status = TY_OK;
    uint32_t devices = r->out->question.cluster.devices;
    uint64_t rest;

    TY_CHECK(size_of(r, r->parallel, "tp", 1, &l->tensor), status, cleanup);
    TY_CHECK(size_of(r, r->parallel, "cp", 1, &l->context), status, cleanup);
    TY_CHECK(size_of(r, r->parallel, "ep", 1, &l->expert), status, cleanup);
    TY_CHECK(size_of(r, r->parallel, "pp", 1, &l->pipeline), status, cleanup);
    TY_CHECK(size_of(r, r->parallel, "interleave", 1, &l->interleave), status, cleanup);
    rest = (uint64_t)l->tensor * l->context * l->pipeline; /* wrapping breaks a rule later */
    TY_CHECK(size_of(r, r->parallel, "dp", rest > 0 ? (uint32_t)(devices / rest) : 0, &l->data),
             status, cleanup);
    if (ty_json_has(r->parallel, "model_parallel") && !ty_json_has(r->parallel, "tp"))
        give_up(r, "tensor and pipeline degrees not told apart");

cleanup:
    return status;
}

typedef struct word_value {
    const char *word;
    int value;
} word_value;

/* -1: not among them. */
static int value_of(const char *word, const word_value *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, values[i].word) == 0)
            return values[i].value;
    return -1;
}

#define VALUE_OF(word, values) value_of(word, values, sizeof(values) / sizeof *(values))

static const word_value schedules[] = {
    {"1f1b", TY_LAYOUT_1F1B},         {"interleaved-1f1b", TY_LAYOUT_1F1B},
    {"interleaved", TY_LAYOUT_1F1B},  {"gpipe", TY_LAYOUT_GPIPE},
    {"zb-1p", TY_LAYOUT_ZERO_BUBBLE}, {"zb-h1", TY_LAYOUT_ZERO_BUBBLE}};
static const word_value recomputes[] = {{"none", TY_LAYOUT_KEEP_ALL},
                                        {"selective", TY_LAYOUT_SELECTIVE},
                                        {"selective-attention", TY_LAYOUT_SELECTIVE},
                                        {"selective-op", TY_LAYOUT_SELECTIVE},
                                        {"full", TY_LAYOUT_FULL}};
static const word_value precisions[] = {
    {"fp16", TY_LAYOUT_HALF}, {"bf16", TY_LAYOUT_HALF}, {"fp8", TY_LAYOUT_FP8},
    {"fp32", TY_LAYOUT_FP32}, {"mxfp8", TY_LAYOUT_FP8}, {"bf16+float8-linear", TY_LAYOUT_FP8}};

static ty_status read_choices(reader *r)
{
    ty_layout *l = &r->out->layout;
    ty_status status = TY_OK;
    const char *schedule, *recompute, *precision;
    int values[3];
    bool has_replicas = l->context * l->data > 1;

    TY_CHECK(word_of(r, r->parallel, "schedule", "1f1b", &schedule), status, cleanup);
    TY_CHECK(word_of(r, r->parallel, "recompute", "none", &recompute), status, cleanup);
    TY_CHECK(word_of(r, r->model, "dtype", "fp16", &precision), status, cleanup);
    values[0] = VALUE_OF(schedule, schedules);
    values[1] = VALUE_OF(recompute, recomputes);
    values[2] = VALUE_OF(precision, precisions);
    if (values[0] < 0 || values[1] < 0 || values[2] < 0) {
        give_up(r, values[0] < 0   ? "a schedule that is not modelled"
                   : values[1] < 0 ? "a recomputation that is not modelled"
                                   : "a precision that is not modelled");
        goto cleanup;
    }
    l->schedule = l->pipeline > 1 ? (ty_layout_schedule)values[0] : TY_LAYOUT_1F1B;
    l->recompute = (ty_layout_recompute)values[1];
    if (l->recompute == TY_LAYOUT_SELECTIVE && r->stack.is_fused)
        l->recompute = TY_LAYOUT_KEEP_ALL;
    l->precision = (ty_layout_precision)values[2];
    TY_CHECK(flag_of(r, r->parallel, "sequence_parallel", r->stack.sequence_parallel,
                     &l->sequence_parallel),
             status, cleanup);
    TY_CHECK(size_of(r, r->parallel, "zero", r->stack.zero, &l->zero), status, cleanup);
    TY_CHECK(flag_of(r, r->parallel, "async_tp", r->stack.overlap_tensor, &l->overlap_tensor),
             status, cleanup);
    l->sequence_parallel = l->sequence_parallel && l->tensor > 1;
    l->overlap_tensor = l->overlap_tensor && l->tensor > 1;
    l->overlap_gradients = has_replicas && r->stack.overlap_gradients;
    l->zero = has_replicas ? l->zero : 0;
    if (r->stack.gradient_bytes <= 2)
        r->out->question.gradient_bytes = 2;

cleanup:
    return status;
}

/* A number of sequences made from others; 0 where it is none that a step may have. */
static uint32_t sequences(double count)
{
    return count >= 1 && count <= UINT32_MAX ? (uint32_t)count : 0;
}

static ty_status read_batch(reader *r)
{
    ty_layout *l = &r->out->layout;
    ty_layout_question *q = &r->out->question;
    ty_status status = TY_OK;
    uint32_t per_device, accumulated;
    double tokens;

    TY_CHECK(size_of(r, r->batch, "per_gpu", 0, &per_device), status, cleanup);
    TY_CHECK(size_of(r, r->batch, "grad_accum", 0, &accumulated), status, cleanup);
    TY_CHECK(number_of(r, r->batch, "tokens", 0, &tokens), status, cleanup);
    TY_CHECK(size_of(r, r->batch, "global", sequences((double)per_device * q->cluster.devices),
                     &q->global_batch),
             status, cleanup);
    if (q->global_batch == 0 && q->shape.sequence > 0)
        q->global_batch = sequences(tokens / q->shape.sequence);
    if (per_device == 0 && accumulated > 0 && l->data > 0)
        per_device = sequences((double)q->global_batch / ((double)accumulated * l->data));
    TY_CHECK(size_of(r, r->batch, "micro", per_device, &l->micro_batch), status, cleanup);
    if (q->global_batch == 0)
        give_up(r, "global batch not stated");

cleanup:
    return status;
}

/* ---- What was measured
 * ------------------------------------------------------------------------------ */

/* Model flop as Narayanan et al. 2021 count them, with recomputation 4/3 of it. */
#define WITH_RECOMPUTE (4.0 / 3.0)

static double seconds_of(const reader *r, const char *metric, double value)
{
    const ty_layout_question *q = &r->out->question;
    double devices = q->cluster.devices, batch = q->global_batch;
    double flop = ty_layout_model_flop(&q->shape, q->global_batch);

    if (strcmp(metric, "iteration_time") == 0)
        return value;
    if (strcmp(metric, "tokens_per_s_per_gpu") == 0)
        return batch * q->shape.sequence / (value * devices);
    if (strcmp(metric, "tokens_per_s") == 0)
        return batch * q->shape.sequence / value;
    if (strcmp(metric, "sequences_per_s") == 0 || strcmp(metric, "samples_per_s") == 0)
        return batch / value;
    if (strcmp(metric, "samples_per_s_per_gpu") == 0)
        return batch / (value * devices);
    if (strcmp(metric, "achieved_tflops_per_gpu") == 0)
        return flop * (r->out->layout.recompute == TY_LAYOUT_FULL ? WITH_RECOMPUTE : 1) /
               (value * 1e12 * devices);
    if (strcmp(metric, "model_tflops_per_gpu") == 0)
        return flop / (value * 1e12 * devices);
    return 0;
}

static ty_status read_measured(reader *r)
{
    ty_status status = TY_OK;
    const char *metric;
    double value;

    TY_CHECK(ty_json_string(r->measured, "metric", &metric, r->error), status, cleanup);
    TY_CHECK(ty_json_number(r->measured, "value", DBL_MIN, HUGE_VAL, &value, r->error), status,
             cleanup);
    if (r->out->reason[0] != '\0')
        goto cleanup;
    r->out->measured_step_s = seconds_of(r, metric, value);
    if (!(r->out->measured_step_s > 0))
        give_up(r, "a measure that is not the time of a step");

cleanup:
    return status;
}

/* ---- The record
 * --------------------------------------------------------------------------------------- */

/* The fastest micro-batch that fits, as who tuned the run would have taken: where none is stated.
 */
static void choose_micro_batch(ty_layout_record *out)
{
    ty_layout_estimate estimate;
    double best_s = HUGE_VAL;
    uint32_t best = 1;

    for (uint32_t size = 1; size <= out->question.global_batch; size *= 2) {
        out->layout.micro_batch = size;
        if (ty_layout_estimate_of(&out->question, &out->layout, &estimate, NULL) == TY_OK &&
            estimate.memory.total <= out->question.device.memory_bytes &&
            estimate.step_time_s < best_s) {
            best_s = estimate.step_time_s;
            best = size;
        }
    }
    out->layout.micro_batch = best;
}

static ty_status read_parts(reader *r)
{
    ty_status status = TY_OK;
    const char *id, *name;

    TY_CHECK(ty_json_string(r->record, "id", &id, r->error), status, cleanup);
    TY_CHECK(ty_json_object(r->record, "measured", &r->measured, r->error), status, cleanup);
    TY_CHECK(object_of(r, "model", &r->model), status, cleanup);
    TY_CHECK(object_of(r, "batch", &r->batch), status, cleanup);
    TY_CHECK(object_of(r, "cluster", &r->cluster), status, cleanup);
    TY_CHECK(object_of(r, "parallel", &r->parallel), status, cleanup);
    snprintf(r->out->id, sizeof r->out->id, "%s", id);
    if (r->model == NULL || r->batch == NULL || r->cluster == NULL || r->parallel == NULL) {
        give_up(r, "model, batch, cluster or layout not stated");
        goto cleanup;
    }
    TY_CHECK(word_of(r, r->model, "name", "", &name), status, cleanup);
    snprintf(r->out->model, sizeof r->out->model, "%s", name);
    TY_CHECK(read_machine(r), status, cleanup);
    TY_CHECK(read_model(r), status, cleanup);
    TY_CHECK(read_cluster(r), status, cleanup);
    TY_CHECK(read_degrees(r), status, cleanup);
    TY_CHECK(read_choices(r), status, cleanup);
    TY_CHECK(read_batch(r), status, cleanup);

cleanup:
    return status;
}

/* Rules of the model and the ranges of its numbers: a record that breaks them is not predicted. */
static void check(ty_layout_record *out)
{
    ty_error error = {0};
    const char *rule;

    if (ty_layout_question_check(&out->question, &error) != TY_OK) {
        snprintf(out->reason, sizeof out->reason, "%.150s", error.message);
        return;
    }
    if (out->layout.micro_batch == 0)
        choose_micro_batch(out);
    rule = layout_broken_rule(&out->question, &out->layout);
    if (rule != NULL)
        snprintf(out->reason, sizeof out->reason, "the stated layout breaks a rule: %s", rule);
}

ty_status ty_layout_record_read(const ty_json *record, ty_layout_record *out, ty_error *error)
{
    reader r = {.record = record, .out = out, .error = error};
    ty_status status = TY_OK;

    *out = (ty_layout_record){.question.gradient_bytes = 4};
    TY_CHECK(read_parts(&r), status, cleanup);
    if (out->reason[0] == '\0')
        check(out);
    TY_CHECK(read_measured(&r), status, cleanup);
    snprintf(out->group, sizeof out->group, "%s, %u sequences, %u devices", out->model,
             out->question.global_batch, out->question.cluster.devices);

cleanup:
    return status;
}

ty_status ty_layout_predict_record(const ty_json *record, ty_layout_record *out, double *step_s,
                                   ty_error *error)
{
    ty_layout_record read;
    ty_layout_estimate estimate = {0};
    ty_status status = ty_layout_record_read(record, &read, error);

    if (status != TY_OK)
        return status;
    if (read.reason[0] == '\0')
        status = ty_layout_estimate_of(&read.question, &read.layout, &estimate, error);
    if (status != TY_OK)
        return status;
    *out = read;
    *step_s = estimate.step_time_s;
    return TY_OK;
}
