/* The flow engine: actors as fibers, in the order in which they become ready, and all activities as
 * fluid flows: messages over links, works over the cores of their host, sleep over none. */
#include "engine.h"

#include "child.h"
#include "fiber.h"

#include <math.h>
#include <stdlib.h>

typedef struct actor {
    struct actor *next; /* among ready actors, or at a gate */
    struct world *world;
    ty_fiber *fiber;
    void (*code)(void *);
    void *context;
    bool is_helper;
} actor;

typedef struct queue {
    actor *first, *last;
} queue;

struct ty_gate {
    uint32_t openings;
    queue waiting;
};

/* An activity, and the actor that waits for its end. */
typedef struct activity {
    actor *waiting; /* NULL: it does not wait yet */
    bool has_ended;
} activity;

typedef struct world {
    ty_flows *flows;
    ty_fibers *fibers;
    ty_arena *blocks;
    queue ready;
    actor *current; /* NULL: none, before and after the run */
    uint32_t left;  /* actors that are not helpers */
} world;

static void *need(void *block)
{
    if (block == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    return block;
}

static void push(queue *q, actor *a)
{
    a->next = NULL;
    if (q->last != NULL)
        q->last->next = a;
    else
        q->first = a;
    q->last = a;
}

static actor *pop(queue *q)
{
    actor *first = q->first;

    if (first != NULL && (q->first = first->next) == NULL)
        q->last = NULL;
    return first;
}

/* Time passes until an actor is ready. NULL: none ever is, or all have returned. */
static actor *next_ready(world *w)
{
    while (w->left > 0 && w->ready.first == NULL) {
        activity *ended = ty_flows_next(w->flows);
        if (ended == NULL)
            return NULL;
        ended->has_ended = true;
        if (ended->waiting != NULL)
            push(&w->ready, ended->waiting);
    }
    return w->left > 0 ? pop(&w->ready) : NULL;
}

/* Runs others until the current actor is ready again. */
static void yield(world *w, ty_fiber *self)
{
    actor *next = next_ready(w);

    w->current = next;
    ty_fiber *to = next != NULL ? next->fiber : ty_fibers_main(w->fibers);
    if (to != self)
        ty_fiber_switch(self, to);
}

static void act(void *context)
{
    actor *self = context;
    world *w = self->world;

    self->code(self->context);
    w->left -= !self->is_helper;
    ty_fiber_reuse(w->fibers, self->fiber);
    yield(w, self->fiber);
}

static void spawn(ty_engine *engine, uint32_t host, void (*code)(void *), void *context,
                  bool is_helper)
{
    world *w = engine->state;
    actor *one = need(ty_arena_alloc(w->blocks, 1, sizeof *one));

    (void)host;
    *one = (actor){.world = w, .code = code, .context = context, .is_helper = is_helper};
    one->fiber = need(ty_fiber_new(w->fibers, act, one));
    w->left += !is_helper;
    push(&w->ready, one);
}

static void run(ty_engine *engine)
{
    world *w = engine->state;
    yield(w, ty_fibers_main(w->fibers));
}

static double now(const ty_engine *engine)
{
    const world *w = engine->state;
    return ty_flows_clock(w->flows);
}

static ty_gate *gate(ty_engine *engine)
{
    const world *w = engine->state;
    return need(ty_arena_alloc(w->blocks, 1, sizeof(ty_gate)));
}

static void gate_open(ty_engine *engine, ty_gate *g)
{
    world *w = engine->state;
    actor *released = pop(&g->waiting);

    if (released != NULL)
        push(&w->ready, released);
    else
        g->openings++;
}

static void gate_wait(ty_engine *engine, ty_gate *g)
{
    world *w = engine->state;

    if (g->openings > 0) {
        g->openings--;
        return;
    }
    push(&g->waiting, w->current);
    yield(w, w->current->fiber);
}

static void start(world *w, const ty_hop *hops, uint32_t hop_count, double amount, double limit,
                  activity *one)
{
    if (ty_flows_start(w->flows, hops, hop_count, amount, limit, one) != TY_OK)
        _Exit(TY_CHILD_NO_MEMORY);
}

static void wait_for(world *w, activity *one)
{
    if (one->has_ended)
        return;
    one->waiting = w->current;
    yield(w, w->current->fiber);
}

static void sleep_for(ty_engine *engine, double seconds)
{
    world *w = engine->state;
    activity one = {0};

    start(w, NULL, 0, seconds, 1.0, &one);
    wait_for(w, &one);
}

/* A share of several cores is split over as many of them, in equal parts: one flow with that
 * weight. Each part takes `seconds` even alone on its core. */
static void *work_begin(ty_engine *engine, uint32_t host, double share, double seconds)
{
    world *w = engine->state;
    activity *one = need(ty_alloc(1, sizeof *one));
    ty_hop cores;
    const double parts = fmin(ceil(share), ty_network_cores(engine->network, host, &cores.link));
    const double part = share / parts;

    cores.weight = (uint32_t)parts;
    start(w, &cores, cores.link == TY_NO_LINK ? 0 : 1, seconds * part, fmin(part, 1.0), one);
    return one;
}

static void work_end(ty_engine *engine, void *work)
{
    wait_for(engine->state, work);
    ty_free(work);
}

static void send_over(ty_engine *engine, const ty_route *route, double bytes, double bytes_per_s)
{
    world *w = engine->state;
    activity one = {0};

    if (!(bytes > 0.0))
        return;
    start(w, route->hops, route->hop_count, bytes, bytes_per_s, &one);
    wait_for(w, &one);
}

ty_status ty_engine_open_flow(ty_engine *out, ty_network *network, ty_error *error)
{
    static const ty_engine_calls calls = {
        .spawn = spawn,
        .run = run,
        .clock = now,
        .gate = gate,
        .gate_open = gate_open,
        .gate_wait = gate_wait,
        .sleep = sleep_for,
        .work_begin = work_begin,
        .work_end = work_end,
        .send = send_over,
    };
    uint32_t link_count;
    const double *capacities = ty_network_capacities(network, &link_count);
    world *w = need(ty_alloc(1, sizeof *w));

    w->blocks = need(ty_arena_new());
    TY_TRY(ty_flows_new(capacities, link_count, &w->flows, error));
    TY_TRY(ty_fibers_new(&w->fibers, error));
    *out = (ty_engine){.calls = &calls, .network = network, .state = w};
    return TY_OK;
}
