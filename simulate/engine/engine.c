/* Code that all engines share: barriers, messages, concurrent plays. See engine.h. */
#include "engine.h"

#include "child.h"
#include "ty_base.h"

#include <math.h>
#include <stdlib.h>

double ty_engine_clock(const ty_engine *engine)
{
    return engine->calls->clock(engine);
}

ty_gate *ty_engine_gate(ty_engine *engine)
{
    return engine->calls->gate(engine);
}

void ty_engine_gate_open(ty_engine *engine, ty_gate *gate)
{
    engine->calls->gate_open(engine, gate);
}

void ty_engine_gate_wait(ty_engine *engine, ty_gate *gate)
{
    engine->calls->gate_wait(engine, gate);
}

ty_barrier ty_engine_barrier(ty_engine *engine, uint32_t count)
{
    return (ty_barrier){ty_engine_gate(engine), count, 0};
}

/* Gates release actors in the order of their arrival, so one that comes again waits for the next
 * round. */
void ty_engine_barrier_wait(ty_engine *engine, ty_barrier *barrier)
{
    if (++barrier->arrived < barrier->count) {
        ty_engine_gate_wait(engine, barrier->gate);
        return;
    }
    barrier->arrived = 0;
    for (uint32_t i = 1; i < barrier->count; i++)
        ty_engine_gate_open(engine, barrier->gate);
}

static void sleep_until(ty_engine *engine, double time_s)
{
    const double left_s = time_s - ty_engine_clock(engine);
    if (left_s >= TY_RESOLUTION_S)
        engine->calls->sleep(engine, left_s);
}

static void *work_begin(ty_engine *engine, uint32_t host, double share, double seconds)
{
    return share > 0.0 && seconds >= TY_RESOLUTION_S
               ? engine->calls->work_begin(engine, host, share, seconds)
               : NULL;
}

static void work_end(ty_engine *engine, void *work)
{
    if (work != NULL)
        engine->calls->work_end(engine, work);
}

void ty_engine_work_both(ty_engine *engine, const ty_work *one, const ty_work *other)
{
    const double start_s = ty_engine_clock(engine);
    void *first = work_begin(engine, one->host, one->share, one->seconds);
    void *second = work_begin(engine, other->host, other->share, other->seconds);

    if (first == NULL)
        sleep_until(engine, start_s + one->seconds);
    if (second == NULL)
        sleep_until(engine, start_s + other->seconds);
    work_end(engine, first);
    work_end(engine, second);
}

void ty_engine_work(ty_engine *engine, uint32_t host, double share, double seconds)
{
    static const ty_work nothing = {0};
    ty_engine_work_both(engine, &(ty_work){host, share, seconds}, &nothing);
}

/* Latency is time only: as a property of links, it would be the weight of their sharing in SimGrid.
 */
static void flow(ty_engine *engine, const ty_message *message)
{
    const double start_s = ty_engine_clock(engine);
    const ty_route *route = ty_network_route(engine->network, message->from, message->to);
    const double latency_s = fmax(message->latency_s, route->latency_s);
    const bool is_slow =
        message->is_paced && message->least_s > message->bytes / route->bandwidth_bytes_per_s;

    sleep_until(engine, start_s + latency_s);
    engine->calls->send(engine, route, message->bytes,
                        is_slow ? message->bytes / message->least_s : HUGE_VAL);
    sleep_until(engine, start_s + latency_s + message->least_s);
}

void ty_engine_message(ty_engine *engine, const ty_message *message)
{
    const double start_s = ty_engine_clock(engine);
    void *at_source = work_begin(engine, message->from, message->from_share, message->seconds);
    void *at_target = work_begin(engine, message->to, message->to_share, message->seconds);

    if (message->from == message->to)
        sleep_until(engine, start_s + message->seconds);
    else
        flow(engine, message);
    work_end(engine, at_source);
    work_end(engine, at_target);
}

/* ---- Concurrent plays ---------------------------------------------------------------------- */

/* An actor that waits for plays of helpers. */
struct party {
    unsigned left;
    bool is_waiting;
    ty_gate *gate;
};

typedef struct ty_helper {
    struct ty_helper *next; /* in the list of idle helpers */
    ty_engine *engine;
    ty_gate *gate;
    const ty_play *play;
    struct party *party;
} helper;

static void run_play(ty_engine *engine, const ty_play *play)
{
    for (unsigned i = 0; i < play->count; i++)
        ty_engine_message(engine, &play->messages[i]);
}

static void help(void *context)
{
    helper *self = context;
    ty_engine *engine = self->engine;

    for (;;) {
        ty_engine_gate_wait(engine, self->gate);
        run_play(engine, self->play);
        struct party *party = self->party;
        self->next = engine->idle;
        engine->idle = self;
        if (--party->left == 0 && party->is_waiting)
            ty_engine_gate_open(engine, party->gate);
    }
}

static helper *take_helper(ty_engine *engine, uint32_t host)
{
    helper *found = engine->idle;

    if (found != NULL) {
        engine->idle = found->next;
        return found;
    }
    if ((found = ty_alloc(1, sizeof *found)) == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    found->engine = engine;
    found->gate = ty_engine_gate(engine);
    engine->calls->spawn(engine, host, help, found, true);
    return found;
}

void ty_engine_play(ty_engine *engine, ty_gate *gate, const ty_play *plays, unsigned count)
{
    struct party party = {.left = count > 0 ? count - 1 : 0, .gate = gate};

    for (unsigned i = 1; i < count; i++) {
        helper *one = take_helper(engine, plays[i].messages[0].from);
        one->play = &plays[i];
        one->party = &party;
        ty_engine_gate_open(engine, one->gate);
    }
    if (count > 0)
        run_play(engine, &plays[0]);
    if (party.left > 0) {
        party.is_waiting = true;
        ty_engine_gate_wait(engine, gate);
    }
}
