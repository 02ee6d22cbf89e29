/* Collectives as flows: all that goes over an edge of the pattern at once. */
#include "walk.h"

#include "ty_memory.h"

void ty_flow_play(ty_walker *walker, ty_group *group, uint32_t member,
                  const ty_instruction_cost *cost)
{
    const ty_walk *walk = walker->walk;
    const double share = ty_walk_share(&walk->ranks[walker->rank], cost);
    ty_strand strands[TY_MOST_STRANDS];
    const uint32_t count = ty_pattern_strands(group->pattern, member, cost, strands);
    ty_play *plays = ty_walk_plays(count * walk->width);

    for (uint32_t i = 0; i < count * walk->width; i++) {
        const ty_strand *strand = &strands[i / walk->width];
        plays[i].count = strand->count;
        for (uint32_t l = 0; l < strand->count; l++) {
            const ty_leg *leg = &strand->legs[l];
            ty_message *message = &plays[i].messages[l];
            *message = leg->message;
            message->from = ty_group_host(walk, group, leg->from, i % walk->width);
            message->to = ty_group_host(walk, group, leg->to, i % walk->width);
            if (i < walk->width) /* a member's own cores, once */
                *(leg->from == member ? &message->from_share : &message->to_share) = share;
        }
    }
    ty_walk_play(walker, plays, count * walk->width);
    ty_free(plays);
}

void ty_flow_folded(ty_walker *walker, const ty_group *group, const ty_instruction_cost *cost)
{
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
