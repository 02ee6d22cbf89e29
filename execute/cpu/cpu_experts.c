/* Expert parallelism: all-to-alls of copies of tokens to the ranks of the experts that they chose,
 * and back (Lepikhin et al., "GShard", ICLR 2021, section 3). */
#include "cpu_layer.h"

#include <string.h>

static uint32_t ranks_of(const ty_stage_device *stage)
{
    return ep_size_of(&stage->options);
}

static ty_status exchange(ty_stage_device *stage, const ty_parallel_exchange *of_copies,
                          ty_error *error)
{
    const ty_parallel_group *parallel = &stage->options.parallel;

    return parallel->exchange(parallel->context, of_copies, error);
}

ty_status cpu_experts_meet(ty_stage_device *stage, const cpu_expert_copies *copies, ty_error *error)
{
    const uint32_t ranks = ranks_of(stage);
    uint32_t at = 0;
    ty_status status;

    for (uint64_t e = 0; e < ranks * copies->experts; e++)
        copies->arrived[e] = copies->start[e + 1] - copies->start[e];
    status =
        exchange(stage,
                 &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                         .kind = TY_ALL_TO_ALL,
                                         .data = (float *)(void *)copies->arrived, /* only moved */
                                         .count = copies->experts},
                 error);
    for (uint64_t e = 0; e < copies->experts && status == TY_OK; e++) {
        copies->first[e] = at;
        for (uint32_t l = 0; l < ranks; l++)
            at += copies->arrived[l * copies->experts + e];
    }
    copies->first[copies->experts] = at;
    return status;
}

/* Floats sent to each rank, and received from it, on the way to the experts. */
typedef struct traffic {
    uint64_t sent[TY_MAX_PARALLEL_SIZE], arrived[TY_MAX_PARALLEL_SIZE];
} traffic;

static void traffic_count(const cpu_expert_copies *copies, uint32_t ranks, traffic *out)
{
    for (uint32_t l = 0; l < ranks; l++) {
        const uint64_t first = l * copies->experts, end = first + copies->experts;

        out->sent[l] = (uint64_t)(copies->start[end] - copies->start[first]) * copies->features;
        out->arrived[l] = 0;
        for (uint64_t e = first; e < end; e++)
            out->arrived[l] += copies->arrived[e] * copies->features;
    }
}

/* Reorders rows between the order of messages, by rank and then by expert, and that of experts'
 * products, by expert and then by rank. */
static void regroup(const cpu_expert_copies *copies, uint32_t ranks, const traffic *t,
                    bool to_experts, float *by_rank, float *by_expert)
{
    float *next[TY_MAX_PARALLEL_SIZE];

    for (uint32_t l = 0; l < ranks; l++) {
        next[l] = by_rank;
        by_rank += t->arrived[l];
    }
    for (uint64_t e = 0; e < copies->experts; e++)
        for (uint32_t l = 0; l < ranks; l++) {
            const uint64_t count = copies->arrived[l * copies->experts + e] * copies->features;

            memcpy(to_experts ? by_expert : next[l], to_experts ? next[l] : by_expert,
                   count * sizeof *by_expert);
            next[l] += count;
            by_expert += count;
        }
}

ty_status cpu_experts_send(ty_stage_device *stage, const cpu_expert_copies *copies, float *own,
                           float *by_rank, float *by_expert, ty_error *error)
{
    const uint32_t ranks = ranks_of(stage);
    traffic t;
    ty_status status;

    traffic_count(copies, ranks, &t);
    status = exchange(stage,
                      &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                              .kind = TY_ALL_TO_ALL,
                                              .data = own,
                                              .sent_counts = t.sent,
                                              .received_counts = t.arrived,
                                              .received = by_rank},
                      error);
    if (status == TY_OK)
        regroup(copies, ranks, &t, true, by_rank, by_expert);
    return status;
}

ty_status cpu_experts_return(ty_stage_device *stage, const cpu_expert_copies *copies,
                             float *by_expert, float *by_rank, float *own, ty_error *error)
{
    const uint32_t ranks = ranks_of(stage);
    traffic t;

    traffic_count(copies, ranks, &t);
    regroup(copies, ranks, &t, false, by_rank, by_expert);
    return exchange(stage,
                    &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                            .kind = TY_ALL_TO_ALL,
                                            .data = by_rank,
                                            .sent_counts = t.arrived,
                                            .received_counts = t.sent,
                                            .received = own},
                    error);
}
