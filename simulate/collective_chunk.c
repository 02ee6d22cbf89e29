/* Collectives step by step: every message of the algorithm by itself, each member going on when its
 * neighbours let it. */
#include "walk.h"

#include "ty_memory.h"

#include <math.h>

/* The same message between all lanes of two members. Free with ty_free. */
static ty_play *plays_of(const ty_walk *walk, const ty_group *group, const ty_message *message,
                         uint32_t from, uint32_t to)
{
    ty_play *plays = ty_walk_plays(walk->width);

    for (uint32_t lane = 0; lane < walk->width; lane++) {
        plays[lane] = (ty_play){{*message}, 1};
        plays[lane].messages[0].from = ty_group_host(walk, group, from, lane);
        plays[lane].messages[0].to = ty_group_host(walk, group, to, lane);
    }
    return plays;
}

static void play_between(ty_walker *walker, const ty_group *group, const ty_message *message,
                         uint32_t from, uint32_t to)
{
    ty_play *plays = plays_of(walker->walk, group, message, from, to);

    ty_walk_play(walker, plays, walker->walk->width);
    ty_free(plays);
}

/* One or two messages at once and `steps` times over. The message of step k goes out once that of
 * step k-1 came in: it is what is passed on. A phase has arrivals of its own, since a neighbour may
 * be in the next one already. */
static void run_steps(ty_walker *walker, ty_group *group, uint32_t member, const ty_leg *legs,
                      uint32_t count, uint32_t steps, uint32_t phase)
{
    ty_walk *walk = walker->walk;
    uint64_t *arrived = group->arrived + (size_t)phase * group->member_count;
    const uint64_t before = group->plays[member] * steps * count;
    ty_play *plays = ty_walk_plays(count * walk->width);

    for (uint32_t i = 0; i < count * walk->width; i++) {
        const ty_leg *leg = &legs[i / walk->width];
        ty_message *message = &plays[i].messages[0];
        plays[i].count = 1;
        *message = leg->message;
        message->latency_s /= steps;
        message->bytes /= steps;
        message->least_s /= steps;
        message->seconds /= steps;
        message->from = ty_group_host(walk, group, leg->from, i % walk->width);
        message->to = ty_group_host(walk, group, leg->to, i % walk->width);
    }
    for (uint32_t k = 0; k < steps; k++) {
        ty_walk_play(walker, plays, count * walk->width);
        for (uint32_t l = 0; l < count; l++)
            ty_walk_advance(walk, &arrived[legs[l].to], group->ranks[legs[l].to]);
        ty_walk_await(walker, &arrived[member], before + (uint64_t)(k + 1) * count);
    }
    ty_free(plays);
}

/* The strands of a member, each of one message; its own cores are busy with the first. */
static uint32_t legs_of(const ty_walker *walker, const ty_group *group, uint32_t member,
                        const ty_instruction_cost *cost, ty_leg legs[TY_MOST_STRANDS])
{
    ty_strand strands[TY_MOST_STRANDS];
    const uint32_t count = ty_pattern_strands(group->pattern, member, cost, strands);

    for (uint32_t i = 0; i < count; i++)
        legs[i] = strands[i].legs[0];
    legs[0].message.from_share = ty_walk_share(&walker->walk->ranks[walker->rank], cost);
    return count;
}

/* Of a ring in channels, no more steps than its latency has room for: the library that chooses for
 * itself takes trees where messages are small, and their depth is in the cost's latency alone. */
static uint32_t step_count(const ty_group *group)
{
    const uint32_t n = group->member_count;
    const uint32_t most = group->kind == TY_ALL_REDUCE ? 2 * (n - 1) : n - 1;
    const ty_rails *rails = &group->pattern->rails;
    const double step_s = fmax(rails->around_latency_s, rails->across_latency_s);

    if (group->pattern->shape != TY_SHAPE_RAILS || !(step_s * most > group->latency_s))
        return most;
    return group->latency_s < 2 * step_s ? 1 : (uint32_t)(group->latency_s / step_s);
}

void ty_chunk_ring(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost)
{
    ty_leg legs[TY_MOST_STRANDS];
    const uint32_t count = legs_of(walker, group, member, cost, legs);

    run_steps(walker, group, member, legs, count, step_count(group), 0);
    group->plays[member]++;
}

/* A ring in each host, one across, and the one in the host again. */
void ty_chunk_hierarchy(ty_walker *walker, ty_group *group, uint32_t member,
                        const ty_instruction_cost *cost)
{
    const ty_rails *rails = &group->pattern->rails;
    ty_strand strands[TY_MOST_STRANDS];
    (void)ty_pattern_strands(group->pattern, member, cost, strands);

    for (uint32_t phase = 0; phase < strands[0].count; phase++) {
        const bool is_across = rails->per_host == 1 || phase == 1;
        strands[0].legs[phase].message.from_share =
            ty_walk_share(&walker->walk->ranks[walker->rank], cost);
        run_steps(walker, group, member, &strands[0].legs[phase], 1,
                  is_across && rails->hosts > 1 ? 2 * (rails->hosts - 1) : rails->per_host - 1,
                  phase);
    }
    group->plays[member]++;
}

/* In round k every member sends to the k-th after it, first inside hosts, then across. */
void ty_chunk_all_to_all(ty_walker *walker, ty_group *group, uint32_t member,
                         const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->member_count, g = group->pattern->rails.per_host;
    const uint64_t before = group->plays[member]++ * (n - 1);
    ty_message message = ty_message_part(cost, n - 1);

    message.from_share = ty_walk_share(&walk->ranks[walker->rank], cost);
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t to = ty_pattern_across(
            group->pattern, ty_pattern_around(group->pattern, member, k % g), k / g);
        play_between(walker, group, &message, member, to);
        ty_walk_advance(walk, &group->arrived[to], group->ranks[to]);
        ty_walk_await(walker, &group->arrived[member], before + k);
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

/* What goes over the edge between a member and its parent, either way. */
static ty_message over_edge(const ty_group *group, uint32_t member, const ty_instruction_cost *cost)
{
    ty_strand strands[TY_MOST_STRANDS];
    (void)ty_pattern_strands(group->pattern, member, cost, strands);
    return strands[0].legs[0].message;
}

/*
 * Reduce: a member takes its children in order of distance, one after the other, then sends to its
 * parent when that has come to it. Broadcast: the same backwards.
 */
void ty_chunk_tree(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->member_count;
    const uint32_t parent = member & (member - 1);
    const uint32_t children = child_count(member, n);
    const double share = ty_walk_share(&walk->ranks[walker->rank], cost);
    const uint64_t step = group->plays[member]++;
    const uint64_t taken = step * (children + (member != 0));

    for (uint32_t k = 0; k < children; k++) {
        ty_walk_advance(walk, &group->invited[member], group->ranks[member + (1u << k)]);
        ty_walk_await(walker, &group->arrived[member], taken + k + 1);
    }
    if (member != 0) {
        const uint32_t turn = ty_tree_turn(member);
        ty_message up = over_edge(group, member, cost);
        up.from_share = share;
        up.to_share = ty_walk_share(&walk->ranks[group->ranks[parent]], cost);
        ty_walk_await(walker, &group->invited[parent], step * child_count(parent, n) + turn + 1);
        play_between(walker, group, &up, member, parent);
        ty_walk_advance(walk, &group->arrived[parent], group->ranks[parent]);
        ty_walk_await(walker, &group->arrived[member], taken + children + 1);
    }
    for (uint32_t k = children; k-- > 0;) {
        const uint32_t child = member + (1u << k);
        ty_message down = over_edge(group, child, cost);
        down.from_share = share;
        down.to_share = ty_walk_share(&walk->ranks[group->ranks[child]], cost);
        play_between(walker, group, &down, member, child);
        ty_walk_advance(walk, &group->arrived[child], group->ranks[child]);
    }
}
