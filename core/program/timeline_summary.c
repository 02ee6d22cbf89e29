/*
 * The breakdown of a step: one definition for predicted and measured timelines, see
 * ty_timeline_summarize. The time window is from the end of the first step to the end of the last;
 * with one step, from 0 to its end.
 */
#include "ty_run.h"

#include "ty_base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEDIAN_ABOVE_STEPS = 8 };

/* Uses of a stage replica's compute stream, in the categories of a summary. */
typedef enum share {
    SHARE_COMPUTE,
    SHARE_COLLECTIVE,
    SHARE_TRANSFER,
    SHARE_BUBBLE,
    SHARE_INPUT,
    SHARE_COUNT
} share;

static const share share_of[TY_TIME_KIND_COUNT] = {
    [TY_TIME_FORWARD] = SHARE_COMPUTE,
    [TY_TIME_BACKWARD] = SHARE_COMPUTE,
    [TY_TIME_RECOMPUTE] = SHARE_COMPUTE,
    [TY_TIME_OPTIMIZER] = SHARE_COMPUTE,
    [TY_TIME_TENSOR_EXCHANGE] = SHARE_COMPUTE,
    [TY_TIME_GRADIENT_EXCHANGE] = SHARE_COLLECTIVE,
    [TY_TIME_WEIGHT_GATHER] = SHARE_COLLECTIVE,
    [TY_TIME_CODEC] = SHARE_COLLECTIVE,
    [TY_TIME_TRANSFER] = SHARE_TRANSFER,
    [TY_TIME_INPUT] = SHARE_INPUT,
    [TY_TIME_BUBBLE] = SHARE_BUBBLE,
};

const char *ty_time_kind_name(ty_time_kind kind)
{
    static const char *const names[TY_TIME_KIND_COUNT] = {
        [TY_TIME_FORWARD] = "forward",
        [TY_TIME_BACKWARD] = "backward",
        [TY_TIME_RECOMPUTE] = "recompute",
        [TY_TIME_OPTIMIZER] = "optimizer",
        [TY_TIME_TENSOR_EXCHANGE] = "tensor_exchange",
        [TY_TIME_GRADIENT_EXCHANGE] = "gradient_exchange",
        [TY_TIME_WEIGHT_GATHER] = "weight_gather",
        [TY_TIME_CODEC] = "codec",
        [TY_TIME_TRANSFER] = "transfer",
        [TY_TIME_INPUT] = "input",
        [TY_TIME_BUBBLE] = "bubble",
    };
    return (unsigned)kind < TY_TIME_KIND_COUNT ? names[kind] : "unknown";
}

typedef struct view {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs; /* or NULL */
    const ty_timeline *timeline;
    uint32_t **sends; /* [stage][2 * micro-batch + (direction is gradient)]: index of the send */
    uint64_t *first_events; /* [stage replica]: event of its first instruction in a step */
    uint64_t step_events;
    double from_s, to_s;
    double seconds[TY_TIME_KIND_COUNT]; /* summed over stage replicas */
} view;

static const ty_event *event_of(const view *v, uint32_t step, uint32_t stage_replica,
                                uint32_t instruction)
{
    return &v->timeline
                ->events[step * v->step_events + v->first_events[stage_replica] + instruction];
}

/* As ty_timeline_find, which counts from scratch for each. */
static ty_status find_events(view *v, ty_error *error)
{
    uint32_t stage_replica = 0;

    v->first_events = ty_alloc(v->timeline->stage_replica_count, sizeof *v->first_events);
    TY_TRY(ty_check_memory(v->first_events != NULL, error));
    for (uint32_t s = 0; s < v->program->stage_count; s++)
        for (uint32_t q = 0; q < v->plan->stages[s].replicas; q++, stage_replica++) {
            v->first_events[stage_replica] = v->step_events;
            v->step_events += v->program->stages[s].instruction_count;
        }
    return TY_OK;
}

/* ---- Steps --------------------------------------------------------------------------------- */

/* The end of each step: the last end of any compute instruction in it. */
static void step_ends(const view *v, double *ends)
{
    const ty_event *event = v->timeline->events;

    for (uint32_t step = 0; step < v->timeline->step_count; step++) {
        ends[step] = -HUGE_VAL;
        for (uint32_t s = 0; s < v->program->stage_count; s++) {
            const ty_stage_program *stage = &v->program->stages[s];
            for (uint32_t q = 0; q < v->plan->stages[s].replicas; q++)
                for (uint32_t i = 0; i < stage->instruction_count; i++, event++)
                    if (stage->instructions[i].stream == TY_STREAM_COMPUTE)
                        ends[step] = fmax(ends[step], event->end_s);
        }
    }
}

static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* If steps overlap, the first ones are warm-up and the last ones cool-down: leave out as many at
 * either end as possible. */
static uint32_t settling_steps(const ty_program *program, uint32_t steps)
{
    const uint32_t spare = steps > 2 ? (steps - 2) / 2 : 0;
    const uint32_t lead = ty_program_largest_lead(program);
    return lead < spare ? lead : spare;
}

/* Overwrites `ends` if it takes the median. */
static double step_time(double *ends, uint32_t steps)
{
    const uint32_t differences = steps - 1;

    if (steps == 1)
        return ends[0];
    if (steps <= MEDIAN_ABOVE_STEPS)
        return (ends[differences] - ends[0]) / differences;
    for (uint32_t i = 0; i < differences; i++)
        ends[i] = ends[i + 1] - ends[i];
    qsort(ends, differences, sizeof *ends, compare_numbers);
    return (ends[(differences - 1) / 2] + ends[differences / 2]) / 2;
}

/* ---- Gaps ---------------------------------------------------------------------------------- */

static size_t send_slot(const ty_instruction *instruction, uint32_t micro_batch)
{
    return 2 * (size_t)micro_batch + ty_direction_way(instruction->direction);
}

/* The send of each micro-batch by each stage, for O(1) look-up by a receive. */
static ty_status find_sends(view *v, ty_error *error)
{
    v->sends = ty_alloc(v->plan->stage_count, sizeof *v->sends);
    TY_TRY(ty_check_memory(v->sends != NULL, error));
    for (uint32_t s = 0; s < v->plan->stage_count; s++) {
        const ty_stage_program *list = &v->program->stages[s % v->program->stage_count];
        const uint32_t local = v->plan->micro_batches / v->plan->stages[s].replicas;
        v->sends[s] = ty_alloc(2 * (size_t)local, sizeof **v->sends);
        TY_TRY(ty_check_memory(v->sends[s] != NULL, error));
        for (uint32_t i = 0; i < list->instruction_count; i++) {
            const ty_instruction *in = &list->instructions[i];
            if (in->op == TY_OP_SEND && in->stage == s && in->micro_batch < local)
                v->sends[s][send_slot(in, in->micro_batch)] = i;
        }
    }
    return TY_OK;
}

static double send_start(const view *v, uint32_t step, uint32_t stage, uint32_t replica,
                         const ty_instruction *receive)
{
    const uint32_t peer = receive->peer_stage;
    const uint32_t global =
        ty_program_global_micro_batch(v->plan, stage, replica, receive->micro_batch);
    const uint32_t replicas = v->plan->stages[peer].replicas;
    const uint32_t send = v->sends[peer][send_slot(receive, global / replicas)];

    return event_of(v, step, ty_plan_first_replica(v->plan, peer) + global % replicas, send)
        ->start_s;
}

/* The last wait of a compute instruction, if that ended after `since`. */
static const ty_instruction *last_wait(const view *v, uint32_t step, uint32_t stage_replica,
                                       const ty_stage_program *stage,
                                       const ty_instruction *instruction, double since)
{
    const ty_instruction *last = NULL;
    double latest = since;

    for (uint32_t w = 0; w < instruction->wait_count; w++) {
        double end = event_of(v, step, stage_replica, instruction->waits[w])->end_s;
        if (end > latest) {
            latest = end;
            last = &stage->instructions[instruction->waits[w]];
        }
    }
    return last;
}

static void charge(view *v, ty_time_kind to, double from_s, double to_s)
{
    from_s = fmax(from_s, v->from_s);
    to_s = fmin(to_s, v->to_s);
    if (to_s > from_s)
        v->seconds[to] += to_s - from_s;
}

/* The category of a wait for an instruction. */
static ty_time_kind cause_of(const ty_instruction *in)
{
    static const ty_time_kind causes[TY_STREAM_COUNT] = {
        [TY_STREAM_COMPUTE] = TY_TIME_BUBBLE,   [TY_STREAM_SEND] = TY_TIME_TRANSFER,
        [TY_STREAM_RECEIVE] = TY_TIME_TRANSFER, [TY_STREAM_COLLECTIVE] = TY_TIME_GRADIENT_EXCHANGE,
        [TY_STREAM_INPUT] = TY_TIME_INPUT,
    };
    if (in->op == TY_OP_GATHER)
        return TY_TIME_WEIGHT_GATHER;
    return in->op == TY_OP_ENCODE || in->op == TY_OP_DECODE ? TY_TIME_CODEC : causes[in->stream];
}

static void charge_gap(view *v, uint32_t step, uint32_t stage, uint32_t replica,
                       uint32_t stage_replica, const ty_instruction *next, double from_s,
                       double to_s)
{
    const ty_instruction *cause =
        last_wait(v, step, stage_replica, &v->program->stages[stage], next, from_s);

    if (cause == NULL) {
        charge(v, TY_TIME_BUBBLE, from_s, to_s);
    } else if (cause->op == TY_OP_RECEIVE) {
        double sent = send_start(v, step, stage, replica, cause);
        sent = fmin(fmax(sent, from_s), to_s);
        charge(v, TY_TIME_BUBBLE, from_s, sent);
        charge(v, TY_TIME_TRANSFER, sent, to_s);
    } else {
        charge(v, cause_of(cause), from_s, to_s);
    }
}

/* A compute instruction, with its share of inner collectives. */
static void charge_compute(view *v, uint32_t stage, uint32_t index, double from_s, double to_s)
{
    const ty_op op = v->program->stages[stage].instructions[index].op;
    const ty_instruction_cost *cost =
        v->costs == NULL ? NULL : &v->costs->instructions[stage][index];
    const double inner = cost != NULL && cost->seconds > 0 && cost->inner_s > 0
                             ? fmin(1.0, cost->inner_s / cost->seconds)
                             : 0.0;
    const double middle_s = to_s - inner * (to_s - from_s);
    ty_time_kind kind = TY_TIME_BACKWARD;

    if (op == TY_OP_FORWARD || op == TY_OP_LOAD)
        kind = TY_TIME_FORWARD;
    else if (op == TY_OP_RECOMPUTE)
        kind = TY_TIME_RECOMPUTE;
    else if (op == TY_OP_UPDATE || op == TY_OP_BEGIN)
        kind = TY_TIME_OPTIMIZER;
    charge(v, kind, from_s, middle_s);
    charge(v, TY_TIME_TENSOR_EXCHANGE, middle_s, to_s);
}

/* Splits the window of one stage replica: compute, the gaps before it, and the rest at the end.
 * Iterates over the compute stream in execution order: by rounds, if steps overlap.
 */
static void charge_replica(view *v, uint32_t stage, uint32_t replica, uint32_t stage_replica)
{
    const ty_stage_program *s = &v->program->stages[stage];
    const uint32_t lead = ty_program_lead(v->program, stage), steps = v->timeline->step_count;
    double cursor = steps == 1 ? v->from_s : -HUGE_VAL;

    for (uint32_t round = 0; round < lead + steps; round++) {
        for (uint32_t i = 0; i < s->instruction_count; i++) {
            const uint32_t step = round + s->instructions[i].lead - lead;
            const ty_event *event;
            if (s->instructions[i].stream != TY_STREAM_COMPUTE || step >= steps)
                continue;
            event = event_of(v, step, stage_replica, i);
            if (event->end_s <= v->from_s) { /* it is outside the window */
                cursor = fmax(cursor, event->end_s);
                continue;
            }
            if (event->start_s > cursor)
                charge_gap(v, step, stage, replica, stage_replica, &s->instructions[i], cursor,
                           event->start_s);
            charge_compute(v, stage, i, fmax(cursor, event->start_s), event->end_s);
            cursor = fmax(cursor, event->end_s);
        }
    }
    charge(v, TY_TIME_BUBBLE, cursor, v->to_s);
}

/* ---- As text ------------------------------------------------------------------------------- */

/* The plan's input bound is known before a run. */
static const char *input_label(const ty_plan *plan, char *room, size_t size)
{
    ty_input_forecast input = {0};

    if (ty_plan_input(plan, &input, NULL) != TY_OK || input.bound_by == NULL)
        return "input";
    snprintf(room, size, "input (%.40s)", input.bound_by);
    return room;
}

static const char *share_label(const ty_plan *plan, share which, char room[64])
{
    static const char *const labels[SHARE_COUNT] = {
        [SHARE_COMPUTE] = "compute",
        [SHARE_COLLECTIVE] = "gradient all-reduce",
        [SHARE_TRANSFER] = "activation transfer",
        [SHARE_BUBBLE] = "pipeline bubble",
    };
    if (which == SHARE_INPUT)
        return input_label(plan, room, 64);
    if (which == SHARE_BUBBLE && plan->stage_count == 1)
        return "idle";
    if (which == SHARE_COLLECTIVE)
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            if (ty_plan_exchange_kind(plan, &plan->buckets[b], 0) != TY_ALL_REDUCE)
                return "gradient communication";
    return labels[which];
}

/* The two largest shares that are not compute; the second only if it does not round to 0. */
static void describe_limit(const ty_plan *plan, const double shares[SHARE_COUNT], char *text,
                           size_t size)
{
    share first = SHARE_COLLECTIVE, second = SHARE_COUNT;
    char room[64];
    int length;

    if (shares[SHARE_COMPUTE] > 0.95) {
        snprintf(text, size, "compute");
        return;
    }
    for (int i = SHARE_COLLECTIVE + 1; i < SHARE_COUNT; i++)
        if (shares[i] > shares[first])
            first = (share)i;
    for (int i = SHARE_COLLECTIVE; i < SHARE_COUNT; i++)
        if (i != (int)first && (second == SHARE_COUNT || shares[i] > shares[second]))
            second = (share)i;
    length =
        snprintf(text, size, "%s %.0f %%", share_label(plan, first, room), 100 * shares[first]);
    if (shares[second] >= 0.005 && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, ", %s %.0f %%",
                 share_label(plan, second, room), 100 * shares[second]);
}

static void set_shares(const ty_plan *plan, double step_time_s, const double shares[SHARE_COUNT],
                       ty_step_summary *out)
{
    ty_step_summary summary = {.step_time_s = step_time_s};

    summary.samples_per_s = plan->global_batch / step_time_s;
    summary.tokens_per_s = summary.samples_per_s * (double)plan->workload->tokens_per_sample;
    ty_step_summary_rate(plan, &summary);
    summary.compute_share = shares[SHARE_COMPUTE];
    summary.exposed_collective_share = shares[SHARE_COLLECTIVE];
    summary.exposed_transfer_share = shares[SHARE_TRANSFER];
    summary.bubble_share = shares[SHARE_BUBBLE];
    summary.input_share = shares[SHARE_INPUT];
    describe_limit(plan, shares, summary.limited_by, sizeof summary.limited_by);
    *out = summary;
}

static void fill_summary(const view *v, double step_time_s, ty_step_summary *out)
{
    double shares[SHARE_COUNT] = {0};
    const double total = (v->to_s - v->from_s) * v->timeline->stage_replica_count;

    for (int i = 0; i < TY_TIME_KIND_COUNT; i++)
        shares[share_of[i]] += v->seconds[i] / total;
    set_shares(v->plan, step_time_s, shares, out);
}

/* The window is a fixed number of steps, so seconds are shares of the step's time. */
void ty_step_summary_extend(const ty_plan *plan, const ty_step_summary *longer, double periods,
                            ty_step_summary *summary)
{
    const ty_step_summary *of[] = {summary, longer};
    const double weights[] = {1 - periods, periods};
    double seconds[SHARE_COUNT] = {0}, step_time_s = 0;

    for (int i = 0; i < 2; i++) {
        const double weight = weights[i] * of[i]->step_time_s;
        step_time_s += weight;
        seconds[SHARE_COMPUTE] += weight * of[i]->compute_share;
        seconds[SHARE_COLLECTIVE] += weight * of[i]->exposed_collective_share;
        seconds[SHARE_TRANSFER] += weight * of[i]->exposed_transfer_share;
        seconds[SHARE_BUBBLE] += weight * of[i]->bubble_share;
        seconds[SHARE_INPUT] += weight * of[i]->input_share;
    }
    for (int i = 0; i < SHARE_COUNT; i++) /* differences may round below 0 */
        seconds[i] = fmax(0, seconds[i] / step_time_s);
    set_shares(plan, step_time_s, seconds, summary);
}

static void view_clear(view *v)
{
    for (uint32_t s = 0; v->sends != NULL && s < v->plan->stage_count; s++)
        ty_free(v->sends[s]);
    ty_free(v->sends);
    ty_free(v->first_events);
}

/* The window, and the time of a step. */
static ty_status find_window(view *v, double *step_time_s, ty_error *error)
{
    const uint32_t steps = v->timeline->step_count;
    const uint32_t settling = settling_steps(v->program, steps);
    double *ends = ty_alloc(steps, sizeof *ends);

    TY_TRY(ty_check_memory(ends != NULL, error));
    step_ends(v, ends);
    v->from_s = steps == 1 ? 0 : ends[settling];
    v->to_s = ends[steps - 1 - settling];
    *step_time_s = step_time(&ends[settling], steps - 2 * settling);
    ty_free(ends);
    if (!(*step_time_s > 0) || !(v->to_s > v->from_s))
        return ty_fail(error, TY_EINVAL, "the steps of this timeline take no time (%g s each)",
                       *step_time_s);
    return TY_OK;
}

/* @param busy [out, stage replica] may be NULL */
static ty_status charge_all(view *v, double *step_time_s, double *busy, ty_error *error)
{
    uint32_t stage_replica = 0;

    TY_TRY(ty_timeline_check(v->plan, v->program, v->timeline, "timeline", error));
    if (v->timeline->step_count == 0)
        return ty_fail(error, TY_EINVAL, "a timeline without steps cannot be summarised");
    TY_TRY(find_events(v, error));
    TY_TRY(find_sends(v, error));
    TY_TRY(find_window(v, step_time_s, error));
    for (uint32_t s = 0; s < v->program->stage_count; s++)
        for (uint32_t q = 0; q < v->plan->stages[s].replicas; q++, stage_replica++) {
            double before = 0, after = 0;
            for (int k = 0; k < TY_TIME_KIND_COUNT; k++)
                before += share_of[k] == SHARE_COMPUTE ? v->seconds[k] : 0;
            charge_replica(v, s, q, stage_replica);
            for (int k = 0; k < TY_TIME_KIND_COUNT; k++)
                after += share_of[k] == SHARE_COMPUTE ? v->seconds[k] : 0;
            if (busy != NULL)
                busy[stage_replica] = (after - before) / (v->to_s - v->from_s);
        }
    return TY_OK;
}

ty_status ty_timeline_summarize(const ty_plan *plan, const ty_program *program,
                                const ty_timeline *timeline, ty_step_summary *out, ty_error *error)
{
    view v = {.plan = plan, .program = program, .timeline = timeline};
    double step_time_s = 0;
    const ty_status status = charge_all(&v, &step_time_s, NULL, error);

    if (status == TY_OK)
        fill_summary(&v, step_time_s, out);
    view_clear(&v);
    return status;
}

ty_status ty_timeline_breakdown(const ty_plan *plan, const ty_program *program,
                                const ty_costs *costs, const ty_timeline *timeline, double *shares,
                                double *busy, ty_error *error)
{
    view v = {.plan = plan, .program = program, .costs = costs, .timeline = timeline};
    double step_time_s = 0;
    const ty_status status = charge_all(&v, &step_time_s, busy, error);

    for (int k = 0; status == TY_OK && k < TY_TIME_KIND_COUNT; k++)
        shares[k] = v.seconds[k] / ((v.to_s - v.from_s) * timeline->stage_replica_count);
    view_clear(&v);
    return status;
}
