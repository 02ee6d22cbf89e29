/* Random programs on an interconnect that is never the bottleneck, against a naive evaluation of
 * the rules of ty_program.h: times increase until nothing changes. */
#include "scenario.h"

#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROGRAMS = 30, STEPS = 3 };

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(*state >> 33) % bound;
}

static double random_seconds(uint64_t *state)
{
    return random_below(state, 8) == 0 ? 0.0 : 1e-3 * (1 + random_below(state, 1000));
}

static ty_instruction_cost work(uint64_t *state)
{
    return (ty_instruction_cost){.seconds = random_seconds(state)};
}

/* Most of the time is in bytes, limited by software so that a link is never full. */
static ty_instruction_cost traffic(uint64_t *state)
{
    const double rate = 1e6;
    ty_instruction_cost cost = {.latency_s = 1e-3, .rate_limit_bytes_per_s = rate};
    cost.edge_bytes = floor(rate * random_seconds(state));
    cost.seconds = cost.latency_s + cost.edge_bytes / rate;
    return cost;
}

/* Appends with its natural waits and, sometimes, a wait for any earlier instruction. */
static uint32_t add(scenario *s, uint64_t *state, uint32_t stage, ty_instruction what,
                    uint32_t wait, ty_instruction_cost cost)
{
    const uint32_t earlier = s->codes[stage].instruction_count;
    uint32_t waits[3] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION, TY_NO_INSTRUCTION};
    uint32_t count = 0;

    if (wait != TY_NO_INSTRUCTION)
        waits[count++] = wait;
    if (earlier > 0 && random_below(state, 3) == 0)
        waits[count++] = random_below(state, earlier);
    return scenario_add(s, stage, what, waits, cost);
}

/* A stage's step: forwards, then backwards, then its buckets. */
static void add_stage(scenario *s, uint64_t *state, uint32_t stage)
{
    const uint32_t none = TY_NO_INSTRUCTION;
    const bool is_first = stage == 0, is_last = stage + 1 == s->plan.stage_count;
    const uint32_t micro_batches = s->plan.micro_batches / s->stages[stage].replicas;
    uint32_t last = none;

    for (uint32_t k = 0; k < micro_batches; k++) {
        last = is_first ? add(s, state, stage, op(TY_OP_LOAD), none, work(state))
                        : add(s, state, stage, transfer(TY_OP_RECEIVE, TY_ACTIVATION, stage - 1, k),
                              none, (ty_instruction_cost){0});
        last = add(s, state, stage, op(TY_OP_FORWARD), last, work(state));
        if (!is_last)
            add(s, state, stage, transfer(TY_OP_SEND, TY_ACTIVATION, stage + 1, k), last,
                traffic(state));
    }
    for (uint32_t k = 0; k < micro_batches; k++) {
        last = none;
        if (!is_last)
            last = add(s, state, stage, transfer(TY_OP_RECEIVE, TY_GRADIENT, stage + 1, k), none,
                       (ty_instruction_cost){0});
        last = add(s, state, stage, op(TY_OP_BACKWARD), last, work(state));
        if (!is_first)
            add(s, state, stage, transfer(TY_OP_SEND, TY_GRADIENT, stage - 1, k), last,
                traffic(state));
    }
    for (uint32_t b = 0; b < s->plan.bucket_count; b++) {
        if (s->buckets[b].stage != stage)
            continue;
        if (s->stages[stage].replicas > 1) {
            last = add(s, state, stage, op(TY_OP_ENCODE), last, work(state));
            last = add(s, state, stage, exchange(b), last, traffic(state));
            last = add(s, state, stage, op(TY_OP_DECODE), last, work(state));
        }
        add(s, state, stage, op(TY_OP_UPDATE), last, work(state));
    }
}

static void random_scenario(scenario *s, uint64_t *state)
{
    static const uint32_t divisors[] = {1, 2, 3, 4};
    uint32_t replicas[MOST_STAGES];
    const uint32_t stages = 1 + random_below(state, MOST_STAGES);

    for (uint32_t i = 0; i < stages; i++)
        replicas[i] = divisors[random_below(state, 4)];
    scenario_open(s, cluster_of("leaf:1 host:16 gpu:1 @v100-sxm2-16gb nvlink2 edr100"), stages,
                  replicas, 12);
    for (uint32_t i = 0; i < stages; i++)
        for (uint32_t b = random_below(state, 3); b > 0; b--)
            scenario_bucket(s, i, TY_RING, TY_COMPRESSION_NONE);
    for (uint32_t i = 0; i < stages; i++)
        add_stage(s, state, i);
    scenario_close(s);
    s->options.steps = STEPS;
}

/* ---- The oracle ---------------------------------------------------------------------------- */

struct times {
    double start_s, end_s;
};

struct oracle {
    const scenario *s;
    struct times *times; /* [step][stage replica][MOST_INSTRUCTIONS] */
};

static struct times *at(const struct oracle *o, uint32_t step, uint32_t stage_replica,
                        uint32_t instruction)
{
    return &o->times[((size_t)step * ty_plan_stage_replica_count(&o->s->plan) + stage_replica) *
                         MOST_INSTRUCTIONS +
                     instruction];
}

/* End of the send that feeds the receive; found by exhaustive search. */
static double sent_s(const struct oracle *o, uint32_t step, uint32_t stage_replica,
                     const ty_instruction *receive)
{
    const ty_plan *plan = &o->s->plan;
    const uint32_t stage = ty_plan_stage_of_replica(plan, stage_replica);
    const uint32_t micro_batch = receive->micro_batch * plan->stages[stage].replicas +
                                 stage_replica - ty_plan_first_replica(plan, stage);
    const uint32_t from = receive->peer_stage;

    for (uint32_t q = 0; q < plan->stages[from].replicas; q++) {
        for (uint32_t i = 0; i < o->s->codes[from].instruction_count; i++) {
            const ty_instruction *send = &o->s->codes[from].instructions[i];
            if (send->op == TY_OP_SEND && send->direction == receive->direction &&
                send->micro_batch * plan->stages[from].replicas + q == micro_batch)
                return at(o, step, ty_plan_first_replica(plan, from) + q, i)->end_s;
        }
    }
    cr_assert(false, "a receive without its send");
    return 0.0;
}

static double ready_s(const struct oracle *o, uint32_t step, uint32_t stage_replica, uint32_t index)
{
    const ty_stage_program *code =
        &o->s->codes[ty_plan_stage_of_replica(&o->s->plan, stage_replica)];
    const ty_instruction *self = &code->instructions[index];
    double ready = 0.0;

    for (uint32_t i = 0; i < code->instruction_count; i++) {
        if (code->instructions[i].stream != self->stream)
            continue;
        if (i < index)
            ready = fmax(ready, at(o, step, stage_replica, i)->end_s);
        else if (step > 0)
            ready = fmax(ready, at(o, step - 1, stage_replica, i)->end_s);
    }
    for (uint32_t w = 0; w < self->wait_count; w++)
        ready = fmax(ready, at(o, step, stage_replica, self->waits[w])->end_s);
    return ready;
}

static double end_s(const struct oracle *o, uint32_t step, uint32_t stage_replica, uint32_t index)
{
    const uint32_t stage = ty_plan_stage_of_replica(&o->s->plan, stage_replica);
    const ty_instruction *self = &o->s->codes[stage].instructions[index];
    double start = at(o, step, stage_replica, index)->start_s;

    if (self->op == TY_OP_RECEIVE)
        return fmax(start, sent_s(o, step, stage_replica, self));
    if (self->op == TY_OP_COLLECTIVE)
        for (uint32_t q = 0; q < o->s->stages[stage].replicas; q++)
            start = fmax(
                start, at(o, step, ty_plan_first_replica(&o->s->plan, stage) + q, index)->start_s);
    return start + o->s->cost_rows[stage][index].seconds;
}

static void work_out(const struct oracle *o)
{
    const uint32_t stage_replicas = ty_plan_stage_replica_count(&o->s->plan);
    bool is_changed = true;

    while (is_changed) {
        is_changed = false;
        for (uint32_t step = 0; step < STEPS; step++) {
            for (uint32_t r = 0; r < stage_replicas; r++) {
                const uint32_t stage = ty_plan_stage_of_replica(&o->s->plan, r);
                for (uint32_t i = 0; i < o->s->codes[stage].instruction_count; i++) {
                    struct times *times = at(o, step, r, i);
                    const struct times before = *times;
                    times->start_s = ready_s(o, step, r, i);
                    times->end_s = end_s(o, step, r, i);
                    is_changed |= times->start_s != before.start_s || times->end_s != before.end_s;
                }
            }
        }
    }
}

Test(random, programs_follow_the_rules_on_an_idle_network)
{
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        uint64_t state = seed;
        scenario s;
        random_scenario(&s, &state);
        s.options.resolution = seed % 2 == 0 ? TY_FLOW : TY_CHUNK;
        const uint32_t stage_replicas = ty_plan_stage_replica_count(&s.plan);
        struct oracle o = {
            &s, ty_alloc((size_t)STEPS * stage_replicas * MOST_INSTRUCTIONS, sizeof(struct times))};
        cr_assert(o.times != NULL);
        work_out(&o);
        ty_timeline *timeline = scenario_simulate(&s);
        for (uint64_t e = 0; e < timeline->event_count; e++) {
            const ty_event *event = &timeline->events[e];
            const struct times *expected =
                at(&o, event->step, event->stage_replica, event->instruction);
            char what[96];
            snprintf(what, sizeof what, "seed %u, step %u, stage replica %u, instruction %u",
                     (unsigned)seed, event->step, event->stage_replica, event->instruction);
            expect_close(what, event->start_s, expected->start_s, 1e-6);
            expect_close(what, event->end_s, expected->end_s, 1e-6);
        }
        ty_timeline_free(timeline);
        ty_free(o.times);
        scenario_free(&s);
    }
}
