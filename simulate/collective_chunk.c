/* Collectives step by step: every message of the algorithm by itself, each member going on when its
 * neighbours let it. */
#include "engine.h"
#include "walk.h"

/* One of `count` equal messages of a collective whose parts are in `cost`. */
static ty_message message_of(const ty_instruction_cost *cost, uint32_t count, sg_host_t from,
                             sg_host_t to)
{
    const double n = (double)count;
    const double limit = cost->rate_limit_bytes_per_s;

    return (ty_message){
        .from = from,
        .to = to,
        .latency_s = cost->latency_s / n,
        .bytes = cost->edge_bytes / n,
        .least_s = limit > 0.0 ? cost->edge_bytes / n / limit : 0.0,
        .is_paced = true,
        .seconds = cost->seconds / n,
    };
}

/* The message of step k goes out once that of step k-1 came in: it is what is passed on. */
void ty_chunk_ring(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->member_count;
    const uint32_t next = (member + 1) % n;
    const uint32_t messages = group->kind == TY_ALL_REDUCE ? 2 * (n - 1) : n - 1;
    const uint64_t before = group->plays[member]++ * messages;
    ty_message message = message_of(cost, messages, ty_group_host(walk, group, member),
                                    ty_group_host(walk, group, next));

    message.from_share = ty_walk_share(&walk->ranks[walker->rank], cost);
    for (uint32_t k = 0; k < messages; k++) {
        ty_engine_message(&message);
        ty_walk_advance(walk, &group->arrived[next], group->ranks[next]);
        ty_walk_await(walker, &group->arrived[member], before + k + 1);
    }
}

/* In round k every member sends to the k-th after it, so at either resolution there is a message a
 * round; a member goes on when that of the round has come to it. */
void ty_chunk_all_to_all(ty_walker *walker, ty_group *group, uint32_t member,
                         const ty_instruction_cost *cost)
{
    ty_walk *walk = walker->walk;
    const uint32_t n = group->member_count;
    const uint64_t before = (uint64_t)walker->step * (n - 1);

    for (uint32_t k = 1; k < n; k++) {
        const uint32_t to = (member + k) % n;
        ty_message message = message_of(cost, n - 1, ty_group_host(walk, group, member),
                                        ty_group_host(walk, group, to));
        message.from_share = ty_walk_share(&walk->ranks[walker->rank], cost);
        ty_engine_message(&message);
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

static uint32_t lowest_bit(uint32_t number)
{
    uint32_t bit = 0;
    while ((number >> bit & 1) == 0)
        bit++;
    return bit;
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
    const uint32_t messages = 2 * ty_tree_rounds(n);
    const double share = ty_walk_share(&walk->ranks[walker->rank], cost);
    const sg_host_t self = ty_group_host(walk, group, member);
    const uint64_t step = group->plays[member]++;
    const uint64_t taken = step * (children + (member != 0));

    for (uint32_t k = 0; k < children; k++) {
        ty_walk_advance(walk, &group->invited[member], group->ranks[member + (1u << k)]);
        ty_walk_await(walker, &group->arrived[member], taken + k + 1);
    }
    if (member != 0) {
        const uint32_t turn = lowest_bit(member);
        ty_message up = message_of(cost, messages, self, ty_group_host(walk, group, parent));
        up.from_share = share;
        up.to_share = ty_walk_share(&walk->ranks[group->ranks[parent]], cost);
        ty_walk_await(walker, &group->invited[parent], step * child_count(parent, n) + turn + 1);
        ty_engine_message(&up);
        ty_walk_advance(walk, &group->arrived[parent], group->ranks[parent]);
        ty_walk_await(walker, &group->arrived[member], taken + children + 1);
    }
    for (uint32_t k = children; k-- > 0;) {
        const uint32_t child = member + (1u << k);
        ty_message down = message_of(cost, messages, self, ty_group_host(walk, group, child));
        down.from_share = share;
        down.to_share = ty_walk_share(&walk->ranks[group->ranks[child]], cost);
        ty_engine_message(&down);
        ty_walk_advance(walk, &group->arrived[child], group->ranks[child]);
    }
}
