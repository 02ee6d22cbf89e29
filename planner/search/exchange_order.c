/*
 * The order of gradient collectives with priority for the first layers: whenever the network is
 * free, the bucket of the earliest layers among those with ready gradients (Peng et al.,
 * "ByteScheduler", SOSP 2019, section 3, without splitting tensors). A running collective is not
 * interrupted. Ready times come from the estimate of the plan without an order, so the order is
 * part of the plan and the same on all replicas.
 */
#include "candidate.h"
#include "costing.h"
#include "lowering.h"
#include "steady.h"

#include <math.h>
#include <string.h>

/* Per bucket: the time at which its gradients are ready, and the duration of its collectives. */
typedef struct arrival {
    double ready_s, exchange_s;
} arrival;

/* @param arrivals [out] [buckets], from the first step of the first stage replica */
static ty_status arrivals_find(const search_question *q, const ty_plan *plan, arrival *arrivals,
                               ty_error *error)
{
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    ty_plan some = *plan; /* more micro-batches are only later */
    ty_status status = TY_OK;

    some.micro_batches = ty_plan_steady_micro_batches(plan);
    TY_CHECK(ty_plan_lower_unsigned(&some, &program, error), status, done);
    TY_CHECK(ty_costs_by_networks(&some, program, q->networks, &costs, error), status, done);
    TY_CHECK(ty_estimate(&some, program, costs, 1, &timeline, error), status, done);
    for (uint32_t i = 0; i < program->stages[0].instruction_count; i++) {
        const ty_instruction *in = &program->stages[0].instructions[i];
        const ty_event *event = &timeline->events[i];
        arrival *a;
        if (in->stream != TY_STREAM_COLLECTIVE)
            continue;
        a = &arrivals[in->bucket];
        if (a->exchange_s == 0)
            a->ready_s = timeline->events[in->waits[0]].end_s;
        a->exchange_s += event->end_s - event->start_s;
    }
done:
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    ty_program_free(program);
    return status;
}

/* The next bucket at `now_s`: of the ready ones, that of the earliest layers; if none is ready, the
 * one that is ready next. Buckets are ordered from the last layer to the first. */
static uint32_t next_bucket(const ty_plan *plan, const arrival *arrivals, const bool *is_sent,
                            double now_s)
{
    uint32_t next = plan->bucket_count;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (!is_sent[b] && arrivals[b].ready_s <= now_s)
            next = b;
    for (uint32_t b = 0; b < plan->bucket_count && next == plan->bucket_count; b++)
        if (!is_sent[b])
            next = b;
    return next;
}

static ty_status order_find(const search_question *q, const ty_plan *plan, uint32_t *order,
                            ty_error *error)
{
    arrival *arrivals = ty_alloc(plan->bucket_count, sizeof *arrivals);
    bool *is_sent = ty_alloc(plan->bucket_count, sizeof *is_sent);
    double now_s = 0;
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(arrivals != NULL && is_sent != NULL, error), status, done);
    TY_CHECK(arrivals_find(q, plan, arrivals, error), status, done);
    for (uint32_t i = 0; i < plan->bucket_count; i++) {
        order[i] = next_bucket(plan, arrivals, is_sent, now_s);
        is_sent[order[i]] = true;
        now_s = fmax(now_s, arrivals[order[i]].ready_s) + arrivals[order[i]].exchange_s;
    }
done:
    ty_free(is_sent);
    ty_free(arrivals);
    return status;
}

static ty_status costs_by_networks(void *networks, const ty_plan *plan, const ty_program *program,
                                   ty_costs **out, ty_error *error)
{
    return ty_costs_by_networks(plan, program, networks, out, error);
}

ty_status ty_draft_estimate(const search_question *q, const ty_plan *plan,
                            const ty_program *program, ty_step_summary *out, ty_error *error)
{
    return ty_estimate_steady(plan, program, costs_by_networks, q->networks, out, error);
}

/* ---- The shortest step ---------------------------------------------------------------------- */

/* Maximum number of orders to estimate for one plan. */
#define MOST_ORDERS 120

typedef struct order_search {
    const search_question *q;
    ty_plan *plan;
    uint32_t *order; /* the best so far */
    double best_s;
    uint32_t left; /* of MOST_ORDERS */
    ty_error *error;
} order_search;

static ty_status estimate(const search_question *q, const ty_plan *plan, double *step_s,
                          ty_error *error)
{
    ty_program *program = NULL;
    ty_step_summary summary;
    ty_status status = TY_OK;

    TY_CHECK(ty_plan_lower_short(plan, ty_plan_steady_micro_batches(plan), &program, error), status,
             done);
    TY_CHECK(ty_draft_estimate(q, plan, program, &summary, error), status, done);
    *step_s = summary.step_time_s;
done:
    ty_program_free(program);
    return status;
}

/* Accepts an order if its step is shorter. */
static ty_status try_order(order_search *s, uint32_t *order, bool *is_better)
{
    double step_s;
    ty_status status;

    *is_better = false;
    if (s->left == 0)
        return TY_OK;
    s->left--;
    s->plan->exchange_order = order;
    status = estimate(s->q, s->plan, &step_s, s->error);
    s->plan->exchange_order = NULL;
    if (status != TY_OK || step_s >= s->best_s)
        return status;
    *is_better = true;
    s->best_s = step_s;
    memmove(s->order, order, s->plan->bucket_count * sizeof *order);
    return TY_OK;
}

/* Moves each bucket to every other place, until no move shortens the step. */
static ty_status improve(order_search *s, uint32_t *scratch)
{
    const uint32_t count = s->plan->bucket_count;
    bool is_better = true;

    while (is_better && s->left > 0) {
        is_better = false;
        for (uint32_t move = 0; move < count * count && !is_better && s->left > 0; move++) {
            const uint32_t from = move / count, to = move % count;
            if (from == to || from == to + 1) /* neighbors swap once */
                continue;
            memcpy(scratch, s->order, count * sizeof *scratch);
            /* Moves the bucket at `from` to `to`; the buckets between them move up. */
            const uint32_t bucket = scratch[from];
            if (from < to)
                memmove(&scratch[from], &scratch[from + 1], (to - from) * sizeof *scratch);
            else
                memmove(&scratch[to + 1], &scratch[to], (from - to) * sizeof *scratch);
            scratch[to] = bucket;
            TY_TRY(try_order(s, scratch, &is_better));
        }
    }
    return TY_OK;
}

/* Starts from the order of ready buckets, and from the order of layers. The latter lets the link
 * wait for the first layers. It is better if collectives take longer than passes: then the part of
 * the next step after the last collective counts. */
static ty_status order_improve(order_search *s, bool *is_found)
{
    const uint32_t count = s->plan->bucket_count;
    uint32_t *scratch = ty_alloc(count, sizeof *scratch);
    double without_s;
    bool is_better;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(scratch != NULL, s->error));
    TY_CHECK(estimate(s->q, s->plan, &without_s, s->error), status, done);
    memcpy(scratch, s->order, count * sizeof *scratch);
    TY_CHECK(try_order(s, scratch, &is_better), status, done);
    for (uint32_t i = 0; i < count; i++)
        scratch[i] = count - 1 - i;
    TY_CHECK(try_order(s, scratch, &is_better), status, done);
    TY_CHECK(improve(s, scratch), status, done);
    *is_found = s->best_s < without_s;
done:
    ty_free(scratch);
    return status;
}

ty_status ty_choose_exchange_order(const search_question *q, ty_plan *plan, ty_error *error)
{
    order_search s = {
        .q = q, .plan = plan, .best_s = HUGE_VAL, .left = MOST_ORDERS, .error = error};
    bool is_found = true;
    ty_status status = TY_OK;

    if (q->pins->priority == TY_PRIORITY_NONE || ty_plan_refusal(TY_AXIS_PRIORITY, plan) != NULL)
        return TY_OK;
    TY_TRY(
        ty_check_memory((s.order = ty_alloc(plan->bucket_count, sizeof *s.order)) != NULL, error));
    TY_CHECK(order_find(q, plan, s.order, error), status, done);
    if (q->pins->priority == TY_PRIORITY_SHORTER)
        TY_CHECK(order_improve(&s, &is_found), status, done);
    if (is_found) {
        plan->exchange_order = s.order;
        s.order = NULL;
    }
done:
    ty_free(s.order);
    return status;
}
