/* Opening what is asked about: plan files, workloads, clusters, profiles, and what is fixed. */
#include "question.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UNKNOWN_RATE 1 /* flop/s: stands for one in a profile made of a trace */

void ty_plan_inputs_clear(ty_plan_inputs *inputs)
{
    ty_costs_free(inputs->costs);
    ty_cluster_free(inputs->cluster);
    ty_program_free(inputs->program);
    ty_plan_free(inputs->plan);
    *inputs = (ty_plan_inputs){0};
}

ty_status ty_plan_inputs_from(ty_plan *plan, ty_plan_inputs *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_plan_inputs inputs = {.plan = plan, .cluster = ty_cluster_share(plan->cluster)};

    TY_CHECK(ty_plan_lower(plan, &inputs.program, error), status, cleanup);
    TY_CHECK(ty_costs_of_program(plan, inputs.program, inputs.cluster, &inputs.costs, error),
             status, cleanup);
    *out = inputs;
    return TY_OK;

cleanup:
    ty_plan_inputs_clear(&inputs);
    return status;
}

ty_status ty_plan_inputs_load(const char *path, const char *stack, ty_plan_inputs *out,
                              ty_error *error)
{
    ty_plan *plan = NULL;
    ty_stack *other = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_plan_load(path, &plan, error), status, failed);
    if (stack != NULL) {
        TY_CHECK(ty_stack_open(stack, &other, error), status, failed);
        ty_stack_free(plan->stack);
        plan->stack = other;
    }
    return ty_plan_inputs_from(plan, out, error);

failed:
    ty_plan_free(plan);
    return status;
}

void ty_question_inputs_clear(ty_question_inputs *inputs)
{
    ty_workload_free(inputs->workload);
    ty_cluster_free(inputs->cluster);
    ty_profile_free(inputs->profile);
    ty_stack_free(inputs->stack);
    *inputs = (ty_question_inputs){0};
}

static ty_status check_rates(const char *path, const ty_profile *profile, bool is_local,
                             ty_error *error)
{
    if (is_local && profile->peak_flop_per_s <= UNKNOWN_RATE)
        return ty_fail(error, TY_EPARSE,
                       "%s: has no rates, as profiles from traces do not: they say nothing of this "
                       "machine; name the cluster that was traced",
                       path);
    return TY_OK;
}

/* A profile that times layers, but none of these in this precision, would change nothing without a
 * word. */
static ty_status check_profile(const char *path, const ty_profile *profile,
                               const ty_workload *workload, ty_error *error)
{
    for (uint32_t l = 0; l < workload->layer_count; l++) {
        char *signature = NULL;
        double forward_s, backward_s;
        bool is_found;
        ty_status status = ty_layer_signature(workload, l, &signature, error);
        if (status != TY_OK)
            return status;
        is_found = ty_profile_layer(profile, signature, 1, &forward_s, &backward_s);
        ty_free(signature);
        if (is_found)
            return TY_OK;
    }
    if (profile->layer_time_count == 0)
        return TY_OK; /* of collectives, say */
    return ty_fail(error, TY_EPARSE,
                   "%s: has %u layer times, as of \"%.80s\", and none of a layer of %s; of a trace "
                   "make one with 'trainyard profile import TRACE --workload ...'",
                   path, profile->layer_time_count, profile->layer_times[0].signature,
                   workload->name);
}

static uint32_t online_cores(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (uint32_t)cores : 1;
}

/* Halves pay where the devices have units for them. */
#define FASTER_HALVES 2.0

/* Language models are trained in half precision on devices that are made for it, unless it is said
 * otherwise; everything else as its workload says. */
static ty_status choose_precision(const char *asked, const ty_cluster *cluster, bool is_local,
                                  ty_workload *workload, ty_error *error)
{
    const ty_device_type *device = ty_cluster_device_type(cluster, 0);
    ty_precision precision;
    ty_error detail;
    const bool has_halves =
        device->peak_fp16_flop_per_s > FASTER_HALVES * device->peak_fp32_flop_per_s;

    if (asked == NULL) {
        if (has_halves && !is_local && workload->tokens_per_sample > 0 &&
            workload->precision == TY_PRECISION_FP32)
            ty_workload_set_precision(workload, TY_PRECISION_BF16);
        return TY_OK;
    }
    if (ty_precision_find(asked, &precision, &detail) != TY_OK)
        return ty_fail(error, TY_EINVAL, "--%s", detail.message);
    ty_workload_set_precision(workload, precision);
    return TY_OK;
}

static bool has_own_times(const ty_workload *workload)
{
    for (uint32_t l = 0; l < workload->layer_count; l++)
        if (workload->layers[l].measured_forward_s > 0 ||
            workload->layers[l].measured_backward_s > 0)
            return true;
    return false;
}

static double product_rate(const ty_device_type *device)
{
    return device->peak_fp32_flop_per_s * device->matmul_efficiency;
}

static double memory_rate(const ty_device_type *device)
{
    return device->memory_bandwidth_bytes_per_s * device->memory_efficiency;
}

/* What layers do is not in such a file: their times are scaled by the rate, of products or of the
 * memory, in which the cluster's device is less ahead of the one they were measured on. */
static ty_status scale_times(const ty_question *question, const ty_watch *watch,
                             ty_question_inputs *q, ty_error *error)
{
    const ty_device_type *own = ty_cluster_device_type(q->cluster, 0), *other;
    ty_workload *w = q->workload;
    ty_text line = {0}, source = {0};
    ty_cluster *measured = NULL;
    ty_error detail = {0};
    char *text = NULL;
    double scale;
    ty_status status = TY_OK;

    if (!has_own_times(w)) {
        if (question->profile_device != NULL)
            return ty_fail(error, TY_EINVAL,
                           "--profile-device: found %.60s, but %.80s has no times of its own",
                           question->profile_device, w->name);
        return TY_OK;
    }
    if (question->profile_device == NULL) {
        ty_watch_note(watch,
                      "times of layers are taken as measured on a %s; those of another device are "
                      "scaled by --profile-device",
                      own->name);
        return TY_OK;
    }
    for (uint32_t d = 1; d < ty_cluster_device_count(q->cluster); d++)
        if (strcmp(ty_cluster_device_type(q->cluster, d)->name, own->name) != 0)
            return ty_fail(error, TY_EINVAL,
                           "--profile-device: found devices of several kinds (%s, %s), expected "
                           "one that times are scaled to",
                           own->name, ty_cluster_device_type(q->cluster, d)->name);
    ty_text_addf(&line, "host:1 gpu:1 @%s pcie3 eth10", question->profile_device);
    TY_CHECK(ty_text_check(&line, error), status, cleanup);
    if (ty_cluster_open(line.data, NULL, &measured, &detail) != TY_OK) {
        status = ty_fail(error, TY_EINVAL, "--profile-device: %.200s", detail.message);
        goto cleanup;
    }
    other = ty_cluster_device_type(measured, 0);
    if (strcmp(other->name, own->name) == 0)
        goto cleanup;
    scale = fmax(product_rate(other) / product_rate(own), memory_rate(other) / memory_rate(own));
    for (uint32_t l = 0; l < w->layer_count; l++) {
        w->layers[l].measured_forward_s *= scale;
        w->layers[l].measured_backward_s *= scale;
    }
    ty_text_addf(&source, "%s; measured elsewhere (%s), scaled by %.3g to a %s", w->source,
                 other->name, scale, own->name);
    TY_CHECK(ty_text_take(&source, &text, error), status, cleanup);
    ty_free(w->source);
    w->source = text;
    ty_watch_note(watch, "times of layers measured elsewhere (%s), scaled by %.3g to a %s",
                  other->name, scale, own->name);

cleanup:
    ty_cluster_free(measured);
    ty_text_clear(&source);
    ty_text_clear(&line);
    return status;
}

static ty_status open_workload(const ty_question *question, ty_workload **out, ty_error *error)
{
    ty_text line = {0};
    ty_status status = TY_OK;

    if (question->given != NULL && *question->given != NULL) {
        *out = *question->given;
        *question->given = NULL; /* taken over */
        return TY_OK;
    }
    if (question->sequence == 0)
        return ty_workload_open(question->workload, out, error);
    ty_text_addf(&line, "%s sequence=%llu", question->workload,
                 (unsigned long long)question->sequence);
    TY_CHECK(ty_text_check(&line, error), status, done);
    status = ty_workload_open(line.data, out, error);
done:
    ty_text_clear(&line);
    return status;
}

/* The one that is named; else the usual one for what is asked. Systems (ty_systems.h) differ in
 * what they can run: that is for the stack that can run everything. */
static ty_status open_stack(const ty_question *question, ty_question_inputs *q, ty_error *error)
{
    ty_text replicas = {0};
    ty_plan_options options;
    const char *name = question->stack != NULL ? question->stack : TY_WORKER_STACK;
    ty_status status = TY_OK;

    if (question->stack == NULL && question->system == NULL) {
        status = ty_plan_options_of(question, q, &replicas, &options, error);
        if (status == TY_OK)
            name = ty_stack_default_name(q->workload, q->cluster, q->profile, &options);
    }
    if (status == TY_OK)
        status = ty_stack_open(name, &q->stack, error);
    ty_text_clear(&replicas);
    return status;
}

ty_status ty_question_open(const ty_question *question, const ty_watch *watch,
                           ty_question_inputs *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_question_inputs q = {0};
    uint32_t ranks = 0;

    if ((question->workload == NULL && question->given == NULL) || question->cluster == NULL)
        return ty_fail(error, TY_EINVAL, "--workload and --cluster are needed");
    TY_CHECK(open_workload(question, &q.workload, error), status, cleanup);
    if (question->profile != NULL) {
        TY_CHECK(ty_profile_load(question->profile, &q.profile, error), status, cleanup);
        TY_CHECK(check_rates(question->profile, q.profile,
                             ty_cluster_is_local(question->cluster, &ranks), error),
                 status, cleanup);
    }
    if (question->open_cluster != NULL) {
        q.cluster = ty_cluster_share(question->open_cluster);
    } else if (!ty_cluster_is_local(question->cluster, &ranks)) {
        TY_CHECK(ty_cluster_open(question->cluster, NULL, &q.cluster, error), status, cleanup);
    } else {
        if (ranks == 0)
            ranks = online_cores();
        if (q.profile == NULL)
            TY_CHECK(ty_profile_measure_cached(q.workload, ranks, question->global_batch, watch,
                                               &q.profile, error),
                     status, cleanup);
        TY_CHECK(ty_cluster_local(ranks, q.profile, &q.cluster, error), status, cleanup);
    }
    TY_CHECK(scale_times(question, watch, &q, error), status, cleanup);
    TY_CHECK(open_stack(question, &q, error), status, cleanup);
    TY_CHECK(choose_precision(question->precision, q.cluster,
                              ty_cluster_is_local(question->cluster, &ranks), q.workload, error),
             status, cleanup);
    if (question->profile != NULL)
        TY_CHECK(check_profile(question->profile, q.profile, q.workload, error), status, cleanup);
    *out = q;
    return TY_OK;

cleanup:
    ty_question_inputs_clear(&q);
    return status;
}

/* ---- --fix ------------------------------------------------------------------------------- */

typedef struct fix_target {
    ty_plan_options *options;
    ty_text *replicas;
    uint32_t devices;
} fix_target;

static ty_status fix_count(const char *value, uint64_t most, uint32_t *out, ty_error *error)
{
    uint64_t number;
    ty_status status = ty_parse_uint(value, 1, most, &number, error);

    if (status == TY_OK)
        *out = (uint32_t)number;
    return status;
}

static ty_status fix_stages(fix_target *target, const char *value, ty_error *error)
{
    return fix_count(value, target->devices, &target->options->pipeline_stages, error);
}

static ty_status fix_data_parallel(fix_target *target, const char *value, ty_error *error)
{
    return fix_count(value, target->devices, &target->options->data_parallel, error);
}

/* "2+1" becomes "2,1", which the planner checks. */
static ty_status fix_replicas(fix_target *target, const char *value, ty_error *error)
{
    (void)error;
    for (const char *c = value; *c != '\0'; c++)
        ty_text_append(target->replicas, *c == '+' ? "," : c, 1);
    target->options->replicas = target->replicas->data;
    return TY_OK;
}

static ty_status fix_schedule(fix_target *target, const char *value, ty_error *error)
{
    for (int s = 0; s < TY_SCHEDULE_COUNT; s++) {
        if (strcmp(value, ty_schedule_name((ty_schedule)s)) == 0) {
            target->options->fix_schedule = true;
            target->options->schedule = (ty_schedule)s;
            return TY_OK;
        }
    }
    return ty_fail(error, TY_EINVAL,
                   "found '%s', expected gpipe, 1f1b, interleaved, zb-h1, pipedream or "
                   "pipedream-2bw",
                   value);
}

static ty_status fix_micro_batch(fix_target *target, const char *value, ty_error *error)
{
    return fix_count(value, 1u << 30, &target->options->micro_batch_size, error);
}

static ty_status fix_compression(fix_target *target, const char *value, ty_error *error)
{
    ty_status status = ty_compression_parse(value, &target->options->compression, error);

    target->options->fix_compression = status == TY_OK;
    return status;
}

static ty_status fix_algorithm(fix_target *target, const char *value, ty_error *error)
{
    for (int a = 0; a < TY_ALGORITHM_COUNT; a++)
        if (strcmp(value, ty_algorithm_name((ty_algorithm)a)) == 0) {
            target->options->fix_algorithm = true;
            target->options->algorithm = (ty_algorithm)a;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL,
                   "found '%s', expected ring, tree, automatic, hierarchical, parameter-server or "
                   "block-manager",
                   value);
}

static ty_status fix_bucket(fix_target *target, const char *value, ty_error *error)
{
    return ty_parse_bytes(value, &target->options->bucket_bytes, error);
}

#define LONGEST_CYCLE_S 10.0

static ty_status fix_cycle(fix_target *target, const char *value, ty_error *error)
{
    double seconds;
    ty_status status = ty_parse_seconds(value, &seconds, error);

    if (status == TY_OK && !(seconds > 0 && seconds <= LONGEST_CYCLE_S))
        status = ty_fail(error, TY_EINVAL, "found '%s', expected a time above 0 and up to %g s",
                         value, LONGEST_CYCLE_S);
    if (status == TY_OK)
        target->options->cycle_s = seconds;
    return status;
}

/* A number among the dimensions. */
static ty_status fix_number(fix_target *target, ty_pin pin, const char *value, uint64_t least,
                            uint64_t most, uint32_t *out, ty_error *error)
{
    uint64_t number;
    ty_status status = ty_parse_uint(value, least, most, &number, error);

    if (status == TY_OK) {
        *out = (uint32_t)number;
        target->options->pinned |= pin;
    }
    return status;
}

static ty_status fix_tensor(fix_target *target, const char *value, ty_error *error)
{
    return fix_number(target, TY_PIN_TENSOR, value, 1, target->devices,
                      &target->options->dimensions.tensor_parallel, error);
}

static ty_status fix_context(fix_target *target, const char *value, ty_error *error)
{
    return fix_number(target, TY_PIN_CONTEXT, value, 1, target->devices,
                      &target->options->dimensions.context_parallel, error);
}

static ty_status fix_expert(fix_target *target, const char *value, ty_error *error)
{
    return fix_number(target, TY_PIN_EXPERT, value, 1, target->devices,
                      &target->options->dimensions.expert_parallel, error);
}

static ty_status fix_zero(fix_target *target, const char *value, ty_error *error)
{
    return fix_number(target, TY_PIN_ZERO, value, 0, 3, &target->options->dimensions.zero, error);
}

static ty_status fix_staleness(fix_target *target, const char *value, ty_error *error)
{
    uint64_t steps;
    ty_status status = ty_parse_uint(value, 0, TY_MAX_STALENESS, &steps, error);

    if (status == TY_OK) {
        target->options->staleness = (uint32_t)steps;
        target->options->fix_staleness = true;
    }
    return status;
}

static ty_status fix_interleave(fix_target *target, const char *value, ty_error *error)
{
    return fix_number(target, TY_PIN_INTERLEAVE, value, 1, TY_MAX_STAGES_OF_A_PLAN,
                      &target->options->dimensions.interleave, error);
}

static ty_status fix_sequence(fix_target *target, const char *value, ty_error *error)
{
    uint32_t number = 0;
    ty_status status = fix_number(target, TY_PIN_SEQUENCE, value, 0, 1, &number, error);
    target->options->dimensions.sequence_parallel = number == 1;
    return status;
}

static ty_status fix_devices(fix_target *target, const char *value, ty_error *error)
{
    uint64_t devices;
    const ty_status status = ty_parse_uint(value, 1, target->devices, &devices, error);

    if (status == TY_OK)
        target->options->devices = (uint32_t)devices;
    return status;
}

static ty_status fix_recompute(fix_target *target, const char *value, ty_error *error)
{
    ty_plan_dimensions *d = &target->options->dimensions;
    const ty_status status = ty_recompute_parse(value, &d->recompute, &d->recompute_blocks, error);

    if (status == TY_OK)
        target->options->pinned |= TY_PIN_RECOMPUTE;
    return status;
}

/* As many as there may be keys. */
enum { MOST_FIX_KEYS = 32 };

typedef struct fix_key {
    const char *name;
    ty_status (*apply)(fix_target *target, const char *value, ty_error *error);
} fix_key;

static const fix_key fix_keys[] = {
    {"pp", fix_stages},
    {"dp", fix_data_parallel},
    {"replicas", fix_replicas},
    {"schedule", fix_schedule},
    {"micro_batch", fix_micro_batch},
    {"compression", fix_compression},
    {"bucket", fix_bucket},
    {"cycle", fix_cycle},
    {"tp", fix_tensor},
    {"cp", fix_context},
    {"ep", fix_expert},
    {"sp", fix_sequence},
    {"zero", fix_zero},
    {"interleave", fix_interleave},
    {"staleness", fix_staleness},
    {"recompute", fix_recompute},
    {"algorithm", fix_algorithm},
    {"devices", fix_devices},
};
#define FIX_KEY_COUNT (sizeof fix_keys / sizeof fix_keys[0])
_Static_assert(FIX_KEY_COUNT <= MOST_FIX_KEYS, "more keys than are remembered");

const char *ty_fix_key_at(uint32_t index)
{
    return index < FIX_KEY_COUNT ? fix_keys[index].name : NULL;
}

bool ty_fix_key_is_known(const char *key)
{
    for (size_t k = 0; k < FIX_KEY_COUNT; k++)
        if (strcmp(key, fix_keys[k].name) == 0)
            return true;
    return false;
}

static ty_status fix_one(fix_target *target, char *item, const char *said[MOST_FIX_KEYS],
                         ty_error *error)
{
    char *equals = strchr(item, '=');
    const char *close;
    ty_error detail = {0};

    if (equals == NULL)
        return ty_fail(error, TY_EINVAL, "--fix: found '%s', expected KEY=VALUE", item);
    *equals = '\0';
    for (size_t k = 0; k < FIX_KEY_COUNT; k++) {
        if (strcmp(item, fix_keys[k].name) != 0)
            continue;
        if (said[k] != NULL && strcmp(said[k], equals + 1) != 0)
            return ty_fail(error, TY_EINVAL, "--fix: found %s=%s and %s=%s, expected one of them",
                           item, said[k], item, equals + 1);
        said[k] = equals + 1;
        if (fix_keys[k].apply(target, equals + 1, &detail) != TY_OK)
            return ty_fail(error, TY_EINVAL, "--fix %s: %s", item, detail.message);
        return TY_OK;
    }
    close = ty_suggest(item, fix_keys, FIX_KEY_COUNT, sizeof fix_keys[0]);
    return ty_fail(error, TY_EINVAL, "--fix: unknown key '%s'%s%s", item,
                   close != NULL ? "; did you mean " : "", close != NULL ? close : "");
}

static ty_status fix_all(fix_target *target, const char *text, ty_error *error)
{
    ty_status status = TY_OK;
    char *copy = ty_strdup(text);
    char *rest = copy;
    char *item;
    const char *said[MOST_FIX_KEYS] = {NULL};

    if (copy == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    while (status == TY_OK && (item = strtok_r(rest, ",", &rest)) != NULL)
        status = fix_one(target, item, said, error);
    ty_free(copy);
    return status;
}

ty_status ty_plan_options_of(const ty_question *question, const ty_question_inputs *inputs,
                             ty_text *replicas, ty_plan_options *out, ty_error *error)
{
    ty_status status = TY_OK;
    fix_target target = {
        .options = out, .replicas = replicas, .devices = ty_cluster_device_count(inputs->cluster)};

    *out = ty_plan_options_default();
    out->stack = inputs->stack;
    out->global_batch = question->global_batch;
    out->seed = question->seed;
    out->allow_lossy = question->allow_lossy;
    /* Systems are what they are. */
    out->tolerance = question->is_fastest || question->system != NULL ? 0 : TY_USUAL_TOLERANCE;
    if (question->fix != NULL)
        TY_CHECK(fix_all(&target, question->fix, error), status, done);
    if (replicas->failed)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    /* Who says how devices are divided means all of them; systems use what they are given. */
    out->may_idle = question->system == NULL && out->pipeline_stages == 0 &&
                    out->data_parallel == 0 && out->replicas == NULL &&
                    (out->pinned & ((uint32_t)TY_PIN_TENSOR | TY_PIN_CONTEXT | TY_PIN_EXPERT)) == 0;
done:
    return status;
}
