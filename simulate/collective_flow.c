/* Collectives as flows: all that goes over an edge of the pattern at once, but round by round in
 * trees. */
#include "walk.h"

#include "ty_memory.h"

/* What a member has to play in all groups. @return how many */
static uint32_t plays_of_member(const ty_walker *walker, const ty_group *group, uint32_t member,
                                const ty_instruction_cost *cost, ty_play *plays)
{
    const ty_walk *walk = walker->walk;
    const uint32_t groups = group->pattern->groups;
    const double share = ty_walk_share(&walk->ranks[walker->rank], cost);
    ty_strand strands[TY_MOST_STRANDS];
    const uint32_t count = ty_pattern_strands(group->pattern, member, cost, strands);

    for (uint32_t i = 0; i < count * groups; i++) {
        const ty_strand *strand = &strands[i / groups];
        plays[i].count = strand->count;
        for (uint32_t l = 0; l < strand->count; l++) {
            const ty_leg *leg = &strand->legs[l];
            ty_message *message = &plays[i].messages[l];
            *message = leg->message;
            message->from = ty_group_host(walk, group, leg->from, i % groups);
            message->to = ty_group_host(walk, group, leg->to, i % groups);
            if (i < groups) /* a member's own cores, once */
                *(leg->from == member ? &message->from_share : &message->to_share) = share;
        }
    }
    return count * groups;
}

void ty_flow_play(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost)
{
    ty_play *plays = ty_walk_plays(walker->walk->width * TY_MOST_STRANDS);
    uint32_t count = 0;

    for (uint32_t n = 0; n < group->lanes; n++)
        count += plays_of_member(walker, group, place * group->lanes + n, cost, plays + count);
    ty_walk_play(walker, plays, count);
    ty_free(plays);
}

/* The round of a tree that is the `number`-th of all, up and then down. */
static uint32_t turn_at(uint32_t number, uint32_t rounds)
{
    return number < rounds ? number : 2 * rounds - 1 - number;
}

/* A member's message to its parent, or the other way, in all groups. */
static uint32_t plays_of_edge(const ty_walker *walker, const ty_group *group, uint32_t member,
                              const ty_leg *leg, double share, ty_play *plays)
{
    const ty_walk *walk = walker->walk;

    for (uint32_t side = 0; side < group->pattern->groups; side++) {
        ty_message *message = &plays[side].messages[0];
        plays[side].count = 1;
        *message = leg->message;
        message->from = ty_group_host(walk, group, leg->from, side);
        message->to = ty_group_host(walk, group, leg->to, side);
        if (side == 0)
            *(leg->from == member ? &message->from_share : &message->to_share) = share;
    }
    return group->pattern->groups;
}

/* All members go from round to round together: a flow is what its round has of an edge. Who has no
 * part in a round keeps its cores all the same, as in every other pattern. */
void ty_flow_tree(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost)
{
    const uint32_t rounds = ty_tree_rounds(group->pattern->member_count);
    const ty_walk_rank *rank = &walker->walk->ranks[walker->rank];
    const double share = ty_walk_share(rank, cost);
    ty_play *plays = ty_walk_plays(walker->walk->width);

    for (uint32_t i = 0; i < 2 * rounds; i++) {
        uint32_t count = 0;
        for (uint32_t n = 0; n < group->lanes; n++) {
            const uint32_t member = place * group->lanes + n;
            ty_strand strands[TY_MOST_STRANDS];
            if (turn_at(i, rounds) != ty_tree_turn(member))
                continue;
            (void)ty_pattern_strands(group->pattern, member, cost, strands);
            count += plays_of_edge(walker, group, member, &strands[0].legs[i >= rounds], share,
                                   plays + count);
        }
        if (count > 0)
            ty_walk_play(walker, plays, count);
        else if (share > 0.0)
            ty_engine_work(rank->hosts[0], share, cost->seconds / (2.0 * rounds));
        ty_engine_barrier_wait(group->barrier);
    }
    ty_free(plays);
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
