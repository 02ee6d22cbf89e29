/* Random plans whose flows contend for NICs, trunks and NVLink. */
#include "contention.h"

#include "ty_base.h"

#include <criterion/criterion.h>

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(*state >> 33) % bound;
}

static ty_instruction_cost work(uint64_t *state)
{
    return (ty_instruction_cost){.seconds = 1e-3 * random_below(state, 40)};
}

/* About 10 ms on a NIC without contention. */
static ty_instruction_cost traffic(uint64_t *state, bool is_limited)
{
    ty_instruction_cost cost = {.latency_s = 1e-5 * random_below(state, 20),
                                .edge_bytes = 1e6 * random_below(state, 200)};
    if (is_limited && random_below(state, 2) == 0)
        cost.rate_limit_bytes_per_s = 2e9;
    cost.seconds = cost.latency_s + cost.edge_bytes / 1e10;
    return cost;
}

static void add_stage(scenario *s, uint64_t *state, uint32_t stage, bool is_limited)
{
    const bool is_first = stage == 0, is_last = stage + 1 == s->plan.stage_count;
    const uint32_t micro_batches = s->plan.micro_batches / s->stages[stage].replicas;
    uint32_t last = TY_NO_INSTRUCTION;
#define AFTER_LAST                                                                                 \
    (const uint32_t[])                                                                             \
    {                                                                                              \
        last, TY_NO_INSTRUCTION                                                                    \
    }

    for (uint32_t pass = 0; pass < 2; pass++) {
        const ty_direction direction = pass == 0 ? TY_ACTIVATION : TY_GRADIENT;
        const uint32_t before = pass == 0 ? stage - 1 : stage + 1;
        const uint32_t behind = pass == 0 ? stage + 1 : stage - 1;
        const bool receives = pass == 0 ? !is_first : !is_last;
        const bool sends = pass == 0 ? !is_last : !is_first;
        for (uint32_t k = 0; k < micro_batches; k++) {
            last = TY_NO_INSTRUCTION;
            if (receives)
                last = scenario_add(s, stage, transfer(TY_OP_RECEIVE, direction, before, k), NULL,
                                    (ty_instruction_cost){0});
            last = scenario_add(s, stage, op(pass == 0 ? TY_OP_FORWARD : TY_OP_BACKWARD),
                                AFTER_LAST, work(state));
            if (sends)
                scenario_add(s, stage, transfer(TY_OP_SEND, direction, behind, k), AFTER_LAST,
                             traffic(state, is_limited));
        }
    }
    for (uint32_t b = 0; b < s->plan.bucket_count; b++)
        if (s->buckets[b].stage == stage && s->stages[stage].replicas > 1)
            scenario_add(s, stage, exchange(b), AFTER_LAST, traffic(state, is_limited));
}

/* Ranks of a stage replica are adjacent; then come replicas or stages, or devices are a stride
 * apart. */
static void place(scenario *s, uint32_t width, uint32_t order)
{
    const uint32_t devices = ty_cluster_device_count(s->cluster), stages = s->plan.stage_count;
    uint32_t most = 0, next = 0;

    for (uint32_t i = 0; i < stages; i++)
        most = s->stages[i].replicas > most ? s->stages[i].replicas : most;
    s->plan.tensor_parallel = width;
    for (uint32_t i = 0; i < stages; i++) {
        ty_free(s->stages[i].devices);
        s->stages[i].devices = ty_alloc((size_t)s->stages[i].replicas * width, sizeof(uint32_t));
        for (uint32_t q = 0; q < s->stages[i].replicas; q++)
            for (uint32_t replica_rank = 0; replica_rank < width; replica_rank++) {
                const uint32_t group = order == 0 ? next : (order == 1 ? q * stages + i : next);
                uint32_t device = group * width + replica_rank;
                if (order ==
                    2) /* rank by rank: the ranks of a stage replica are on different hosts */
                    device = replica_rank * stages * most + next;
                cr_assert(device < devices, "device %u", device);
                s->stages[i].devices[q * width + replica_rank] = device;
                next += replica_rank + 1 == width;
            }
    }
}

/* Updates after all collectives, which passes need not wait for. */
static void late_updates(scenario *s, uint64_t *state)
{
    s->plan.staleness = random_below(state, 3);
    for (uint32_t i = 0; i < s->plan.stage_count; i++) {
        uint32_t waits[MOST_BUCKETS + 1], count = 0;
        for (uint32_t k = 0; k < s->codes[i].instruction_count; k++) {
            s->codes[i].instructions[k].lead = s->plan.staleness;
            if (s->codes[i].instructions[k].op == TY_OP_COLLECTIVE)
                waits[count++] = k;
        }
        waits[count] = TY_NO_INSTRUCTION;
        scenario_add(s, i, op(TY_OP_UPDATE), waits, work(state));
    }
}

void random_contention(scenario *s, uint64_t *state, bool is_limited)
{
    static const char *const clusters[] = {
        "leaf:4 host:4 gpu:4 @v100-sxm2-16gb nvlink2 edr100 oversub:4",
        "16x dgx-a100",
        "leaf:2 host:8 gpu:8 @h100-sxm nvlink4 ndr400 oversub:2",
        "16x p100-server",
    };
    static const uint32_t counts[] = {1, 2, 4, 8};
    const uint32_t stages = 1 + random_below(state, MOST_STAGES);
    const uint32_t width = counts[random_below(state, 3)];
    const bool is_even = random_below(state, 4) != 0;
    uint32_t replicas[MOST_STAGES];
    uint32_t same = counts[random_below(state, 4)];

    if (stages * same * width > 64)
        same = 4;
    for (uint32_t i = 0; i < stages; i++)
        replicas[i] = is_even ? same : counts[random_below(state, 3)];
    scenario_open(s, cluster_of(clusters[random_below(state, 4)]), stages, replicas, 8);
    place(s, width, random_below(state, 3));
    for (uint32_t i = 0; i < stages; i++)
        for (uint32_t b = random_below(state, 3); b > 0; b--)
            scenario_bucket(s, i, (ty_algorithm)random_below(state, TY_ALGORITHM_COUNT),
                            TY_COMPRESSION_NONE);
    for (uint32_t i = 0; i < stages; i++)
        add_stage(s, state, i, is_limited);
    late_updates(s, state);
    scenario_close(s);
    s->options.steps = 2 + s->plan.staleness;
}

void random_ranks(scenario *s, uint64_t *state)
{
    uint32_t *const kinds[] = {&s->plan.tensor_parallel, &s->plan.context_parallel,
                               &s->plan.expert_parallel};
    uint32_t width = s->plan.tensor_parallel;

    for (int k = 0; k < 3; k++)
        *kinds[k] = 1;
    for (; width > 1; width /= 2)
        *kinds[random_below(state, 3)] *= 2;
    for (uint32_t b = 0; b < s->plan.bucket_count; b++)
        s->buckets[b].of_experts = random_below(state, 2) == 1;
}
