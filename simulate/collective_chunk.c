/* Collectives in chunk resolution: every message of the algorithm separately; each member continues
 * when its neighbors allow. */
#include "walk.h"

#include <math.h>

static ty_message between(const ty_walker *walker, const ty_group *group, ty_message message,
                          uint32_t from, uint32_t to)
{
    message.from = walker->walk->devices[group->members[from]].host;
    message.to = walker->walk->devices[group->members[to]].host;
    return message;
}

/* Records the arrival of a message at a member. */
static void notify(ty_walk *walk, const ty_group *group, uint64_t *arrived, uint32_t member)
{
    ty_walk_advance(walk, &arrived[member], group->members[member]);
}

/* Sends the `phase`-th messages of all strands of a member, `steps` times. The message of step k
 * leaves once that of step k-1 has arrived, because it forwards it. Each phase counts its own
 * arrivals, because a neighbor may already be in the next one. The member's cores are busy with the
 * first strand. */
static void run_steps(ty_walker *walker, ty_group *group, uint32_t place, uint32_t steps,
                      uint32_t phase, const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    uint64_t *arrived = group->arrived + (size_t)phase * group->member_count;
    ty_strand strands[TY_MOST_STRANDS];
    ty_play plays[TY_MOST_STRANDS];
    const uint32_t count = ty_pattern_strands(group->pattern, place, cost, strands);
    const uint64_t before = group->plays[place] * steps * count;

    for (uint32_t i = 0; i < count; i++) {
        const ty_leg *leg = &strands[i].legs[phase];
        ty_message message = between(walker, group, leg->message, leg->from, leg->to);
        message.latency_s /= steps;
        message.bytes /= steps;
        message.least_s /= steps;
        message.seconds /= steps;
        if (i == 0)
            message.from_share = ty_walk_share(&walk->devices[walker->index], cost);
        plays[i] = (ty_play){{message}, 1};
    }
    for (uint32_t k = 0; k < steps; k++) {
        ty_walk_play(walker, plays, count);
        for (uint32_t i = 0; i < count; i++)
            notify(walk, group, arrived, strands[i].legs[phase].to);
        ty_walk_await(walker, &arrived[place], before + (uint64_t)(k + 1) * count);
    }
}

/* A ring in channels has at most as many steps as its latency allows: a library with its own choice
 * uses trees for small messages, and their depth is only in the cost's latency. */
static uint32_t step_count(const ty_group *group)
{
    const uint32_t n = group->pattern->member_count;
    const uint32_t most = (uint32_t)ty_collective_terms_of(group->kind, TY_RING, n).steps;
    const ty_rails *rails = &group->pattern->rails;
    const double step_s = fmax(rails->around_latency_s, rails->across_latency_s);

    if (group->pattern->shape != TY_SHAPE_RAILS || !(step_s * most > group->latency_s))
        return most;
    return group->latency_s < 2 * step_s ? 1 : (uint32_t)(group->latency_s / step_s);
}

void ty_chunk_ring(ty_walker *walker, ty_group *group, uint32_t place,
                   const ty_instruction_cost *cost)
{
    /* On a torus, shards in different orders keep all axes busy, without common steps. */
    if (group->pattern->rails.torus.axis_count > 0) {
        ty_flow_play(walker, group, place, cost);
        return;
    }
    run_steps(walker, group, place, step_count(group), 0, cost);
    group->plays[place]++;
}

/* A ring in each host, one across, and the one in the host again. */
void ty_chunk_hierarchy(ty_walker *walker, ty_group *group, uint32_t place,
                        const ty_instruction_cost *cost)
{
    const ty_rails *rails = &group->pattern->rails;
    ty_strand strands[TY_MOST_STRANDS];
    (void)ty_pattern_strands(group->pattern, place, cost, strands);

    for (uint32_t phase = 0; phase < strands[0].count; phase++) {
        const bool is_across = rails->per_host == 1 || phase == 1;
        run_steps(walker, group, place,
                  is_across && rails->hosts > 1 ? 2 * (rails->hosts - 1) : rails->per_host - 1,
                  phase, cost);
    }
    group->plays[place]++;
}

/* In round k every member sends to the k-th after it, first inside hosts, then across. */
void ty_chunk_all_to_all(ty_walker *walker, ty_group *group, uint32_t place,
                         const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->pattern->member_count, g = group->pattern->rails.per_host;
    const uint64_t before = group->plays[place] * (n - 1);

    if (group->pattern->rails.torus.axis_count > 0) { /* many hops each: as flows */
        ty_flow_play(walker, group, place, cost);
        return;
    }
    group->plays[place]++;
    for (uint32_t k = 1; k < n; k++) {
        /* The receiver of a member in round k, with `g` members per host. */
        const uint32_t to = ty_pattern_across(
            group->pattern, ty_pattern_around(group->pattern, place, k % g), k / g);
        ty_message message = between(walker, group, ty_message_part(cost, n - 1), place, to);
        message.from_share = ty_walk_share(&walk->devices[walker->index], cost);
        ty_engine_message(walk->engine, &message);
        notify(walk, group, group->arrived, to);
        ty_walk_await(walker, &group->arrived[place], before + k);
    }
}

/* Children of a member in a binomial tree: member + 1, + 2, + 4, ... below its own lowest bit. */
static uint32_t child_count(uint32_t member, uint32_t members)
{
    uint32_t count = 0;
    while ((member & ((uint64_t)1 << count)) == 0 && member + ((uint64_t)1 << count) < members)
        count++;
    return count;
}

/* The message between a member and its parent, either way. */
static ty_message over_edge(const ty_group *group, uint32_t member, const ty_instruction_cost *cost)
{
    ty_strand strands[TY_MOST_STRANDS];
    (void)ty_pattern_strands(group->pattern, member, cost, strands);
    return strands[0].legs[0].message;
}

/*
 * Reduce: a member receives from its children in order of distance, one after another, then sends
 * to its parent when that is ready. Broadcast: the reverse.
 */
void ty_chunk_tree(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->pattern->member_count;
    const uint32_t parent = member & (member - 1);
    const uint32_t children = child_count(member, n);
    const double share = ty_walk_share(&walk->devices[walker->index], cost);
    const uint64_t step = group->plays[member]++;
    const uint64_t taken = step * (children + (member != 0));

    for (uint32_t k = 0; k < children; k++) {
        ty_walk_advance(walk, &group->invited[member], group->members[member + (1u << k)]);
        ty_walk_await(walker, &group->arrived[member], taken + k + 1);
    }
    if (member != 0) {
        const uint32_t turn = ty_tree_turn(member);
        ty_message up = between(walker, group, over_edge(group, member, cost), member, parent);
        up.from_share = share;
        up.to_share = ty_walk_share(&walk->devices[group->members[parent]], cost);
        ty_walk_await(walker, &group->invited[parent], step * child_count(parent, n) + turn + 1);
        ty_engine_message(walk->engine, &up);
        ty_walk_advance(walk, &group->arrived[parent], group->members[parent]);
        ty_walk_await(walker, &group->arrived[member], taken + children + 1);
    }
    for (uint32_t k = children; k-- > 0;) {
        const uint32_t child = member + (1u << k);
        ty_message down = between(walker, group, over_edge(group, child, cost), member, child);
        down.from_share = share;
        down.to_share = ty_walk_share(&walk->devices[group->members[child]], cost);
        ty_engine_message(walk->engine, &down);
        ty_walk_advance(walk, &group->arrived[child], group->members[child]);
    }
}
