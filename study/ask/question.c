/* Opens the inputs of questions: plan files, workloads, clusters, profiles, and pins. */
#include "question.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNKNOWN_RATE 1 /* flop/s: placeholder in a profile made from a trace */

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

/* Tolerance for sums in another order. */
#define SAME_STEP 1e-9

ty_status ty_plan_inputs_compare(const ty_plan_inputs *inputs, const char *name,
                                 const ty_watch *watch, ty_error *error)
{
    const double stored_s = inputs->plan->prediction.step_time_s;
    char stored[32], found[32];
    ty_step_summary now;
    ty_status status;

    if (!inputs->plan->has_prediction || !ty_watch_listens(watch))
        return TY_OK;
    status = ty_estimate_summary(inputs->plan, inputs->program, inputs->costs,
                                 3 + 2 * ty_program_largest_lead(inputs->program), &now, error);
    if (status != TY_OK || fabs(now.step_time_s - stored_s) <= SAME_STEP * stored_s)
        return status;
    ty_format_seconds(stored_s, stored);
    ty_format_seconds(now.step_time_s, found);
    ty_watch_note(watch,
                  "warning: %s: the plan predicts %s per step, but its estimate is now %s; plan "
                  "again, or expect other figures than those in the file",
                  name, stored, found);
    return TY_OK;
}

ty_status ty_plan_inputs_load(const char *path, const char *stack, const ty_watch *watch,
                              ty_plan_inputs *out, ty_error *error)
{
    ty_plan *plan = NULL;
    ty_stack *other = NULL;
    ty_plan_inputs inputs = {0};
    ty_status status = TY_OK;

    TY_CHECK(ty_plan_load(path, &plan, error), status, cleanup);
    if (stack != NULL) {
        TY_CHECK(ty_stack_open(stack, &other, error), status, cleanup);
        TY_CHECK(ty_plan_use_stack(plan, other, error), status, cleanup);
    }
    status = ty_plan_inputs_from(plan, &inputs, error);
    plan = NULL; /* ownership moved */
    if (status == TY_OK && stack == NULL)
        status = ty_plan_inputs_compare(&inputs, path, watch, error);
    if (status == TY_OK) {
        *out = inputs;
        inputs = (ty_plan_inputs){0}; /* ownership moved */
    }

cleanup:
    ty_plan_inputs_clear(&inputs);
    ty_stack_free(other);
    ty_plan_free(plan);
    return status;
}

ty_status ty_plan_inputs_of_worker(ty_plan_inputs *inputs, ty_error *error)
{
    ty_plan *plan = inputs->plan;
    const bool was_predicted = plan->has_prediction;
    ty_stack *worker = NULL;
    ty_costs *costs = NULL;
    ty_status status = TY_OK;

    if (plan->stack != NULL && plan->stack->memory == TY_MEMORY_WORKER)
        return TY_OK;
    TY_CHECK(ty_stack_open(TY_WORKER_STACK, &worker, error), status, done);
    TY_CHECK(ty_plan_use_stack(plan, worker, error), status, done);
    TY_CHECK(ty_costs_of_program(plan, inputs->program, inputs->cluster, &costs, error), status,
             done);
    ty_costs_free(inputs->costs);
    inputs->costs = costs;
    if (was_predicted)
        status = ty_estimate_summary(plan, inputs->program, costs,
                                     3 + 2 * ty_program_largest_lead(inputs->program),
                                     &plan->prediction, error);
    plan->has_prediction = was_predicted && status == TY_OK;
done:
    ty_stack_free(worker);
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

/* Refuses a profile with layer times but none for these layers in this precision, as it would have
 * no effect. */
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
        return TY_OK; /* a profile of collectives, for example */
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

/* Half precision is faster on devices with units for it; a P100 has twice its fp32 rate without. */
#define FASTER_HALVES 2.1

/* Whether it is a language model or a convolutional image model. */
static bool is_usual_network(const ty_workload *w)
{
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (ty_layer_row_of(&w->layers[l])->is_convolution)
            return w->local_steps <= 1 && w->learning == TY_LEARNING_GRADIENT;
    return w->tokens_per_sample > 0;
}

/* Language and image models use half precision on devices with units for it, unless one is
 * specified; other workloads use their own.
 * @param is_measured layer times come from a profile, which has one precision */
static ty_status choose_precision(const char *asked, const ty_cluster *cluster, bool is_measured,
                                  ty_workload *workload, ty_error *error)
{
    const ty_device_type *device = ty_cluster_device_type(cluster, 0);
    ty_precision precision;
    ty_error detail;
    const bool has_halves =
        device->peak_fp16_flop_per_s > FASTER_HALVES * device->peak_fp32_flop_per_s;

    if (asked == NULL) {
        if (has_halves && !is_measured && is_usual_network(workload) &&
            workload->precision == TY_PRECISION_FP32)
            ty_workload_set_precision(workload, TY_PRECISION_BF16);
        return TY_OK;
    }
    if (ty_precision_find(asked, &precision, &detail) != TY_OK)
        return ty_fail(error, TY_EINVAL, "--%s", detail.message);
    ty_workload_set_precision(workload, precision);
    return TY_OK;
}

/* Such a file lacks the kinds of layers. So their times are scaled by the smaller of two ratios of
 * the cluster's device to the measured one: product rate and memory rate. */
static ty_status scale_times(const ty_question *question, const ty_watch *watch, bool is_local,
                             ty_question_inputs *q, ty_error *error)
{
    const ty_device_type *own = ty_cluster_device_type(q->cluster, 0), *other;
    ty_workload *w = q->workload;
    const bool has_times = ty_workload_has_times(w);
    const bool has_profile = question->profile != NULL && q->profile->layer_time_count > 0;
    ty_text line = {0}, source = {0};
    ty_cluster *measured = NULL;
    ty_error detail = {0};
    char *text = NULL;
    double scale;
    ty_status status = TY_OK;

    if (!has_times && !has_profile) {
        if (question->profile_device != NULL)
            return ty_fail(error, TY_EINVAL,
                           "--profile-device: found %.60s, but %.80s has no times of its own, and "
                           "there is no --profile",
                           question->profile_device, w->name);
        return TY_OK;
    }
    if (question->profile_device == NULL && has_times && is_local)
        ty_watch_note(watch, "times of layers are taken as measured on this machine");
    if (question->profile_device == NULL && has_times && !is_local)
        return ty_fail(error, TY_EINVAL,
                       "times of the layers of %.80s are of a device that the file does not name; "
                       "expected --profile-device D (--profile-device %.60s, if it was that of the "
                       "cluster)",
                       w->name, own->name);
    if (question->profile_device == NULL || strcmp(question->profile_device, own->name) == 0)
        return TY_OK;
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
    scale = fmax(other->peak_fp32_flop_per_s * other->matmul_efficiency /
                     (own->peak_fp32_flop_per_s * own->matmul_efficiency),
                 other->memory_bandwidth_bytes_per_s * other->memory_efficiency /
                     (own->memory_bandwidth_bytes_per_s * own->memory_efficiency));
    if (has_profile)
        TY_CHECK(ty_profile_scale(q->profile, other->name, scale, error), status, cleanup);
    if (!has_times)
        goto noted;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        w->layers[l].measured_forward_s *= scale;
        w->layers[l].measured_backward_s *= scale;
    }
    ty_text_addf(&source, "%s; measured elsewhere (%s), scaled by %.3g to a %s", w->source,
                 other->name, scale, own->name);
    TY_CHECK(ty_text_take(&source, &text, error), status, cleanup);
    ty_free(w->source);
    w->source = text;
noted:
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
    ty_workload *workload = NULL;
    ty_text line = {0};
    ty_error detail = {0};
    ty_status status = TY_OK;

    if (question->given != NULL && *question->given != NULL) {
        workload = *question->given;
        *question->given = NULL; /* ownership moved */
    } else {
        ty_text_add(&line, question->workload);
        if (question->sequence > 0)
            ty_text_addf(&line, " sequence=%llu", (unsigned long long)question->sequence);
        status = ty_text_check(&line, error);
        if (status == TY_OK)
            status = ty_workload_open(line.data, &workload, error);
        ty_text_clear(&line);
    }
    if (status == TY_OK && question->optimizer != NULL &&
        ty_optimizer_set(&workload->optimizer, question->optimizer, &detail) != TY_OK)
        status = ty_fail(error, TY_EINVAL, "--%s", detail.message);
    if (status == TY_OK && question->image_height > 0)
        status = ty_workload_set_image_size(workload, question->image_height, question->image_width,
                                            error);
    if (status != TY_OK) {
        ty_workload_free(workload);
        return status;
    }
    *out = workload;
    return TY_OK;
}

/* Opens the named framework; else the default one of the question, or of the system. */
static ty_status open_stack(const ty_question *question, ty_question_inputs *q, ty_error *error)
{
    const ty_system *system = question->system != NULL ? ty_system_find(question->system) : NULL;
    ty_plan_options options;
    ty_status status;

    if (question->stack != NULL)
        return ty_stack_open(question->stack, &q->stack, error);
    status = ty_plan_options_of(question, q, &options, error);
    if (status == TY_OK && system != NULL)
        status = ty_system_open_stack(system, q->workload, q->cluster, q->profile, &options,
                                      &q->stack, error);
    else if (status == TY_OK)
        status =
            ty_stack_open_default(q->workload, q->cluster, q->profile, &options, &q->stack, error);
    return status;
}

static ty_status open_local(const ty_question *question, uint32_t ranks, ty_question_inputs *q,
                            ty_error *error)
{
    ty_status status = ty_cluster_local(ranks, q->profile, &q->cluster, error);

    return status == TY_OK ? ty_cluster_describe_storage(q->cluster, question->cluster, error)
                           : status;
}

/* Checks a question about this machine with placeholder rates before measuring, since an invalid
 * question is invalid with any rates. The search later handles plans that do not fit and suggests
 * changes.
 */
static ty_status check_unmeasured(const ty_question *question, uint32_t ranks,
                                  ty_workload *workload, ty_error *error)
{
    ty_transfer_time transfers[] = {{.bytes = 1000, .seconds = 1e-6},
                                    {.bytes = 2000, .seconds = 2e-6}};
    ty_profile made_up = {.cores = online_cores(),
                          .memory_bytes = ranks,
                          .peak_flop_per_s = 1,
                          .memory_bandwidth_bytes_per_s = 1,
                          .transfer_time_count = 2,
                          .transfer_times = transfers};
    ty_question_inputs q = {.workload = workload, .profile = &made_up};
    ty_error detail = {0};
    ty_status status = TY_OK;

    TY_CHECK(open_local(question, ranks, &q, error), status, done);
    TY_CHECK(choose_precision(question->precision, q.cluster, true, q.workload, error), status,
             done);
    TY_CHECK(open_stack(question, &q, error), status, done);
    status = ty_question_check(question, &q, &detail);
    if (status == TY_EINFEASIBLE)
        status = TY_OK;
    else if (status != TY_OK)
        status = ty_fail(error, status, "%s", detail.message);
done:
    q.workload = NULL; /* owned by the caller */
    q.profile = NULL;
    ty_question_inputs_clear(&q);
    return status;
}

/* ---- The device that what is trained is for ------------------------------------------------- */

/* If replicas take local steps, the cluster's devices are the deployment devices. */
static ty_status cap_memory(const ty_question *question, ty_question_inputs *q, ty_error *error)
{
    const uint32_t devices = ty_cluster_device_count(q->cluster);
    ty_budget budget;
    ty_cluster *edited;

    if (question->budget == NULL || q->workload->local_steps <= 1)
        return TY_OK;
    TY_TRY(ty_budget_open(question->budget, &budget, error));
    for (uint32_t d = 0; d < devices && budget.memory_bytes > 0; d++) {
        const ty_device_type *type = ty_cluster_device_type(q->cluster, d);
        const ty_cluster_edit edit = {.part = TY_PART_DEVICES,
                                      .name = type->name,
                                      .field = "memory_bytes",
                                      .value = budget.memory_bytes};
        if ((double)type->memory_bytes <= budget.memory_bytes)
            continue;
        TY_TRY(ty_cluster_edited(q->cluster, &edit, 1, &edited, error));
        ty_cluster_free(q->cluster);
        q->cluster = edited;
    }
    return TY_OK;
}

/* ---- All of it ------------------------------------------------------------------------------ */

ty_status ty_question_check_inputs(const ty_question *question, ty_error *error)
{
    const bool has_workload = question->workload != NULL || question->given != NULL;

    if (has_workload && question->cluster != NULL)
        return TY_OK;
    return ty_fail(error, TY_EINVAL, "%s needed",
                   has_workload                ? "--cluster is"
                   : question->cluster != NULL ? "--workload is"
                                               : "--workload and --cluster are");
}

ty_status ty_question_open(const ty_question *question, const ty_watch *watch,
                           ty_question_inputs *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_question_inputs q = {0};
    uint32_t ranks = 0;
    bool is_measured;

    TY_CHECK(ty_question_check_inputs(question, error), status, cleanup);
    TY_CHECK(open_workload(question, &q.workload, error), status, cleanup);
    if (question->profile != NULL) {
        TY_CHECK(ty_profile_load(question->profile, &q.profile, error), status, cleanup);
        if (ty_cluster_is_local(question->cluster, &ranks) &&
            q.profile->peak_flop_per_s <= UNKNOWN_RATE) {
            status =
                ty_fail(error, TY_EPARSE,
                        "%s: has no rates, as profiles from traces do not: they say nothing of "
                        "this machine; name the cluster that was traced",
                        question->profile);
            goto cleanup;
        }
    }
    if (question->open_cluster != NULL) {
        q.cluster = ty_cluster_share(question->open_cluster);
    } else if (!ty_cluster_is_local(question->cluster, &ranks)) {
        TY_CHECK(ty_cluster_open(question->cluster, NULL, &q.cluster, error), status, cleanup);
    } else {
        if (ranks == 0)
            ranks = online_cores();
        if (q.profile == NULL)
            TY_CHECK(check_unmeasured(question, ranks, q.workload, error), status, cleanup);
        if (q.profile == NULL)
            TY_CHECK(ty_profile_measure_cached(q.workload, ranks, question->global_batch, watch,
                                               &q.profile, error),
                     status, cleanup);
        TY_CHECK(open_local(question, ranks, &q, error), status, cleanup);
    }
    TY_CHECK(cap_memory(question, &q, error), status, cleanup);
    TY_CHECK(
        scale_times(question, watch, ty_cluster_is_local(question->cluster, &ranks), &q, error),
        status, cleanup);
    is_measured = ty_cluster_is_local(question->cluster, &ranks) ||
                  (q.profile != NULL && q.workload->tokens_per_sample == 0);
    TY_CHECK(choose_precision(question->precision, q.cluster, is_measured, q.workload, error),
             status, cleanup);
    TY_CHECK(open_stack(question, &q, error), status, cleanup);
    if (question->profile != NULL)
        TY_CHECK(check_profile(question->profile, q.profile, q.workload, error), status, cleanup);
    *out = q;
    return TY_OK;

cleanup:
    ty_question_inputs_clear(&q);
    return status;
}
