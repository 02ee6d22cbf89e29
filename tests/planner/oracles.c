#include "oracles.h"

#include <math.h>
#include <stdlib.h>

/* Instances are numbered as in the timeline. */
typedef struct instances {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs;
    uint32_t stage_replicas, steps;
    size_t count;
    double *starts, *ends;
} instances;

typedef struct instance {
    uint32_t step, stage_replica, index, stage;
    const ty_instruction *in;
    const ty_instruction_cost *cost;
} instance;

#define NOBODY SIZE_MAX

static void *need(void *block)
{
    if (block == NULL)
        abort();
    return block;
}

static size_t number_of(const instances *all, uint32_t step, uint32_t stage_replica, uint32_t index)
{
    size_t number = 0, in_step = 0;
    for (uint32_t r = 0; r < all->stage_replicas; r++) {
        uint32_t stage = ty_plan_stage_of_replica(all->plan, r);
        if (r == stage_replica)
            number = in_step;
        in_step += all->program->stages[stage].instruction_count;
    }
    return step * in_step + number + index;
}

static instance *list_instances(instances *all)
{
    instance *list;
    size_t n = 0;

    all->stage_replicas = ty_plan_stage_replica_count(all->plan);
    all->count = (size_t)ty_program_event_count(all->plan, all->program) * all->steps;
    list = need(ty_alloc(all->count, sizeof *list));
    for (uint32_t step = 0; step < all->steps; step++) {
        for (uint32_t stage_replica = 0; stage_replica < all->stage_replicas; stage_replica++) {
            uint32_t stage = ty_plan_stage_of_replica(all->plan, stage_replica);
            for (uint32_t i = 0; i < all->program->stages[stage].instruction_count; i++)
                list[n++] = (instance){step,
                                       stage_replica,
                                       i,
                                       stage,
                                       &all->program->stages[stage].instructions[i],
                                       &all->costs->instructions[stage][i]};
        }
    }
    return list;
}

/* The previous instance in its stream: earlier in the list of its round, or the last one of the
 * latest earlier round with a step that is simulated. */
static size_t before(const instances *all, const instance *at)
{
    const ty_stage_program *stage = &all->program->stages[at->stage];
    int64_t round = (int64_t)at->step - at->in->lead;
    uint32_t end = at->index;

    for (; round >= -(int64_t)ty_program_lead(all->program, at->stage); round--) {
        for (uint32_t i = end; i > 0; i--) {
            const ty_instruction *in = &stage->instructions[i - 1];
            const int64_t step = round + in->lead;
            if (in->stream == at->in->stream && step >= 0 && step < all->steps)
                return number_of(all, (uint32_t)step, at->stage_replica, i - 1);
        }
        end = stage->instruction_count;
    }
    return NOBODY;
}

/* The send that matches a receive: same micro-batch of the step, same payload, other end. */
static size_t send_of(const instances *all, const instance *list, const instance *receive)
{
    uint32_t own = receive->stage_replica - ty_plan_first_replica(all->plan, receive->stage);
    uint32_t wanted =
        ty_program_global_micro_batch(all->plan, receive->stage, own, receive->in->micro_batch);
    for (size_t n = 0; n < all->count; n++) {
        uint32_t other = list[n].stage_replica - ty_plan_first_replica(all->plan, list[n].stage);
        if (list[n].step == receive->step && list[n].in->op == TY_OP_SEND &&
            list[n].stage == receive->in->peer_stage && list[n].in->peer_stage == receive->stage &&
            ty_program_global_micro_batch(all->plan, list[n].stage, other,
                                          list[n].in->micro_batch) == wanted)
            return n;
    }
    abort();
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

void relax(const ty_plan *plan, const ty_program *program, const ty_costs *costs, uint32_t steps,
           double **starts, double **ends)
{
    instances all = {.plan = plan, .program = program, .costs = costs, .steps = steps};
    instance *list = list_instances(&all);
    size_t *previous = need(ty_alloc(all.count, sizeof *previous));
    size_t *sends = need(ty_alloc(all.count, sizeof *sends));
    bool has_moved = true;

    *starts = need(ty_alloc(all.count, sizeof **starts));
    *ends = need(ty_alloc(all.count, sizeof **ends));
    for (size_t n = 0; n < all.count; n++) {
        previous[n] = before(&all, &list[n]);
        sends[n] = list[n].in->op == TY_OP_RECEIVE ? send_of(&all, list, &list[n]) : NOBODY;
    }
    while (has_moved) {
        has_moved = false;
        for (size_t n = 0; n < all.count; n++) {
            double start = previous[n] == NOBODY ? 0 : (*ends)[previous[n]], go, end;
            for (uint32_t w = 0; w < list[n].in->wait_count; w++)
                start = later(start, (*ends)[number_of(&all, list[n].step, list[n].stage_replica,
                                                       list[n].in->waits[w])]);
            go = sends[n] == NOBODY ? start : later(start, (*ends)[sends[n]]);
            for (size_t o = 0; list[n].in->op == TY_OP_COLLECTIVE && o < all.count; o++)
                if (list[o].in->op == TY_OP_COLLECTIVE && list[o].step == list[n].step &&
                    list[o].in->bucket == list[n].in->bucket &&
                    list[o].in->phase == list[n].in->phase)
                    go = later(go, (*starts)[o]);
            end = go + list[n].cost->seconds;
            has_moved = has_moved || start != (*starts)[n] || end != (*ends)[n];
            (*starts)[n] = start;
            (*ends)[n] = end;
        }
    }
    ty_free(list);
    ty_free(previous);
    ty_free(sends);
}

/* ---- Shared cores ------------------------------------------------------------------------ */

typedef enum phase { WAITS, IS_READY, RUNS, IS_OVER } phase;

typedef struct slow_walk {
    instances all;
    const instance *list;
    phase *phases;
    size_t *previous, *sends;
    double *remaining, *rates;
} slow_walk;

static bool may_begin(const slow_walk *w, size_t n)
{
    const instance *at = &w->list[n];
    if (w->previous[n] != NOBODY && w->phases[w->previous[n]] != IS_OVER)
        return false;
    for (uint32_t i = 0; i < at->in->wait_count; i++)
        if (w->phases[number_of(&w->all, at->step, at->stage_replica, at->in->waits[i])] != IS_OVER)
            return false;
    return true;
}

static bool is_same_collective(const instance *a, const instance *b)
{
    return a->in->op == TY_OP_COLLECTIVE && b->in->op == TY_OP_COLLECTIVE && a->step == b->step &&
           a->in->bucket == b->in->bucket && a->in->phase == b->in->phase;
}

static bool all_ready(const slow_walk *w, size_t n)
{
    for (size_t o = 0; o < w->all.count; o++)
        if (is_same_collective(&w->list[n], &w->list[o]) && w->phases[o] == WAITS)
            return false;
    return true;
}

/* All changes that are possible at the current time; true if there were any. */
static bool settle(slow_walk *w, double now)
{
    bool has_moved = false;
    for (size_t n = 0; n < w->all.count; n++) {
        phase was = w->phases[n];
        ty_op op = w->list[n].in->op;
        if (was == WAITS && may_begin(w, n)) {
            w->phases[n] = IS_READY;
            w->all.starts[n] = now;
        }
        if (w->phases[n] == IS_READY) {
            bool may_run = op == TY_OP_RECEIVE      ? w->phases[w->sends[n]] == IS_OVER
                           : op == TY_OP_COLLECTIVE ? all_ready(w, n)
                                                    : true;
            if (may_run)
                w->phases[n] = RUNS;
        }
        if (w->phases[n] == RUNS && w->remaining[n] <= 1e-15) {
            w->phases[n] = IS_OVER;
            w->all.ends[n] = now;
        }
        has_moved = has_moved || w->phases[n] != was;
    }
    return has_moved;
}

static double host_rate(const slow_walk *w, uint32_t host)
{
    double demand = 0;
    for (size_t n = 0; n < w->all.count; n++)
        if (w->phases[n] == RUNS && w->all.costs->replica_host[w->list[n].stage_replica] == host)
            demand += w->list[n].cost->core_share;
    return demand > w->all.costs->host_cores[host] ? w->all.costs->host_cores[host] / demand : 1;
}

/* The slowest host among the participants that use its cores; a transfer needs both of its ends. */
static double rate_of(const slow_walk *w, const double *host_rates, size_t n)
{
    const instance *at = &w->list[n];
    double rate = 1;
    for (size_t o = 0; o < w->all.count; o++)
        if ((o == n || is_same_collective(at, &w->list[o])) && w->list[o].cost->core_share > 0)
            rate = fmin(rate, host_rates[w->all.costs->replica_host[w->list[o].stage_replica]]);
    if (at->in->op == TY_OP_SEND && at->cost->core_share > 0)
        rate = fmin(rate, host_rates[w->all.costs->replica_host[ty_program_peer_replica(
                              w->all.plan, at->stage_replica, at->in)]]);
    return rate;
}

/* Until the first instruction ends. */
static double go_on(slow_walk *w)
{
    double *host_rates = need(ty_alloc(w->all.costs->host_count, sizeof *host_rates));
    double dt = HUGE_VAL;

    for (uint32_t h = 0; h < w->all.costs->host_count; h++)
        host_rates[h] = host_rate(w, h);
    for (size_t n = 0; n < w->all.count; n++) {
        if (w->phases[n] != RUNS)
            continue;
        w->rates[n] = rate_of(w, host_rates, n);
        dt = fmin(dt, w->remaining[n] / w->rates[n]);
    }
    if (isinf(dt))
        abort();
    for (size_t n = 0; n < w->all.count; n++)
        if (w->phases[n] == RUNS)
            w->remaining[n] -= w->rates[n] * dt;
    ty_free(host_rates);
    return dt;
}

static bool is_all_over(const slow_walk *w)
{
    for (size_t n = 0; n < w->all.count; n++)
        if (w->phases[n] != IS_OVER)
            return false;
    return true;
}

void walk_slowly(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                 uint32_t steps, double **starts, double **ends)
{
    slow_walk w = {.all = {.plan = plan, .program = program, .costs = costs, .steps = steps}};
    instance *list = list_instances(&w.all);
    double now = 0;

    w.list = list;
    w.phases = need(ty_alloc(w.all.count, sizeof *w.phases));
    w.previous = need(ty_alloc(w.all.count, sizeof *w.previous));
    w.sends = need(ty_alloc(w.all.count, sizeof *w.sends));
    w.remaining = need(ty_alloc(w.all.count, sizeof *w.remaining));
    w.rates = need(ty_alloc(w.all.count, sizeof *w.rates));
    w.all.starts = *starts = need(ty_alloc(w.all.count, sizeof **starts));
    w.all.ends = *ends = need(ty_alloc(w.all.count, sizeof **ends));
    for (size_t n = 0; n < w.all.count; n++) {
        w.previous[n] = before(&w.all, &list[n]);
        w.sends[n] = list[n].in->op == TY_OP_RECEIVE ? send_of(&w.all, list, &list[n]) : NOBODY;
        w.remaining[n] = list[n].cost->seconds;
    }
    for (;;) {
        while (settle(&w, now))
            ;
        if (is_all_over(&w))
            break;
        now += go_on(&w);
    }
    ty_free(list);
    ty_free(w.phases);
    ty_free(w.previous);
    ty_free(w.sends);
    ty_free(w.remaining);
    ty_free(w.rates);
}
