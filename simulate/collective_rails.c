/* Collectives that follow the hosts: each member passes on inside its host and, through the NIC
 * nearest to it, to its like in another, so that all NICs of a host work. */
#include "engine.h"
#include "walk.h"

#include <math.h>

enum { MOST_SHIFTS = 4 }; /* hosts that stand for all when everybody sends to everybody */

bool ty_is_railed(ty_algorithm algorithm)
{
    return algorithm != TY_RING && algorithm != TY_TREE;
}

/* ---- Neighbours ---------------------------------------------------------------------------- */

static uint32_t member_around(const ty_group *group, uint32_t member)
{
    uint32_t g = group->rails.per_host, p = group->position[member];
    return group->rails.order[p - p % g + (p + 1) % g];
}

/* `shift` hosts further on. */
static uint32_t member_across(const ty_group *group, uint32_t member, uint32_t shift)
{
    uint64_t p = group->position[member] + (uint64_t)shift * group->rails.per_host;
    return group->rails.order[p % group->member_count];
}

static ty_message message_to(const ty_walker *walker, const ty_group *group, uint32_t member,
                             uint32_t target, double bytes)
{
    return (ty_message){.from = ty_group_host(walker->walk, group, member),
                        .to = ty_group_host(walker->walk, group, target),
                        .bytes = bytes};
}

/* ---- Messages at once ------------------------------------------------------------------------ */

typedef struct side {
    const ty_message *message;
    sg_sem_t gate;
} side;

static void play_side(void *context)
{
    side *s = context;
    ty_engine_message(s->message);
    ty_engine_gate_open(s->gate);
}

/* All of `count` messages together; returns when the last is there. A walker that plays waits for
 * no counter, so that its gate is free for this. */
static void play_together(ty_walker *walker, const ty_message *messages, uint32_t count)
{
    side sides[1 + MOST_SHIFTS];

    for (uint32_t i = 1; i < count; i++) {
        sides[i] = (side){&messages[i], walker->gate};
        ty_engine_spawn("rail", messages[i].from, play_side, &sides[i]);
    }
    ty_engine_message(&messages[0]);
    for (uint32_t i = 1; i < count; i++)
        ty_engine_gate_wait(walker->gate);
}

/* ---- Channelled rings ------------------------------------------------------------------------ */

/* One of `count` equal parts: (g-1)/g of the bytes around the host, of which a mesh spreads most
 * over its other rings, and 1/g across. */
static void play_part(ty_walker *walker, ty_group *group, uint32_t member,
                      const ty_instruction_cost *cost, double count)
{
    const ty_rails *rails = &group->rails;
    const double g = rails->per_host, limit = cost->rate_limit_bytes_per_s;
    const double bytes = cost->edge_bytes / count;
    ty_message messages[2];
    uint32_t ways = 0;

    if (rails->per_host > 1) {
        messages[ways] =
            message_to(walker, group, member, member_around(group, member),
                       bytes * rails->around_share * (rails->hosts > 1 ? (g - 1) / g : 1));
        messages[ways++].is_paced = true;
    }
    /* Not paced: devices that share a NIC fill it together, which pacing does not see. */
    if (rails->hosts > 1)
        messages[ways++] =
            message_to(walker, group, member, member_across(group, member, 1), bytes / g);
    for (uint32_t i = 0; i < ways; i++) {
        messages[i].latency_s = cost->latency_s / count;
        messages[i].least_s = limit > 0.0 ? bytes / limit : 0.0;
        messages[i].seconds = cost->seconds / count;
    }
    messages[0].from_share = ty_walk_share(&walker->walk->ranks[walker->rank], cost);
    play_together(walker, messages, ways);
}

void ty_flow_rails(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost)
{
    play_part(walker, group, member, cost, 1.0);
}

/* A step goes on once both neighbours' last came in. */
void ty_chunk_rails(ty_walker *walker, ty_group *group, uint32_t member,
                    const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->member_count;
    const uint32_t steps = group->kind == TY_ALL_REDUCE ? 2 * (n - 1) : n - 1;
    const uint32_t ways = group->rails.per_host > 1 && group->rails.hosts > 1 ? 2 : 1;
    const uint64_t before = (uint64_t)walker->step * steps * ways;

    for (uint32_t k = 0; k < steps; k++) {
        play_part(walker, group, member, cost, steps);
        if (group->rails.per_host > 1) {
            const uint32_t next = member_around(group, member);
            ty_walk_advance(walk, &group->arrived[next], group->ranks[next]);
        }
        if (group->rails.hosts > 1) {
            const uint32_t next = member_across(group, member, 1);
            ty_walk_advance(walk, &group->arrived[next], group->ranks[next]);
        }
        ty_walk_await(walker, &group->arrived[member], before + (uint64_t)(k + 1) * ways);
    }
}

/* ---- Phases ---------------------------------------------------------------------------------- */

static void play_phase(ty_walker *walker, const ty_instruction_cost *cost, ty_message message,
                       double latency_s, double transfer_s)
{
    message.latency_s = latency_s;
    message.least_s = transfer_s;
    message.seconds = latency_s + transfer_s;
    message.from_share = ty_walk_share(&walker->walk->ranks[walker->rank], cost);
    ty_engine_message(&message);
}

/* Reduce-scatter around the host, all-reduce across, all-gather around it. */
void ty_phased_hierarchical(ty_walker *walker, ty_group *group, uint32_t member,
                            const ty_instruction_cost *cost)
{
    const double g = group->rails.per_host, hosts = group->rails.hosts;
    const double transfer_s = fmax(0.0, cost->seconds - cost->latency_s);
    const double around = (g - 1) / g, across = 2 * (hosts - 1) / hosts / g;
    const double payload = cost->edge_bytes / (2 * around + across);
    const double latency_s = cost->latency_s / (2.0 * (g > 1) + (hosts > 1));
    const ty_message inside = message_to(walker, group, member, member_around(group, member),
                                         payload * around * group->rails.around_share);
    const ty_message outside =
        message_to(walker, group, member, member_across(group, member, 1), payload * across);
    const double inside_s = transfer_s * (1 - cost->across_share) / 2;

    if (g > 1)
        play_phase(walker, cost, inside, latency_s, inside_s);
    if (hosts > 1)
        play_phase(walker, cost, outside, latency_s, transfer_s * cost->across_share);
    if (g > 1)
        play_phase(walker, cost, inside, latency_s, inside_s);
}

/*
 * Everybody sends a share to everybody, twice (push and pull; slices and results). What goes to the
 * other members of the host is played as one message, what goes to other hosts as one to each of a
 * few that stand for all: every NIC and link of a host carries as much as it would.
 */
void ty_phased_exchange(ty_walker *walker, ty_group *group, uint32_t member,
                        const ty_instruction_cost *cost)
{
    const ty_rails *rails = &group->rails;
    const uint32_t others = rails->hosts - 1, shifts = others < MOST_SHIFTS ? others : MOST_SHIFTS;
    const double n = group->member_count, g = rails->per_host;
    const double share = cost->edge_bytes / 2 / (n - 1); /* of each other member, each way */
    ty_message messages[1 + MOST_SHIFTS];
    uint32_t count = 0;

    if (rails->per_host > 1)
        messages[count++] = message_to(walker, group, member, member_around(group, member),
                                       share * (g - 1) * rails->around_share);
    for (uint32_t i = 0; i < shifts; i++) {
        const uint32_t shift = 1 + (uint32_t)((uint64_t)i * others / shifts);
        messages[count++] = message_to(walker, group, member, member_across(group, member, shift),
                                       share * (n - g) / shifts);
    }
    for (uint32_t i = 0; i < count; i++) {
        messages[i].latency_s = cost->latency_s / 2;
        messages[i].least_s = fmax(0.0, cost->seconds - cost->latency_s) / 2;
        messages[i].seconds = cost->seconds / 2;
    }
    messages[0].from_share = ty_walk_share(&walker->walk->ranks[walker->rank], cost);
    for (int way = 0; way < 2; way++)
        play_together(walker, messages, count);
}
