/* Collectives as flows: everything that goes over an edge of the pattern at once. In a pattern
 * whose rounds are even, an edge carries its bytes at a steady rate, so one flow per edge takes as
 * long as all the rounds, and meets other traffic as they would on average. */
#include "engine.h"
#include "walk.h"

#include <math.h>

/* Each member sends to the next one. */
void ty_flow_ring(ty_walker *walker, ty_group *group, uint32_t member,
                  const ty_instruction_cost *cost)
{
    const ty_walk *walk = walker->walk;
    const uint32_t next = (member + 1) % group->member_count;
    const double limit = cost->rate_limit_bytes_per_s;

    ty_engine_message(&(ty_message){
        .from = ty_group_host(walk, group, member),
        .to = ty_group_host(walk, group, next),
        .latency_s = cost->latency_s,
        .bytes = cost->edge_bytes,
        .least_s = limit > 0.0 ? cost->edge_bytes / limit : 0.0,
        .is_paced = true,
        .seconds = cost->seconds,
        .from_share = ty_walk_share(&walk->ranks[walker->rank], cost),
    });
}

/*
 * A binomial tree, up and then down; the parent of a member is its number without the lowest bit.
 * Of the 2 rounds ceil(log2 n) an edge is busy in one on the way up and one on the way down; spread
 * over the half it belongs to, its rate is a share of what one edge alone would have. That is also
 * what is left to each edge at the root, which has one in every round.
 */
void ty_flow_tree(ty_walker *walker, ty_group *group, uint32_t member,
                  const ty_instruction_cost *cost)
{
    const ty_walk *walk = walker->walk;
    const double share = ty_walk_share(&walk->ranks[walker->rank], cost);
    const double rounds = (double)ty_tree_rounds(group->member_count);
    ty_message message = {
        .from = ty_group_host(walk, group, member),
        .to = ty_group_host(walk, group, member & (member - 1)),
        .latency_s = cost->latency_s / 2.0,
        .bytes = cost->edge_bytes / (2.0 * rounds),
        .least_s = fmax(0.0, cost->seconds - cost->latency_s) / 2.0,
        .seconds = cost->seconds / 2.0,
        .from_share = share,
    };

    if (member == 0) { /* its edges are its children's; its cores are its own */
        ty_engine_work(message.from, share, cost->seconds);
        return;
    }
    ty_engine_message(&message);
    const sg_host_t parent = message.to;
    message.to = message.from;
    message.from = parent;
    message.from_share = 0.0;
    message.to_share = share;
    ty_engine_message(&message);
}
