/* Finds uneven splits and better ones, by planning each like any question. */
#include "question.h"

#include <math.h>
#include <stdlib.h>

typedef struct imbalance_search {
    const ty_question *question;
    const ty_question_inputs *inputs;
    ty_plan_options how;
    const ty_plan *plan;
} imbalance_search;

/* Samples per second of the best plan with `how`; 0 if there is none. */
static ty_status ask(const imbalance_search *u, const ty_plan_options *how, double *samples_per_s,
                     ty_error *error)
{
    ty_plan_options options = *how;
    ty_plan *plan = NULL;
    ty_error refusal = {0};
    ty_status status;

    options.answer_alone = true;
    status = ty_question_find(u->question, u->inputs, &options, &plan, &refusal);
    *samples_per_s = plan != NULL ? plan->prediction.samples_per_s : 0;
    ty_plan_free(plan);
    return status == TY_ENOMEM || status == TY_EINTERRUPTED
               ? ty_fail(error, status, "%s", refusal.message)
               : TY_OK;
}

/* ---- The batch over the devices ------------------------------------------------------------- */

/* Adds the multiples of `step` around `count`, unless it is one itself, between half and twice of
 * it, both excluded. */
static void add_multiples(uint32_t count, uint32_t step, uint32_t *near, uint32_t *near_count)
{
    const uint32_t below = count / step * step;

    if (below == count)
        return;
    for (int side = 0; side < 2; side++) {
        const uint64_t other = (uint64_t)below + (side == 0 ? 0 : step);
        bool is_known = false;
        for (uint32_t i = 0; i < *near_count; i++)
            is_known = is_known || near[i] == other;
        if (!is_known && 2 * other > count && other < 2 * (uint64_t)count && other <= UINT32_MAX)
            near[(*near_count)++] = (uint32_t)other;
    }
}

/* The largest divisor of `number` that is no more than `most`. */
static uint32_t largest_divisor(uint32_t number, uint32_t most)
{
    for (uint32_t d = most < number ? most : number; d > 1; d--)
        if (number % d == 0)
            return d;
    return 1;
}

static ty_status try_batches(imbalance_search *u, ty_imbalance *out, ty_error *error)
{
    const uint32_t batch = u->plan->global_batch;
    const uint32_t devices = ty_is_pinned(&u->how.pins, TY_AXIS(DEVICES))
                                 ? u->how.pins.devices
                                 : ty_cluster_device_count(u->inputs->cluster);
    ty_plan_options how = u->how;
    uint32_t near[4], near_count = 0;
    double best = 0;
    ty_imbalance found = {.count = batch, .parts = devices};

    if (batch % devices == 0 || devices % batch == 0)
        return TY_OK;
    add_multiples(batch, devices, near, &near_count);
    add_multiples(batch, largest_divisor(devices, batch / 4), near, &near_count);
    /* The best on each side. */
    for (int side = 0; side < 2; side++) {
        double most = 0;
        for (uint32_t i = 0; i < near_count; i++) {
            double samples_per_s;
            if ((near[i] < batch) != (side == 0))
                continue;
            how.global_batch = near[i];
            TY_TRY(ask(u, &how, &samples_per_s, error));
            if (samples_per_s <= most ||
                u->plan->prediction.samples_per_s > (1 - TY_UNEVEN_SHARE) * samples_per_s)
                continue;
            most = samples_per_s;
            found.better[found.better_count].count = near[i];
            found.better[found.better_count].samples_per_s = samples_per_s;
        }
        found.better_count += most > 0;
        best = fmax(best, most);
    }
    if (found.better_count == 0)
        return TY_OK;
    found.lost_share = 1 - u->plan->prediction.samples_per_s / best;
    *out = found;
    return TY_OK;
}

/* ---- Blocks over stages --------------------------------------------------------------------- */

/* Compute loss of uneven stages: 1 - mean / maximum over pipeline ranks. */
static ty_status stage_loss(const imbalance_search *u, double *share, ty_error *error)
{
    ty_status status = TY_OK;
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    double sum = 0, most = 0;

    TY_CHECK(ty_plan_lower(u->plan, &program, error), status, done);
    TY_CHECK(ty_costs_of_program(u->plan, program, u->inputs->cluster, &costs, error), status,
             done);
    for (uint32_t s = 0; s < program->stage_count; s++) {
        double seconds = 0;
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
            if (program->stages[s].instructions[i].stream == TY_STREAM_COMPUTE)
                seconds += costs->instructions[s][i].seconds;
        seconds /= u->plan->stages[s].replicas; /* each replica runs its own micro-batches */
        sum += seconds;
        most = fmax(most, seconds);
    }
    *share = most > 0 ? 1 - sum / (program->stage_count * most) : 0;
done:
    ty_costs_free(costs);
    ty_program_free(program);
    return status;
}

static ty_status try_blocks(imbalance_search *u, ty_imbalance *out, ty_error *error)
{
    const uint32_t stages = u->plan->stage_count;
    ty_plan_options how = u->how;
    ty_imbalance found = {.parts = stages};
    double fullest; /* blocks of the largest stage */
    const uint32_t *starts;
    uint32_t head, near[2] = {0, 0};

    if (ty_plan_actors(u->plan) > 0) /* these split episodes, not blocks */
        return TY_OK;
    for (uint32_t s = 0; s < stages; s++) /* replicas balance unequal stages */
        if (stages == 1 || u->plan->stages[s].replicas != u->plan->stages[0].replicas)
            return TY_OK;
    found.count = ty_workload_blocks(u->plan->workload, &starts, &head);
    found.count -= head != TY_NO_LAYER; /* the part after all blocks is no block */
    if (found.count % stages == 0)
        return TY_OK;
    TY_TRY(stage_loss(u, &found.lost_share, error));
    /* Limits the loss to the share that follows from the split of blocks. */
    fullest = ceil((double)found.count / stages);
    found.lost_share = fmin(found.lost_share, 1 - found.count / (stages * fullest));
    if (found.lost_share <= TY_UNEVEN_SHARE)
        return TY_OK;
    /* The search has tried every number of stages, unless one is pinned. */
    if (ty_is_pinned(&how.pins, TY_AXIS(PP)) && ty_plan_virtual_stages(u->plan) == 1 &&
        !ty_is_pinned(&how.pins, TY_AXIS(REPLICAS))) {
        near[0] = largest_divisor(found.count, stages);
        near[0] = 2 * near[0] > stages ? near[0] : 0;
        for (uint32_t n = stages + 1; n <= found.count && n < 2 * stages && near[1] == 0; n++)
            near[1] = found.count % n == 0 ? n : 0;
    }
    for (int side = 0; side < 2; side++) {
        double samples_per_s = 0;
        ty_pin(&how.pins, TY_AXIS_PP, near[side]);
        if (near[side] > 0)
            TY_TRY(ask(u, &how, &samples_per_s, error));
        if (samples_per_s <= u->plan->prediction.samples_per_s)
            continue;
        found.better[found.better_count].count = near[side];
        found.better[found.better_count++].samples_per_s = samples_per_s;
    }
    *out = found;
    return TY_OK;
}

ty_status ty_question_imbalance(const ty_question *question, const ty_question_inputs *inputs,
                                const ty_watch *watch, ty_plan *plan, ty_error *error)
{
    imbalance_search u = {.question = question, .inputs = inputs, .plan = plan};
    ty_objective objective = TY_THROUGHPUT;
    ty_status status = TY_OK;

    TY_CHECK(ty_objective_find(question->objective, &objective, error), status, done);
    if (objective != TY_THROUGHPUT ||
        ty_cluster_device_count(inputs->cluster) > TY_MOST_DEVICES_FOR_UNEVEN)
        goto done;
    TY_CHECK(ty_plan_options_of(question, inputs, &u.how, error), status, done);
    if (watch != NULL) {
        u.how.should_stop = watch->should_stop;
        u.how.stop_context = watch->context;
    }
    TY_CHECK(try_batches(&u, &plan->uneven[TY_UNEVEN_BATCH], error), status, done);
    TY_CHECK(try_blocks(&u, &plan->uneven[TY_UNEVEN_BLOCKS], error), status, done);
done:
    /* Keeps the results so far. */
    return status == TY_EINTERRUPTED || status == TY_ELIMIT ? TY_OK : status;
}

/* ---- The answer ---------------------------------------------------------------------------- */

ty_status ty_question_answer(const ty_question *question, const ty_watch *watch, ty_plan **out,
                             ty_error *error)
{
    ty_status status = TY_OK;
    ty_question own = *question;
    ty_question_inputs inputs = {0};
    ty_plan *plan = NULL;

    if (own.top == 0)
        own.top = TY_USUAL_TOP;
    if (own.seed == 0)
        own.seed = TY_USUAL_SEED;
    TY_CHECK(ty_question_open(&own, watch, &inputs, error), status, cleanup);
    TY_CHECK(ty_question_plan(&own, &inputs, watch, &plan, error), status, cleanup);
    TY_CHECK(ty_question_imbalance(&own, &inputs, watch, plan, error), status, cleanup);
    *out = plan;
    plan = NULL; /* ownership moved */

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&inputs);
    return status;
}
