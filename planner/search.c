/* The search: enumerate, order by a quick bound, estimate the promising, simulate the finalists. */
#include "candidate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How many of the candidates that look best by their bound are estimated properly. */
#define ESTIMATES 32
/* Steps an estimate walks: the differences between the last ones are the steady state. */
#define ESTIMATED_STEPS 3

ty_plan_options ty_plan_options_default(void)
{
    return (ty_plan_options){.seed = 1, .top_k_ratio = 0.01};
}

/* ---- The question ------------------------------------------------------------------------ */

void ty_search_question_clear(search_question *q)
{
    ty_free(q->cuts);
    ty_free(q->cluster_json);
}

/* The cluster as compact text, which is what plans carry and what its digest is of. */
static ty_status cluster_text(const ty_cluster *cluster, char **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;

    ty_cluster_to_json(cluster, &writer, NULL);
    if (text.failed || text.data == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    TY_CHECK(ty_json_parse(text.data, text.length, "cluster", &document, error), status, done);
    TY_CHECK(ty_json_text(ty_json_root(document), out, error), status, done);
done:
    ty_json_free(document);
    ty_text_clear(&text);
    return status;
}

ty_status ty_search_question_make(const ty_workload *workload, const ty_cluster *cluster,
                                  const ty_profile *profile, const ty_plan_options *options,
                                  search_question *q, ty_error *error)
{
    ty_status status = TY_OK;

    *q = (search_question){.workload = workload,
                           .cluster = cluster,
                           .profile = profile,
                           .options = options,
                           .device_count = ty_cluster_device_count(cluster)};
    q->global_batch = options->global_batch > 0 ? options->global_batch : workload->global_batch;
    TY_CHECK(ty_workload_cuts(workload, &q->cuts, &q->cut_count, error), status, failed);
    TY_CHECK(ty_workload_digest(workload, &q->workload_digest, error), status, failed);
    TY_CHECK(cluster_text(cluster, &q->cluster_json, error), status, failed);
    q->cluster_digest = ty_digest_of(q->cluster_json, strlen(q->cluster_json));
    return TY_OK;

failed:
    ty_search_question_clear(q);
    return status;
}

/* Questions without sense, each with the nearest one that has some. */
static ty_status search_question_check(const search_question *q, ty_error *error)
{
    const ty_plan_options *o = q->options;

    if (o->micro_batch_size > 0 && q->global_batch % o->micro_batch_size != 0)
        return ty_fail(error, TY_EINVAL,
                       "a global batch of %u cannot be cut into micro-batches of %u",
                       q->global_batch, o->micro_batch_size);
    if (o->pipeline_stages > q->device_count)
        return ty_fail(error, TY_EINVAL, "%u pipeline stages need %u devices, the cluster has %u",
                       o->pipeline_stages, o->pipeline_stages, q->device_count);
    if (o->pipeline_stages > q->cut_count + 1)
        return ty_fail(error, TY_EINVAL,
                       "%s can be divided into at most %u stages, %u were asked for",
                       q->workload->name, q->cut_count + 1, o->pipeline_stages);
    if (q->global_batch < q->device_count && o->pipeline_stages == 0 && o->replicas == NULL &&
        q->cut_count + 1 < q->device_count)
        return ty_fail(error, TY_EINVAL,
                       "a global batch of %u is too small for %u devices: ask for at least %u",
                       q->global_batch, q->device_count, q->device_count);
    return TY_OK;
}

/* ---- Judging one candidate --------------------------------------------------------------- */

/* Ring or tree, whichever is cheaper for the bucket. */
static ty_status choose_algorithms(const search_question *q, ty_plan *plan, ty_error *error)
{
    ty_status status = TY_OK;
    ty_program *program = NULL;
    ty_costs *costs[TY_ALGORITHM_COUNT] = {NULL};
    bool is_free = false;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        is_free = is_free || ty_bucket_collective(&plan->buckets[b]) == TY_ALL_REDUCE;
    if (!is_free || ty_plan_rank_count(plan) < 3) /* among two, ring and tree move the same bytes */
        return TY_OK;
    TY_CHECK(ty_plan_lower(plan, &program, error), status, done);
    for (int a = 0; a < TY_ALGORITHM_COUNT; a++) {
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            if (ty_bucket_collective(&plan->buckets[b]) == TY_ALL_REDUCE)
                plan->buckets[b].algorithm = (ty_algorithm)a;
        TY_CHECK(ty_costs_of_program(plan, program, q->cluster, &costs[a], error), status, done);
    }
    for (uint32_t s = 0; s < program->stage_count; s++) {
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++) {
            const ty_instruction *in = &program->stages[s].instructions[i];
            if (in->op == TY_OP_COLLECTIVE &&
                ty_bucket_collective(&plan->buckets[in->bucket]) == TY_ALL_REDUCE)
                plan->buckets[in->bucket].algorithm =
                    costs[TY_TREE]->instructions[s][i].seconds <
                            costs[TY_RING]->instructions[s][i].seconds
                        ? TY_TREE
                        : TY_RING;
        }
    }
done:
    for (int a = 0; a < TY_ALGORITHM_COUNT; a++)
        ty_costs_free(costs[a]);
    ty_program_free(program);
    return status;
}

/* Largest device of the plan, and by how much the worst stage misses. */
static void judge_memory(const search_question *q, const ty_plan *plan, candidate *c)
{
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint64_t need = ty_memory_use_total(&plan->memory[s]);
        if (need > c->peak_memory_bytes)
            c->peak_memory_bytes = need;
        for (uint32_t r = 0; r < plan->stages[s].replicas; r++) {
            uint64_t room =
                ty_cluster_device_type(q->cluster, plan->stages[s].devices[r])->memory_bytes;
            if (need > room && need - room > c->missing_bytes) {
                c->missing_bytes = need - room;
                c->missing_stage = s;
            }
        }
    }
}

/* A candidate's plan with program and costs. */
typedef struct workup {
    ty_plan *plan;
    ty_program *program;
    ty_costs *costs;
} workup;

static void workup_clear(workup *w)
{
    ty_costs_free(w->costs);
    ty_program_free(w->program);
    ty_candidate_plan_free(w->plan);
    *w = (workup){0};
}

static ty_status workup_make(const search_question *q, const candidate *c, workup *out,
                             ty_error *error)
{
    ty_status status = TY_OK;
    workup w = {0};

    TY_CHECK(ty_candidate_to_plan(q, c, &w.plan, error), status, failed);
    TY_CHECK(choose_algorithms(q, w.plan, error), status, failed);
    TY_CHECK(ty_plan_lower(w.plan, &w.program, error), status, failed);
    TY_CHECK(ty_costs_of_program(w.plan, w.program, q->cluster, &w.costs, error), status, failed);
    *out = w;
    return TY_OK;

failed:
    workup_clear(&w);
    return status;
}

static ty_status estimate(const search_question *q, candidate *c, ty_error *error)
{
    ty_status status = TY_OK;
    workup w = {0};
    ty_timeline *timeline = NULL;

    TY_CHECK(workup_make(q, c, &w, error), status, done);
    judge_memory(q, w.plan, c);
    TY_CHECK(ty_estimate(w.plan, w.program, w.costs, ESTIMATED_STEPS, &timeline, error), status,
             done);
    TY_CHECK(ty_timeline_summarize(w.plan, w.program, timeline, &c->estimate, error), status, done);
    c->is_estimated = true;
done:
    ty_timeline_free(timeline);
    workup_clear(&w);
    return status;
}

static ty_status simulate(const search_question *q, candidate *c, ty_error *error)
{
    ty_status status = TY_OK;
    workup w = {0};

    TY_CHECK(workup_make(q, c, &w, error), status, done);
    TY_CHECK(q->options->simulate(q->options->simulate_context, w.plan, w.program, w.costs,
                                  &c->simulation, error),
             status, done);
done:
    workup_clear(&w);
    return status;
}

/* ---- Order ------------------------------------------------------------------------------- */

/* Equal times are told apart by fewer stages, fewer micro-batches, simpler buckets: the same
 * question gives the same plan. */
static int compare_shape(const candidate *a, const candidate *b)
{
    if (a->stage_count != b->stage_count)
        return a->stage_count < b->stage_count ? -1 : 1;
    if (a->micro_batches != b->micro_batches)
        return a->micro_batches < b->micro_batches ? -1 : 1;
    if (a->compression != b->compression)
        return a->compression < b->compression ? -1 : 1;
    if (a->bucket_bytes != b->bucket_bytes)
        return a->bucket_bytes > b->bucket_bytes ? -1 : 1;
    if (a->schedule != b->schedule)
        return a->schedule > b->schedule ? -1 : 1;
    return memcmp(a->first_layers, b->first_layers, sizeof a->first_layers) != 0
               ? memcmp(a->first_layers, b->first_layers, sizeof a->first_layers)
               : memcmp(a->replicas, b->replicas, sizeof a->replicas);
}

static int compare_numbers(double a, double b)
{
    return a < b ? -1 : a > b;
}

static int by_bound(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    int order = compare_numbers(a->bound_s, b->bound_s);

    return order != 0 ? order : compare_shape(a, b);
}

/* 0 simulated and fitting, 1 estimated and fitting, 2 only bounded, 3 too large. */
static int rank_of(const candidate *c)
{
    if (c->missing_bytes > 0)
        return 3;
    if (!c->is_estimated)
        return 2;
    return c->simulation.step_time_s > 0 ? 0 : 1;
}

static double time_of(const candidate *c)
{
    if (c->simulation.step_time_s > 0)
        return c->simulation.step_time_s;
    return c->is_estimated ? c->estimate.step_time_s : c->bound_s;
}

static int by_outcome(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    int order = rank_of(a) - rank_of(b);

    if (order == 0)
        order = compare_numbers(time_of(a), time_of(b));
    return order != 0 ? order : compare_shape(a, b);
}

static bool must_stop(const search_question *q)
{
    return q->options->should_stop != NULL && q->options->should_stop(q->options->stop_context);
}

static ty_status judge_all(const search_question *q, candidate *all, uint32_t count,
                           ty_error *error)
{
    ty_status status = TY_OK;
    uint32_t fitting = 0;

    qsort(all, count, sizeof *all, by_bound);
    for (uint32_t i = 0; i < count && fitting < ESTIMATES; i++) {
        if (i > 0 && must_stop(q))
            break;
        TY_CHECK(estimate(q, &all[i], error), status, done);
        fitting += all[i].missing_bytes == 0;
    }
    qsort(all, count, sizeof *all, by_outcome);
    for (uint32_t i = 0; i < count && i < q->options->simulate_top && !must_stop(q); i++)
        if (all[i].is_estimated && all[i].missing_bytes == 0)
            TY_CHECK(simulate(q, &all[i], error), status, done);
    qsort(all, count, sizeof *all, by_outcome);
done:
    return status;
}

/* ---- The answer -------------------------------------------------------------------------- */

static ty_status fate(const candidate *c, const candidate *best, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_status status;
    double slower = (time_of(c) / time_of(best) - 1) * 100;

    if (c == best) {
        ty_text_add(&text, "chosen");
    } else if (c->missing_bytes > 0) {
        char bytes[32];
        ty_format_memory((double)c->missing_bytes, bytes);
        ty_text_addf(&text, "does not fit: stage %u misses %s a device", c->missing_stage, bytes);
    } else if (!c->is_estimated) {
        ty_text_addf(&text, "%.0f %% slower by the quick bound",
                     (c->bound_s / best->bound_s - 1) * 100);
    } else {
        const ty_step_summary *s = c->simulation.step_time_s > 0 ? &c->simulation : &c->estimate;
        if (slower < 0.05)
            ty_text_addf(&text, "as fast, less simple: %s", s->limited_by);
        else
            ty_text_addf(&text, "%.*f %% slower: %s", slower < 10 ? 1 : 0, slower, s->limited_by);
    }
    status = ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}

static ty_status add_candidates(const search_question *q, const candidate *all, uint32_t count,
                                ty_plan *plan, ty_error *error)
{
    ty_status status = TY_OK;

    plan->candidates = ty_alloc(count, sizeof *plan->candidates);
    if (plan->candidates == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        ty_candidate *row = &plan->candidates[i];
        plan->candidate_count = i + 1;
        TY_CHECK(ty_candidate_name(q, &all[i], true, &row->name, error), status, done);
        TY_CHECK(fate(&all[i], &all[0], &row->reason, error), status, done);
        if (all[i].missing_bytes == 0)
            row->step_time_s = all[i].is_estimated ? all[i].estimate.step_time_s : all[i].bound_s;
        row->simulated_step_time_s = all[i].simulation.step_time_s;
        row->peak_memory_bytes = all[i].peak_memory_bytes;
    }
done:
    return status;
}

static ty_status best_plan(const search_question *q, const candidate *all, uint32_t count,
                           ty_plan **out, ty_error *error)
{
    ty_status status = TY_OK;
    workup w = {0};
    ty_plan *plan = NULL;

    TY_CHECK(workup_make(q, &all[0], &w, error), status, failed);
    TY_CHECK(ty_plan_copy(w.plan, &plan, error), status, failed);
    plan->has_prediction = true;
    plan->prediction = all[0].estimate;
    plan->simulation = all[0].simulation;
    plan->provenance = w.costs->provenance;
    TY_CHECK(add_candidates(q, all, count, plan, error), status, failed);
    TY_CHECK(ty_plan_check(plan, "plan", error), status, failed);
    workup_clear(&w);
    *out = plan;
    return TY_OK;

failed:
    workup_clear(&w);
    ty_plan_free(plan);
    return status;
}

/* Nothing fits: the candidate that misses least, and what would help. */
static ty_status nothing_fits(const search_question *q, const candidate *all, uint32_t count,
                              ty_error *error)
{
    const candidate *least = NULL;
    char *name = NULL;
    char missing[32], need[32];
    ty_status status;

    for (uint32_t i = 0; i < count; i++)
        if (all[i].is_estimated && (least == NULL || all[i].missing_bytes < least->missing_bytes))
            least = &all[i];
    if (least == NULL)
        return ty_fail(error, TY_EINFEASIBLE,
                       "no way to divide %s with a global batch of %u over %u devices: every "
                       "stage's replicas must divide the micro-batches; try a batch that is a "
                       "multiple of %u",
                       q->workload->name, q->global_batch, q->device_count, q->device_count);
    status = ty_candidate_name(q, least, true, &name, error);
    if (status != TY_OK)
        return status;
    ty_format_memory((double)least->missing_bytes, missing);
    ty_format_memory((double)least->peak_memory_bytes, need);
    ty_fail(error, TY_EINFEASIBLE,
            "%s does not fit: the closest plan (%s) needs %s a device and misses %s on stage %u; "
            "use more devices, or a smaller global batch than %u",
            q->workload->name, name, need, missing, least->missing_stage, q->global_batch);
    ty_free(name);
    return TY_EINFEASIBLE;
}

ty_status ty_plan_search(const ty_workload *workload, const ty_cluster *cluster,
                         const ty_profile *profile, const ty_plan_options *options, ty_plan **out,
                         ty_error *error)
{
    ty_status status = TY_OK;
    search_question q = {0};
    candidate *all = NULL;
    uint32_t count = 0;

    TY_CHECK(ty_search_question_make(workload, cluster, profile, options, &q, error), status, done);
    TY_CHECK(search_question_check(&q, error), status, done);
    TY_CHECK(ty_candidates_enumerate(&q, &all, &count, error), status, done);
    if (count == 0) {
        q.ignore_memory = true;
        TY_CHECK(ty_candidates_enumerate(&q, &all, &count, error), status, done);
    }
    TY_CHECK(judge_all(&q, all, count, error), status, done);
    if (count == 0 || !all[0].is_estimated || all[0].missing_bytes > 0)
        status = nothing_fits(&q, all, count, error);
    else
        status = best_plan(&q, all, count, out, error);
done:
    ty_free(all);
    ty_search_question_clear(&q);
    return status;
}
