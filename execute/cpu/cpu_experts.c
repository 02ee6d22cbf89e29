/* Expert lanes: how copies of tokens get to the lane that has the expert they chose, and back
 * (Lepikhin et al., "GShard", ICLR 2021, section 3). */
#include "cpu_layer.h"

#include <string.h>

static uint32_t lanes_of(const ty_stage_device *stage)
{
    return lane_expert_count(&stage->options);
}

static ty_status exchange(ty_stage_device *stage, const ty_lane_exchange *of_copies,
                          ty_error *error)
{
    const ty_lane_group *lanes = &stage->options.lanes;

    return lanes->exchange(lanes->context, of_copies, error);
}

ty_status cpu_experts_meet(ty_stage_device *stage, const cpu_expert_copies *copies, ty_error *error)
{
    const uint32_t lanes = lanes_of(stage);
    uint32_t at = 0;
    ty_status status;

    for (uint64_t e = 0; e < lanes * copies->experts; e++)
        copies->arrived[e] = copies->start[e + 1] - copies->start[e];
    status = exchange(stage,
                      &(ty_lane_exchange){.among = TY_EXPERT_LANES,
                                          .kind = TY_ALL_TO_ALL,
                                          .data = (float *)(void *)copies->arrived, /* only moved */
                                          .count = copies->experts},
                      error);
    for (uint64_t e = 0; e < copies->experts && status == TY_OK; e++) {
        copies->first[e] = at;
        for (uint32_t l = 0; l < lanes; l++)
            at += copies->arrived[l * copies->experts + e];
    }
    copies->first[copies->experts] = at;
    return status;
}

/* Floats that go to each lane, and come from it, on the way to the experts. */
typedef struct traffic {
    uint64_t sent[TY_MAX_LANES], arrived[TY_MAX_LANES];
} traffic;

static void traffic_count(const cpu_expert_copies *copies, uint32_t lanes, traffic *out)
{
    for (uint32_t l = 0; l < lanes; l++) {
        const uint64_t first = l * copies->experts, end = first + copies->experts;

        out->sent[l] = (uint64_t)(copies->start[end] - copies->start[first]) * copies->features;
        out->arrived[l] = 0;
        for (uint64_t e = first; e < end; e++)
            out->arrived[l] += copies->arrived[e] * copies->features;
    }
}

/* Rows between the order in which they travel, lane by lane and in each by expert, and that in
 * which experts take them, expert by expert and in each by lane. */
static void regroup(const cpu_expert_copies *copies, uint32_t lanes, const traffic *t,
                    bool to_experts, float *by_lane, float *by_expert)
{
    float *next[TY_MAX_LANES];

    for (uint32_t l = 0; l < lanes; l++) {
        next[l] = by_lane;
        by_lane += t->arrived[l];
    }
    for (uint64_t e = 0; e < copies->experts; e++)
        for (uint32_t l = 0; l < lanes; l++) {
            const uint64_t count = copies->arrived[l * copies->experts + e] * copies->features;

            memcpy(to_experts ? by_expert : next[l], to_experts ? next[l] : by_expert,
                   count * sizeof *by_expert);
            next[l] += count;
            by_expert += count;
        }
}

ty_status cpu_experts_send(ty_stage_device *stage, const cpu_expert_copies *copies, float *own,
                           float *by_lane, float *by_expert, ty_error *error)
{
    const uint32_t lanes = lanes_of(stage);
    traffic t;
    ty_status status;

    traffic_count(copies, lanes, &t);
    status = exchange(stage,
                      &(ty_lane_exchange){.among = TY_EXPERT_LANES,
                                          .kind = TY_ALL_TO_ALL,
                                          .data = own,
                                          .sent_counts = t.sent,
                                          .received_counts = t.arrived,
                                          .received = by_lane},
                      error);
    if (status == TY_OK)
        regroup(copies, lanes, &t, true, by_lane, by_expert);
    return status;
}

ty_status cpu_experts_return(ty_stage_device *stage, const cpu_expert_copies *copies,
                             float *by_expert, float *by_lane, float *own, ty_error *error)
{
    const uint32_t lanes = lanes_of(stage);
    traffic t;

    traffic_count(copies, lanes, &t);
    regroup(copies, lanes, &t, false, by_lane, by_expert);
    return exchange(stage,
                    &(ty_lane_exchange){.among = TY_EXPERT_LANES,
                                        .kind = TY_ALL_TO_ALL,
                                        .data = by_lane,
                                        .sent_counts = t.arrived,
                                        .received_counts = t.sent,
                                        .received = own},
                    error);
}
