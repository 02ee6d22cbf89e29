/* Collectives step by step: every message of the algorithm by itself, each member going on when its
 * neighbours let it. */
#include "walk.h"

#include "child.h"
#include "ty_memory.h"

#include <math.h>
#include <stdlib.h>

/* A message between two members in all groups. @return how many plays that is */
static uint32_t plays_between(const ty_walk *walk, const ty_group *group, const ty_message *message,
                              uint32_t from, uint32_t to, ty_play *plays)
{
    for (uint32_t side = 0; side < group->pattern->groups; side++) {
        plays[side] = (ty_play){{*message}, 1};
        plays[side].messages[0].from = ty_group_host(walk, group, from, side);
        plays[side].messages[0].to = ty_group_host(walk, group, to, side);
    }
    return group->pattern->groups;
}

static void play_between(ty_walker *walker, const ty_group *group, const ty_message *message,
                         uint32_t from, uint32_t to)
{
    ty_play *plays = ty_walk_plays(group->pattern->groups);

    ty_walk_play(walker, plays, plays_between(walker->walk, group, message, from, to, plays));
    ty_free(plays);
}

/* A message has come to a member. */
static void tell(ty_walk *walk, const ty_group *group, uint64_t *arrived, uint32_t member)
{
    ty_walk_advance(walk, &arrived[member], group->ranks[member / group->lanes]);
}

/* Messages of the lanes of a rank that are members, `count` each and at once. */
typedef struct moves {
    uint32_t count, total;
    ty_leg *legs; /* [total]: lane by lane */
} moves;

static moves moves_new(const ty_group *group)
{
    const size_t most = (size_t)group->lanes * TY_MOST_STRANDS;
    moves m = {.legs = ty_alloc(most, sizeof *m.legs)};

    if (m.legs == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    return m;
}

/* The `phase`-th messages of all strands of all members; of each member, its own cores are busy
 * with the first. */
static void moves_find(moves *m, const ty_walker *walker, const ty_group *group, uint32_t place,
                       uint32_t phase, const ty_instruction_cost *cost)
{
    m->total = 0;
    for (uint32_t n = 0; n < group->lanes; n++) {
        ty_strand strands[TY_MOST_STRANDS];
        m->count = ty_pattern_strands(group->pattern, place * group->lanes + n, cost, strands);
        for (uint32_t i = 0; i < m->count; i++) {
            ty_leg *leg = &m->legs[m->total++];
            *leg = strands[i].legs[phase];
            if (i == 0)
                leg->message.from_share = ty_walk_share(&walker->walk->ranks[walker->rank], cost);
        }
    }
}

/* All moves `steps` times over. The message of step k goes out once that of step k-1 came in: it is
 * what is passed on; lanes of a rank keep step. A phase has arrivals of its own, since a neighbour
 * may be in the next one already. */
static void run_steps(ty_walker *walker, ty_group *group, uint32_t place, const moves *m,
                      uint32_t steps, uint32_t phase)
{
    ty_walk *walk = walker->walk;
    uint64_t *arrived = group->arrived + (size_t)phase * group->pattern->member_count;
    const uint64_t before = group->plays[place] * steps * m->count;
    ty_play *plays = ty_walk_plays(m->total * group->pattern->groups);
    uint32_t count = 0;

    for (uint32_t i = 0; i < m->total; i++) {
        ty_message message = m->legs[i].message;
        message.latency_s /= steps;
        message.bytes /= steps;
        message.least_s /= steps;
        message.seconds /= steps;
        count +=
            plays_between(walk, group, &message, m->legs[i].from, m->legs[i].to, plays + count);
    }
    for (uint32_t k = 0; k < steps; k++) {
        ty_walk_play(walker, plays, count);
        for (uint32_t i = 0; i < m->total; i++)
            tell(walk, group, arrived, m->legs[i].to);
        for (uint32_t n = 0; n < group->lanes; n++)
            ty_walk_await(walker, &arrived[place * group->lanes + n],
                          before + (uint64_t)(k + 1) * m->count);
    }
    ty_free(plays);
}

/* Of a ring in channels, no more steps than its latency has room for: the library that chooses for
 * itself takes trees where messages are small, and their depth is in the cost's latency alone. */
static uint32_t step_count(const ty_group *group)
{
    const uint32_t n = group->pattern->member_count;
    const uint32_t most = group->kind == TY_ALL_REDUCE ? 2 * (n - 1) : n - 1;
    const ty_rails *rails = &group->pattern->rails;
    const double step_s = fmax(rails->around_latency_s, rails->across_latency_s);

    if (group->pattern->shape != TY_SHAPE_RAILS || !(step_s * most > group->latency_s))
        return most;
    return group->latency_s < 2 * step_s ? 1 : (uint32_t)(group->latency_s / step_s);
}

void ty_chunk_ring(ty_walker *walker, ty_group *group, uint32_t place,
                   const ty_instruction_cost *cost)
{
    moves m = moves_new(group);

    moves_find(&m, walker, group, place, 0, cost);
    run_steps(walker, group, place, &m, step_count(group), 0);
    group->plays[place]++;
    ty_free(m.legs);
}

/* A ring in each host, one across, and the one in the host again. */
void ty_chunk_hierarchy(ty_walker *walker, ty_group *group, uint32_t place,
                        const ty_instruction_cost *cost)
{
    const ty_rails *rails = &group->pattern->rails;
    moves m = moves_new(group);
    ty_strand strands[TY_MOST_STRANDS];
    (void)ty_pattern_strands(group->pattern, place * group->lanes, cost, strands);

    for (uint32_t phase = 0; phase < strands[0].count; phase++) {
        const bool is_across = rails->per_host == 1 || phase == 1;
        moves_find(&m, walker, group, place, phase, cost);
        run_steps(walker, group, place, &m,
                  is_across && rails->hosts > 1 ? 2 * (rails->hosts - 1) : rails->per_host - 1,
                  phase);
    }
    group->plays[place]++;
    ty_free(m.legs);
}

/* Whom a member sends to in round k, `g` members being on a host. */
static uint32_t receiver_of(const ty_group *group, uint32_t member, uint32_t k, uint32_t g)
{
    return ty_pattern_across(group->pattern, ty_pattern_around(group->pattern, member, k % g),
                             k / g);
}

/* In round k every member sends to the k-th after it, first inside hosts, then across. */
void ty_chunk_all_to_all(ty_walker *walker, ty_group *group, uint32_t place,
                         const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->pattern->member_count, g = group->pattern->rails.per_host;
    const uint32_t first = place * group->lanes;
    const uint64_t before = group->plays[place]++ * (n - 1);
    ty_message message = ty_message_part(cost, n - 1);
    ty_play *plays = ty_walk_plays(walk->width);

    message.from_share = ty_walk_share(&walk->ranks[walker->rank], cost);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t count = 0;
        for (uint32_t own = first; own < first + group->lanes; own++)
            count += plays_between(walk, group, &message, own, receiver_of(group, own, k, g),
                                   plays + count);
        ty_walk_play(walker, plays, count);
        for (uint32_t own = first; own < first + group->lanes; own++)
            tell(walk, group, group->arrived, receiver_of(group, own, k, g));
        for (uint32_t own = first; own < first + group->lanes; own++)
            ty_walk_await(walker, &group->arrived[own], before + k);
    }
    ty_free(plays);
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
 * parent when that has come to it. Broadcast: the same backwards. Where several lanes of a rank are
 * members, they keep step, and go from round to round as flows do.
 */
void ty_chunk_tree(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->pattern->member_count;
    const uint32_t parent = member & (member - 1);
    const uint32_t children = child_count(member, n);
    const double share = ty_walk_share(&walk->ranks[walker->rank], cost);
    const uint64_t step = group->plays[member]++;
    const uint64_t taken = step * (children + (member != 0));

    if (group->lanes > 1) {
        ty_flow_tree(walker, group, member, cost);
        return;
    }
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
