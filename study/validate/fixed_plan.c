/* Step time of a plan that others chose. */
#include "fixed_plan.h"

#include "candidate.h"

#include <math.h>
#include <stdio.h>

#define TIMED_STEPS 3
/* A step is computing, in proportion to the scale, and the rest: each round leaves the rest's share
   of the error. */
#define CALIBRATION_ROUNDS 200
#define CALIBRATION_TOLERANCE 1e-6
#define SMALLEST_SCALE 1e-4

ty_fixed_plan ty_fixed_data_parallel(const ty_workload *workload, const ty_cluster *cluster,
                                     uint32_t devices, uint32_t batch_per_device,
                                     uint64_t bucket_bytes)
{
    return (ty_fixed_plan){.workload = workload,
                           .cluster = cluster,
                           .stage_count = 1,
                           .replicas = {devices},
                           .micro_batch_size = batch_per_device,
                           .micro_batches = devices,
                           .schedule = TY_ONE_F_ONE_B,
                           .bucket_bytes = bucket_bytes,
                           .compute_scale = 1,
                           .devices = devices};
}

ty_status ty_fixed_plan_use_server(ty_fixed_plan *plan, double root_bytes_per_s,
                                   uint32_t devices_per_host, ty_error *error)
{
    uint32_t local = plan->devices < devices_per_host ? plan->devices : devices_per_host;
    uint32_t hosts = (plan->devices + local - 1) / local;
    ty_path path = {0};
    ty_status status = TY_OK;

    if (plan->devices < 2)
        return TY_OK;
    status = ty_cluster_path(plan->cluster, 0, plan->devices - 1, &path, error);
    if (status != TY_OK)
        return status;
    plan->server_s_per_byte = 2.0 * local / root_bytes_per_s;
    if (hosts > 1)
        plan->server_s_per_byte += 2.0 * (hosts - 1) / hosts / path.bandwidth_bytes_per_s;
    plan->server_latency_s = 2 * path.latency_s;
    ty_path_clear(&path);
    return TY_OK;
}

ty_status ty_passes_seconds(const ty_cluster *cluster, uint32_t devices, double passes,
                            double bytes, double *seconds, ty_error *error)
{
    uint32_t *members = ty_alloc(devices, sizeof *members);
    double bandwidth, latency_s;
    ty_status status;

    if (members == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < devices; i++)
        members[i] = i;
    *seconds = 0;
    status = ty_cluster_ring(cluster, members, devices, &bandwidth, &latency_s, error);
    if (status == TY_OK && devices > 1)
        *seconds = passes * (devices - 1) / devices * bytes / bandwidth;
    ty_free(members);
    return status;
}

ty_status ty_fixed_plan_use_passes(ty_fixed_plan *plan, double passes, ty_error *error)
{
    return ty_passes_seconds(plan->cluster, plan->devices, passes, 1, &plan->server_s_per_byte,
                             error);
}

static bool is_device_work(ty_op op)
{
    return op == TY_OP_FORWARD || op == TY_OP_BACKWARD || op == TY_OP_RECOMPUTE ||
           op == TY_OP_UPDATE;
}

static void scale_compute(const ty_program *program, double scale, ty_costs *costs)
{
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
            if (is_device_work(program->stages[s].instructions[i].op))
                costs->instructions[s][i].seconds *= scale;
}

static void replace_collectives(const ty_fixed_plan *plan, const draft *d, ty_costs *costs)
{
    for (uint32_t s = 0; s < d->program->stage_count; s++) {
        for (uint32_t i = 0; i < d->program->stages[s].instruction_count; i++) {
            const ty_instruction *instruction = &d->program->stages[s].instructions[i];
            if (instruction->op == TY_OP_COLLECTIVE)
                costs->instructions[s][i].seconds =
                    plan->server_latency_s + plan->server_s_per_byte * (double)instruction->bytes;
        }
    }
}

static ty_status recompute_all(draft *d, ty_error *error)
{
    for (uint32_t s = 0; s < d->plan->stage_count; s++)
        d->plan->stages[s].recompute = TY_RECOMPUTE_FULL;
    ty_program_free(d->program);
    d->program = NULL;
    return ty_plan_lower(d->plan, &d->program, error);
}

static ty_status time_draft(const ty_fixed_plan *plan, const draft *d, double *step_time_s,
                            ty_error *error)
{
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_status status = TY_OK;

    TY_CHECK(ty_costs_of_program(d->plan, d->program, plan->cluster, &costs, error), status,
             cleanup);
    scale_compute(d->program, plan->compute_scale, costs);
    if (plan->server_s_per_byte > 0)
        replace_collectives(plan, d, costs);
    TY_CHECK(ty_estimate(d->plan, d->program, costs, TIMED_STEPS, &timeline, error), status,
             cleanup);
    TY_CHECK(ty_timeline_summarize(d->plan, d->program, timeline, &summary, error), status,
             cleanup);
    *step_time_s = summary.step_time_s * (1 + plan->jitter * ty_expected_largest(plan->devices));

cleanup:
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    return status;
}

ty_status ty_fixed_plan_step(const ty_fixed_plan *plan, double *step_time_s, ty_error *error)
{
    ty_plan_options options = ty_plan_options_default();
    search_question q = {0};
    division where = {.stage_count = plan->stage_count};
    candidate c = {.division = &where,
                   .micro_batches = plan->micro_batches,
                   .schedule = plan->schedule,
                   .bucket_bytes = plan->bucket_bytes,
                   .compression.kind = plan->compression};
    draft d = {0};
    ty_status status = TY_OK;

    if (plan->stage_count == 0 || plan->stage_count > TY_FIXED_PLAN_STAGES)
        return ty_fail(error, TY_EINVAL, "found %u stages, expected 1 to %d", plan->stage_count,
                       TY_FIXED_PLAN_STAGES);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        where.first_layers[s] = plan->first_layers[s];
        where.replicas[s] = plan->replicas[s];
    }
    options.global_batch = ty_cluster_device_count(plan->cluster); /* any that is allowed */
    TY_CHECK(ty_search_question_make(plan->workload, plan->cluster, NULL, &options, &q, error),
             status, cleanup);
    q.global_batch = plan->micro_batches * plan->micro_batch_size;
    TY_CHECK(ty_draft_make(&q, &c, &d, error), status, cleanup);
    if (plan->recompute)
        TY_CHECK(recompute_all(&d, error), status, cleanup);
    status = time_draft(plan, &d, step_time_s, error);

cleanup:
    ty_draft_clear(&d);
    ty_search_question_clear(&q);
    return status;
}

ty_status ty_fixed_plan_calibrate(ty_fixed_plan *plan, double measured_s, double *scale,
                                  ty_error *error)
{
    double step_s = 0, candidate_scale = 1;
    ty_status status = TY_OK;

    if (!(measured_s > 0) || isinf(measured_s))
        return ty_fail(error, TY_EINVAL, "found a step of %g s, expected a number > 0", measured_s);
    for (int i = 0; i < CALIBRATION_ROUNDS; i++) {
        plan->compute_scale = candidate_scale;
        TY_CHECK(ty_fixed_plan_step(plan, &step_s, error), status, done);
        if (fabs(step_s / measured_s - 1) < CALIBRATION_TOLERANCE) {
            *scale = candidate_scale;
            return TY_OK;
        }
        candidate_scale *= measured_s / step_s;
        if (candidate_scale < SMALLEST_SCALE)
            break;
    }
    status =
        ty_fail(error, TY_EINFEASIBLE,
                "what does not depend on computing takes %.3g s of a step that was measured at "
                "%.3g s",
                step_s, measured_s);
done:
    return status;
}

/* ---- Chains ------------------------------------------------------------------------------ */

static ty_status link_of_chain(const ty_workload *w, uint32_t index, const ty_device_type *device,
                               uint32_t micro_batch_size, ty_layer *out, ty_error *error)
{
    const ty_layer *layer = &w->layers[index];
    uint64_t crossing = ty_workload_cut_bytes(w, index + 1);
    char name[32];
    double forward_s, backward_s;
    ty_provenance provenance;
    ty_status status = ty_layer_cost(w, index, micro_batch_size, device, NULL, &forward_s,
                                     &backward_s, &provenance, error);

    if (status != TY_OK)
        return status;
    snprintf(name, sizeof name, "layer%u", index);
    *out = (ty_layer){.name = ty_strdup(name),
                      .kind = TY_LAYER_OPAQUE,
                      .input_count = index > 0 ? 1 : 0,
                      .inputs = ty_alloc(1, sizeof *out->inputs),
                      .tied_to = TY_NO_LAYER,
                      .is_frozen = layer->is_frozen,
                      .output = {1, {crossing / w->element_bytes}},
                      .forward_flop = layer->forward_flop,
                      .backward_flop = layer->backward_flop,
                      .parameter_bytes = layer->parameter_bytes,
                      .output_bytes = crossing,
                      .stash_bytes = layer->stash_bytes,
                      .kernel_count = layer->kernel_count,
                      .measured_forward_s = forward_s / micro_batch_size,
                      .measured_backward_s = backward_s / micro_batch_size};
    if (out->name == NULL || out->inputs == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    if (index > 0)
        out->inputs[0] = index - 1;
    return TY_OK;
}

ty_status ty_workload_chain(const ty_workload *w, const ty_device_type *device,
                            uint32_t micro_batch_size, ty_workload **out, ty_error *error)
{
    ty_workload *chain = ty_alloc(1, sizeof *chain);
    ty_status status = TY_OK;

    if (chain == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    *chain = *w;
    chain->layer_count = 0;
    chain->name = ty_strdup(w->name);
    chain->source = ty_strdup(w->source);
    chain->dataset = ty_strdup(w->dataset);
    chain->layers = ty_alloc(w->layer_count, sizeof *chain->layers);
    if (chain->name == NULL || chain->source == NULL || chain->dataset == NULL ||
        chain->layers == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    for (uint32_t i = 0; i < w->layer_count; i++) {
        chain->layer_count = i + 1;
        TY_CHECK(link_of_chain(w, i, device, micro_batch_size, &chain->layers[i], error), status,
                 cleanup);
    }
    *out = chain;
    chain = NULL;

cleanup:
    ty_workload_free(chain);
    return status;
}

typedef struct cut_costs {
    double *layer_s, *transfer_s;
    uint32_t *cuts;
} cut_costs;

static ty_status cost_cuts(const ty_workload *chain, const ty_cluster *cluster,
                           uint32_t micro_batch_size, bool recompute, cut_costs *c, ty_error *error)
{
    uint32_t n = chain->layer_count;
    ty_path path = {0};
    ty_status status = TY_OK;

    c->layer_s = ty_alloc(n, sizeof *c->layer_s);
    c->transfer_s = ty_alloc((size_t)n + 1, sizeof *c->transfer_s);
    c->cuts = ty_alloc(n, sizeof *c->cuts);
    if (c->layer_s == NULL || c->transfer_s == NULL || c->cuts == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    if (ty_cluster_device_count(cluster) > 1)
        TY_CHECK(ty_cluster_path(cluster, 0, 1, &path, error), status, done);
    for (uint32_t i = 0; i < n; i++) {
        const ty_layer *l = &chain->layers[i];
        c->layer_s[i] = micro_batch_size *
                        (l->measured_forward_s * (recompute ? 2 : 1) + l->measured_backward_s);
        if (i > 0 && path.bandwidth_bytes_per_s > 0)
            c->transfer_s[i] =
                2 * (path.latency_s + micro_batch_size * (double)ty_workload_cut_bytes(chain, i) /
                                          path.bandwidth_bytes_per_s);
        if (i > 0)
            c->cuts[i - 1] = i;
    }
done:
    ty_path_clear(&path);
    return status;
}

ty_status ty_chain_divide(const ty_workload *chain, const ty_cluster *cluster, uint32_t stage_count,
                          const uint32_t *replicas, bool recompute, ty_fixed_plan *plan,
                          ty_error *error)
{
    uint32_t ones[TY_FIXED_PLAN_STAGES];
    const uint32_t *fixed = replicas != NULL ? replicas : ones;
    cut_costs c = {0};
    ty_partition_input input = {
        .layer_count = chain->layer_count, .stages = stage_count, .fixed_replicas = fixed};
    double bottleneck_s;
    ty_status status = TY_OK;

    if (stage_count == 0 || stage_count > TY_FIXED_PLAN_STAGES)
        return ty_fail(error, TY_EINVAL, "found %u stages, expected 1 to %d", stage_count,
                       TY_FIXED_PLAN_STAGES);
    for (uint32_t s = 0; s < stage_count; s++) {
        ones[s] = 1;
        input.devices += fixed[s];
    }
    TY_CHECK(cost_cuts(chain, cluster, plan->micro_batch_size, recompute, &c, error), status,
             cleanup);
    input.layer_s = c.layer_s;
    input.transfer_s = c.transfer_s;
    input.cuts = c.cuts;
    input.cut_count = chain->layer_count - 1;
    TY_CHECK(ty_partition(&input, plan->first_layers, plan->replicas, &bottleneck_s, error), status,
             cleanup);
    plan->workload = chain;
    plan->cluster = cluster;
    plan->stage_count = stage_count;
    plan->recompute = recompute;

cleanup:
    ty_free(c.cuts);
    ty_free(c.transfer_s);
    ty_free(c.layer_s);
    return status;
}
