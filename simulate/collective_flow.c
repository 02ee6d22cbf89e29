/* Collectives as flows: all bytes of an edge of the pattern at once,
 * but round by round in trees. */
#include "walk.h"

#include "ty_base.h"

static uint32_t host_of(const ty_walker *walker, const ty_group *group, uint32_t member)
{
    const ty_walk *walk = walker->walk;

    return member < group->member_count
               ? walk->devices[group->members[member]].host
               : ty_network_host(walk->engine->network,
                                 walk->plan->servers.devices[member - group->member_count]);
}

static ty_message message_of(const ty_walker *walker, const ty_group *group, const ty_leg *leg)
{
    ty_message message = leg->message;

    message.from = host_of(walker, group, leg->from);
    message.to = host_of(walker, group, leg->to);
    return message;
}

void ty_flow_play(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost)
{
    const double share = ty_walk_share(&walker->walk->devices[walker->index], cost);
    ty_strand strands[TY_MOST_STRANDS];
    ty_play plays[TY_MOST_STRANDS];
    const uint32_t count = ty_pattern_strands(group->pattern, place, cost, strands);

    for (uint32_t i = 0; i < count; i++) {
        plays[i].count = strands[i].count;
        for (uint32_t l = 0; l < strands[i].count; l++) {
            const ty_leg *leg = &strands[i].legs[l];
            ty_message *message = &plays[i].messages[l];
            *message = message_of(walker, group, leg);
            /* The member's own cores. */
            *(leg->from == place ? &message->from_share : &message->to_share) = share;
        }
    }
    ty_walk_play(walker, plays, count);
}

/* The `number`-th round of a tree, up and then down. */
static uint32_t turn_at(uint32_t number, uint32_t rounds)
{
    return number < rounds ? number : 2 * rounds - 1 - number;
}

/* All members advance from round to round together: a flow is one round's bytes of an edge. Members
 * without a part in a round keep their cores busy, as in every other pattern. */
void ty_flow_tree(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost)
{
    const uint32_t rounds = ty_tree_rounds(group->pattern->member_count);
    const ty_walk_device *device = &walker->walk->devices[walker->index];
    const double share = ty_walk_share(device, cost);
    ty_strand strands[TY_MOST_STRANDS];

    (void)ty_pattern_strands(group->pattern, place, cost, strands);
    for (uint32_t i = 0; i < 2 * rounds; i++) {
        if (turn_at(i, rounds) == ty_tree_turn(place)) {
            const ty_leg *leg = &strands[0].legs[i >= rounds];
            ty_message message = message_of(walker, group, leg);
            *(leg->from == place ? &message.from_share : &message.to_share) = share;
            ty_engine_message(walker->walk->engine, &message);
        } else if (share > 0.0) {
            ty_engine_work(walker->walk->engine, device->host, share,
                           cost->seconds / (2.0 * rounds));
        }
        ty_engine_barrier_wait(walker->walk->engine, &group->barrier);
    }
}

static void fold_tree(ty_walker *walker, const ty_group *group, const ty_instruction_cost *cost)
{
    const uint32_t rounds = ty_tree_rounds(group->pattern->member_count);
    ty_play *plays = ty_walk_plays(group->way_count);

    for (uint32_t i = 0; i < 2 * rounds; i++) {
        uint32_t count = 0;
        for (uint32_t w = 0; w < group->way_count; w++) {
            const ty_fold_way *way = &group->ways[w];
            ty_strand strands[TY_MOST_STRANDS];
            if (turn_at(i, rounds) != ty_tree_turn(way->member))
                continue;
            (void)ty_pattern_strands(group->pattern, way->member, cost, strands);
            plays[count] = (ty_play){{strands[0].legs[i >= rounds].message}, 1};
            ty_walk_aim(walker, way->flows[i >= rounds], &plays[count++].messages[0]);
        }
        ty_walk_play(walker, plays, count);
    }
    ty_free(plays);
}

void ty_flow_folded(ty_walker *walker, const ty_group *group, const ty_instruction_cost *cost)
{
    if (group->pattern->shape == TY_SHAPE_TREE) {
        fold_tree(walker, group, cost);
        return;
    }
    ty_play *plays = ty_walk_plays(group->way_count);
    for (uint32_t w = 0; w < group->way_count; w++) {
        const ty_fold_way *way = &group->ways[w];
        ty_strand strands[TY_MOST_STRANDS];
        (void)ty_pattern_strands(group->pattern, way->member, cost, strands);
        const ty_strand *strand = &strands[way->strand];
        plays[w].count = strand->count;
        for (uint32_t l = 0; l < strand->count; l++) {
            plays[w].messages[l] = strand->legs[l].message;
            ty_walk_aim(walker, way->flows[l], &plays[w].messages[l]);
        }
    }
    ty_walk_play(walker, plays, group->way_count);
    ty_free(plays);
}
