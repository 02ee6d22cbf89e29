/* Fluid flows in a heap of their ends, with max-min shares by connected component. See flow.h. */
#include "flow.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Ends that differ by less are simultaneous: equal flows end together in spite of rounding. */
#define SAME_TIME_S 1e-12
/* A link is full only beyond this share, which rounding may add. */
#define FULL (1.0 + 1e-9)
/* A rate that changes by a smaller share keeps its value. */
#define SAME_RATE 1e-12

#define NOWHERE UINT32_MAX
enum { SIZES = 33, BLOCK_BYTES = 1 << 15 };

typedef struct flow flow;

/* A flow on a link: in the list of the link's flows, and in the array of the flow's links. */
typedef struct use {
    flow *flow;
    struct use *next, *previous;
    uint32_t link, weight;
} use;

struct flow {
    flow *next; /* in the list of free or of started flows */
    void *context;
    uint64_t order;       /* of starts */
    double left, since_s; /* amount at a time; it falls with `rate` */
    double rate, most;    /* `most`: limited by itself and by its narrowest link alone */
    uint32_t heap_at;     /* NOWHERE: has no rate yet */
    uint32_t hop_count;
    uint64_t mark; /* last component that it was in */
    bool is_fixed; /* in the component that is being solved */
    use uses[];
};

typedef struct link {
    double capacity;
    double demand; /* sum of weight * `most` of its flows */
    use *first;
    double left, weight; /* in the component that is being solved: capacity for, and sum of the
                            weights of flows that are not fixed */
    uint64_t mark;
    bool is_dirty;
} link;

/* Ends, in a heap of four children per entry. */
typedef struct end {
    double time_s;
    uint64_t order;
    flow *flow;
} end;

/* A link of a component, by the rate that it allows its flows that are not fixed. */
typedef struct level {
    double rate;
    uint32_t link;
} level;

struct ty_flows {
    double now_s;
    uint64_t started, mark;
    link *links;
    uint32_t live, room; /* flows; `heap` and `members` have room for all */
    end *heap;
    uint32_t heap_count;
    flow *fresh;     /* started, without a rate */
    uint32_t *dirty; /* [links]: those whose flows may become faster */
    uint32_t dirty_count;
    flow **members; /* of the component that is being solved */
    uint32_t member_count;
    level *levels; /* [links] */
    uint32_t level_count;
    flow *unused[SIZES]; /* by number of uses: 0, 1, 2, 4, 8 ... */
    ty_arena *blocks;
};

ty_status ty_flows_new(const double *capacities, uint32_t link_count, ty_flows **out,
                       ty_error *error)
{
    ty_flows *flows = ty_alloc(1, sizeof *flows);

    TY_TRY(ty_check_memory(flows != NULL, error));
    flows->links = ty_alloc(link_count, sizeof *flows->links);
    flows->dirty = ty_alloc(link_count, sizeof *flows->dirty);
    flows->levels = ty_alloc(link_count, sizeof *flows->levels);
    flows->blocks = ty_arena_new();
    if (flows->links == NULL || flows->dirty == NULL || flows->levels == NULL ||
        flows->blocks == NULL) {
        ty_flows_free(flows);
        return ty_check_memory(false, error);
    }
    for (uint32_t l = 0; l < link_count; l++)
        flows->links[l].capacity = capacities[l];
    *out = flows;
    return TY_OK;
}

void ty_flows_free(ty_flows *flows)
{
    if (flows == NULL)
        return;
    ty_free(flows->links);
    ty_free(flows->heap);
    ty_free(flows->dirty);
    ty_free(flows->members);
    ty_free(flows->levels);
    ty_arena_free(flows->blocks);
    ty_free(flows);
}

double ty_flows_clock(const ty_flows *flows)
{
    return flows->now_s;
}

/* ---- Ends ---------------------------------------------------------------------------------- */

static bool is_before(const end *a, const end *b)
{
    return a->time_s < b->time_s || (a->time_s == b->time_s && a->order < b->order);
}

static void put(ty_flows *flows, uint32_t at, end entry)
{
    flows->heap[at] = entry;
    entry.flow->heap_at = at;
}

/* Moves an entry from a free place to where it belongs. */
static void settle(ty_flows *flows, uint32_t at, end entry)
{
    for (uint32_t up = (at - 1) / 4; at > 0 && is_before(&entry, &flows->heap[up]);
         at = up, up = (at - 1) / 4)
        put(flows, at, flows->heap[up]);
    for (;;) {
        const uint32_t first = 4 * at + 1;
        uint32_t least = first;
        for (uint32_t c = first + 1; c < first + 4 && c < flows->heap_count; c++)
            if (is_before(&flows->heap[c], &flows->heap[least]))
                least = c;
        if (first >= flows->heap_count || !is_before(&flows->heap[least], &entry))
            break;
        put(flows, at, flows->heap[least]);
        at = least;
    }
    put(flows, at, entry);
}

static flow *take_first(ty_flows *flows)
{
    flow *first = flows->heap[0].flow;
    const end last = flows->heap[--flows->heap_count];

    if (flows->heap_count > 0)
        settle(flows, 0, last);
    return first;
}

static void set_rate(ty_flows *flows, flow *f, double rate)
{
    if (f->heap_at != NOWHERE && fabs(rate - f->rate) <= SAME_RATE * rate)
        return;
    f->left = fmax(0.0, f->left - f->rate * (flows->now_s - f->since_s));
    f->since_s = flows->now_s;
    f->rate = rate;
    const end entry = {flows->now_s + f->left / rate, f->order, f};
    settle(flows, f->heap_at == NOWHERE ? flows->heap_count++ : f->heap_at, entry);
}

/* ---- Shares -------------------------------------------------------------------------------- */

/* Only a link that is full if all its flows have their highest rates connects them. */
static bool connects(const link *l)
{
    return l->demand > l->capacity * FULL;
}

static void add_member(ty_flows *flows, flow *f)
{
    if (f->mark == flows->mark)
        return;
    f->mark = flows->mark;
    f->is_fixed = false;
    flows->members[flows->member_count++] = f;
}

/* Adds what its members are connected to. */
static void complete_component(ty_flows *flows)
{
    flows->level_count = 0;
    for (uint32_t m = 0; m < flows->member_count; m++) {
        const flow *f = flows->members[m];
        for (uint32_t h = 0; h < f->hop_count; h++) {
            link *l = &flows->links[f->uses[h].link];
            if (l->mark == flows->mark || !connects(l))
                continue;
            l->mark = flows->mark;
            l->left = l->capacity;
            l->weight = 0.0;
            for (const use *u = l->first; u != NULL; u = u->next) {
                l->weight += u->weight;
                add_member(flows, u->flow);
            }
            flows->levels[flows->level_count++] = (level){l->left / l->weight, f->uses[h].link};
        }
    }
}

/* Moves a level down a binary heap. */
static void sink(level *levels, uint32_t count, uint32_t at)
{
    const level moved = levels[at];

    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && levels[child + 1].rate < levels[child].rate)
            child++;
        if (!(levels[child].rate < moved.rate))
            break;
        levels[at] = levels[child];
    }
    levels[at] = moved;
}

/* Brings the lowest level to the front: levels only rise, so a stale one is too low. NULL: none. */
static const level *lowest_level(ty_flows *flows)
{
    while (flows->level_count > 0) {
        level *first = &flows->levels[0];
        const link *l = &flows->links[first->link];
        const double rate = l->weight > 0.0 ? fmax(0.0, l->left) / l->weight : HUGE_VAL;
        if (rate <= first->rate)
            return first;
        if (rate < HUGE_VAL)
            first->rate = rate;
        else
            *first = flows->levels[--flows->level_count];
        sink(flows->levels, flows->level_count, 0);
    }
    return NULL;
}

static void fix(ty_flows *flows, flow *f, double rate)
{
    f->is_fixed = true;
    for (uint32_t h = 0; h < f->hop_count; h++) {
        link *l = &flows->links[f->uses[h].link];
        if (l->mark != flows->mark)
            continue;
        l->left -= rate * f->uses[h].weight;
        l->weight -= f->uses[h].weight;
    }
    set_rate(flows, f, rate);
}

static int by_most(const void *left, const void *right)
{
    const flow *a = *(flow *const *)left, *b = *(flow *const *)right;
    if (a->most != b->most)
        return a->most < b->most ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

static void sort_members(ty_flows *flows)
{
    for (uint32_t m = 1; m < flows->member_count; m++)
        if (flows->members[m]->most < flows->members[m - 1]->most) {
            qsort(flows->members, flows->member_count, sizeof(flow *), by_most);
            return;
        }
}

/* Raises the rates of all members together; each stops at its highest rate or on a full link. */
static void share(ty_flows *flows)
{
    complete_component(flows);
    for (uint32_t i = flows->level_count / 2; i-- > 0;)
        sink(flows->levels, flows->level_count, i);
    sort_members(flows);
    for (uint32_t m = 0; m < flows->member_count;) {
        flow *next = flows->members[m];
        const level *lowest;
        if (next->is_fixed) {
            m++;
        } else if ((lowest = lowest_level(flows)) == NULL || next->most <= lowest->rate) {
            fix(flows, next, next->most);
        } else {
            const level full = *lowest;
            for (const use *u = flows->links[full.link].first; u != NULL; u = u->next)
                if (!u->flow->is_fixed)
                    fix(flows, u->flow, full.rate);
        }
    }
}

/* Rates of all that may have changed, each component once: marks above `before` are of this pass.
 */
static void share_all(ty_flows *flows)
{
    const uint64_t before = flows->mark;

    for (uint32_t d = 0; d < flows->dirty_count; d++) {
        link *l = &flows->links[flows->dirty[d]];
        l->is_dirty = false;
        flows->mark++;
        flows->member_count = 0;
        for (const use *u = l->first; u != NULL; u = u->next)
            if (u->flow->mark <= before)
                add_member(flows, u->flow);
        share(flows);
    }
    flows->dirty_count = 0;
    for (flow *f = flows->fresh; f != NULL; f = f->next) {
        if (f->mark > before)
            continue;
        flows->mark++;
        flows->member_count = 0;
        add_member(flows, f);
        share(flows);
    }
    flows->fresh = NULL;
}

/* ---- Flows --------------------------------------------------------------------------------- */

static unsigned size_of(uint32_t hop_count)
{
    unsigned size = 0;
    while (size < SIZES - 1 && hop_count > (size == 0 ? 0 : (uint64_t)1 << (size - 1)))
        size++;
    return size;
}

static flow *take_flow(ty_flows *flows, uint32_t hop_count)
{
    const unsigned size = size_of(hop_count);
    flow *found = flows->unused[size];

    if (found == NULL) {
        const size_t bytes = sizeof(flow) + (size == 0 ? 0 : (size_t)1 << (size - 1)) * sizeof(use);
        const size_t count = 1 + BLOCK_BYTES / bytes;
        char *block = ty_arena_alloc(flows->blocks, count, bytes);
        if (block == NULL)
            return NULL;
        for (size_t i = count; i-- > 0;) {
            found = (flow *)(void *)(block + i * bytes);
            found->next = flows->unused[size];
            flows->unused[size] = found;
        }
    }
    flows->unused[size] = found->next;
    return found;
}

static bool make_room(ty_flows *flows)
{
    const uint32_t room = flows->room == 0 ? 256 : 2 * flows->room;
    end *heap;
    flow **members;

    if (flows->live < flows->room)
        return true;
    if ((heap = ty_resize(flows->heap, room, sizeof *heap)) == NULL)
        return false;
    flows->heap = heap;
    if ((members = ty_resize(flows->members, room, sizeof(flow *))) == NULL)
        return false;
    flows->members = members;
    flows->room = room;
    return true;
}

ty_status ty_flows_start(ty_flows *flows, const ty_hop *hops, uint32_t hop_count, double amount,
                         double limit, void *context)
{
    flow *f;

    if (!make_room(flows) || (f = take_flow(flows, hop_count)) == NULL)
        return TY_ENOMEM;
    flows->live++;
    f->context = context;
    f->order = flows->started++;
    f->left = amount;
    f->since_s = flows->now_s;
    f->rate = 0.0;
    f->most = limit;
    f->heap_at = NOWHERE;
    f->hop_count = hop_count;
    f->mark = 0;
    for (uint32_t h = 0; h < hop_count; h++)
        f->most = fmin(f->most, flows->links[hops[h].link].capacity / hops[h].weight);
    for (uint32_t h = 0; h < hop_count; h++) {
        link *l = &flows->links[hops[h].link];
        use *u = &f->uses[h];
        *u = (use){f, l->first, NULL, hops[h].link, hops[h].weight};
        if (l->first != NULL)
            l->first->previous = u;
        l->first = u;
        l->demand += f->most * u->weight;
    }
    if (hop_count == 0) {
        set_rate(flows, f, f->most);
        return TY_OK;
    }
    f->next = flows->fresh;
    flows->fresh = f;
    return TY_OK;
}

static void leave(ty_flows *flows, const flow *f, const use *u)
{
    link *l = &flows->links[u->link];

    if (connects(l) && !l->is_dirty) {
        l->is_dirty = true;
        flows->dirty[flows->dirty_count++] = u->link;
    }
    if (u->previous != NULL)
        u->previous->next = u->next;
    else
        l->first = u->next;
    if (u->next != NULL)
        u->next->previous = u->previous;
    l->demand = l->first == NULL ? 0.0 : l->demand - f->most * u->weight;
}

void *ty_flows_next(ty_flows *flows)
{
    if (flows->heap_count == 0 || flows->heap[0].time_s > flows->now_s + SAME_TIME_S)
        share_all(flows);
    if (flows->heap_count == 0)
        return NULL;
    flows->now_s = fmax(flows->now_s, flows->heap[0].time_s);
    flow *f = take_first(flows);
    for (uint32_t h = 0; h < f->hop_count; h++)
        leave(flows, f, &f->uses[h]);
    const unsigned size = size_of(f->hop_count);
    f->next = flows->unused[size];
    flows->unused[size] = f;
    flows->live--;
    return f->context;
}
