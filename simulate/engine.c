/* All calls to SimGrid. See engine.h. */
#include "engine.h"

#include "child.h"
#include "simgrid_calls.h"
#include "ty_base.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Below SimGrid's time resolution; it would round up and warn. */
#define RESOLUTION_S 1e-9

/* Maximum number of pieces of a rate-limited message. */
#define MAX_PIECES 8.0

#if defined(__has_feature) /* clang's form; gcc defines macros */
#if __has_feature(thread_sanitizer)
#define IS_THREAD_SANITIZED
#endif
#if __has_feature(address_sanitizer)
#define IS_ADDRESS_SANITIZED
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define IS_THREAD_SANITIZED
#endif
#ifdef __SANITIZE_ADDRESS__
#define IS_ADDRESS_SANITIZED
#endif

/* KiB per stack, which is cleared, and guard pages below it: none with thousands of actors. The
 * address sanitizer needs both (its frames are larger). The thread sanitizer cannot follow a switch
 * of stacks: there, actors are threads. */
#if defined(IS_THREAD_SANITIZED)
#define CONTEXTS "--cfg=contexts/stack-size:64", "--cfg=contexts/factory:thread"
#elif defined(IS_ADDRESS_SANITIZED)
#define CONTEXTS "--cfg=contexts/stack-size:256", "--cfg=contexts/guard-size:1"
#else
#define CONTEXTS "--cfg=contexts/stack-size:64", "--cfg=contexts/guard-size:0"
#endif

/* Exactly latency + bytes / bandwidth, with even sharing of links: no corrections fitted to TCP, no
 * limit by window over round-trip time, no traffic of acknowledgments. */
static char *const options[] = {
    "trainyard",
    "--cfg=network/model:CM02",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/TCP-gamma:0",
    CONTEXTS,
    "--log=root.thres:error", /* its output is for an error message */
    NULL,
};

static const ty_simgrid_calls *simgrid;

ty_status ty_engine_load(ty_error *error)
{
    const ty_simgrid_calls *found; /* for children, one each */

    return ty_simgrid_load(&found, error);
}

void ty_engine_open(const char *platform_path)
{
    ty_error error = {0};
    char *arguments[sizeof options / sizeof *options];
    int count = (int)(sizeof options / sizeof *options) - 1;

    if (ty_simgrid_load(&simgrid, &error) != TY_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(EXIT_FAILURE);
    }
    for (int i = 0; i <= count; i++)
        arguments[i] = options[i];
    simgrid->simgrid_init(&count, arguments);
    signal(SIGINT, SIG_DFL); /* its own handler would end the process with 1, like a failure */
    simgrid->simgrid_load_platform(platform_path);
}

sg_host_t ty_engine_host(const char *name)
{
    return simgrid->sg_host_by_name(name);
}

/* Function and context of an actor, as its user data: SimGrid passes only strings. */
struct part {
    void (*code)(void *);
    void *context;
};

static void act(int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    struct part *part = simgrid->sg_actor_self_get_data();
    part->code(part->context);
    ty_free(part);
}

static sg_actor_t spawn(const char *name, sg_host_t host, void (*code)(void *), void *context)
{
    struct part *part = ty_alloc(1, sizeof *part);
    if (part == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    *part = (struct part){code, context};
    sg_actor_t actor = simgrid->sg_actor_init(name, host);
    simgrid->sg_actor_set_data(actor, part);
    simgrid->sg_actor_start_(actor, act, 0, NULL);
    return actor;
}

void ty_engine_spawn(const char *name, sg_host_t host, void (*code)(void *), void *context)
{
    (void)spawn(name, host, code, context);
}

void ty_engine_run(void)
{
    simgrid->simgrid_run();
}

double ty_engine_clock(void)
{
    return simgrid->simgrid_get_clock();
}

sg_sem_t ty_engine_gate(void)
{
    return simgrid->sg_sem_init(0);
}

void ty_engine_gate_open(sg_sem_t gate)
{
    simgrid->sg_sem_release(gate);
}

void ty_engine_gate_wait(sg_sem_t gate)
{
    simgrid->sg_sem_acquire(gate);
}

sg_bar_t ty_engine_barrier(unsigned count)
{
    return simgrid->sg_barrier_init(count);
}

void ty_engine_barrier_wait(sg_bar_t barrier)
{
    simgrid->sg_barrier_wait(barrier);
}

static void sleep_until(double time_s)
{
    const double left_s = time_s - simgrid->simgrid_get_clock();
    if (left_s >= RESOLUTION_S)
        simgrid->sg_actor_sleep_for(left_s);
}

/* SimGrid's figures of a route, cached: each query searches all zones again. */
struct route {
    sg_host_t from, to; /* NULL: an empty slot */
    double latency_s, bandwidth_bytes_per_s;
};

/* Open addressing; `room` is a power of two. A process has one engine. */
static struct {
    struct route *places;
    size_t room, count;
} routes;

static struct route *route_place(sg_host_t from, sg_host_t to)
{
    const uint64_t key = (uint64_t)(uintptr_t)from * 31 + (uint64_t)(uintptr_t)to;
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (routes.room - 1);

    while (routes.places[at].from != NULL &&
           (routes.places[at].from != from || routes.places[at].to != to))
        at = (at + 1) & (routes.room - 1);
    return &routes.places[at];
}

static void grow_routes(void)
{
    struct route *const before = routes.places;
    const size_t room = routes.room;

    routes.room = room == 0 ? 1024 : 2 * room;
    if ((routes.places = ty_alloc(routes.room, sizeof *routes.places)) == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    for (size_t i = 0; i < room; i++)
        if (before[i].from != NULL)
            *route_place(before[i].from, before[i].to) = before[i];
    ty_free(before);
}

static const struct route *find_route(sg_host_t from, sg_host_t to)
{
    if (routes.count * 2 >= routes.room)
        grow_routes();
    struct route *route = route_place(from, to);
    if (route->from == NULL) {
        *route = (struct route){from, to, simgrid->sg_host_get_route_latency(from, to),
                                simgrid->sg_host_get_route_bandwidth(from, to)};
        routes.count++;
    }
    return route;
}

/* Work in progress on several cores of a host. */
struct work {
    int count;
    sg_exec_t *execs;
};

/* An exec keeps one core busy, so a share is split over as many cores as it needs. Each part is
 * limited to its share of a core, so it takes `seconds` even alone on the core. */
static struct work work_begin(sg_host_t host, double share, double seconds)
{
    struct work work = {0, NULL};
    if (share <= 0.0 || seconds < RESOLUTION_S)
        return work;

    const int cores = simgrid->sg_host_core_count(host);
    const double parts = fmin(ceil(share), (double)cores);
    const double speed = simgrid->sg_host_get_speed(host) * share / parts;
    work.count = (int)parts;
    if ((work.execs = ty_alloc((size_t)work.count, sizeof *work.execs)) == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    for (int i = 0; i < work.count; i++) {
        work.execs[i] = simgrid->sg_actor_exec_init(seconds * speed);
        simgrid->sg_exec_set_host(work.execs[i], host);
        simgrid->sg_exec_set_bound(work.execs[i], speed);
        simgrid->sg_exec_start(work.execs[i]);
    }
    return work;
}

static void work_end(struct work *work)
{
    for (int i = 0; i < work->count; i++)
        simgrid->sg_exec_wait(work->execs[i]);
    ty_free(work->execs);
}

void ty_engine_work_both(const ty_work *one, const ty_work *other)
{
    const double start_s = simgrid->simgrid_get_clock();
    struct work first = work_begin(one->host, one->share, one->seconds);
    struct work second = work_begin(other->host, other->share, other->seconds);

    if (first.count == 0)
        sleep_until(start_s + one->seconds);
    if (second.count == 0)
        sleep_until(start_s + other->seconds);
    work_end(&first);
    work_end(&second);
}

void ty_engine_work(sg_host_t host, double share, double seconds)
{
    static const ty_work nothing = {0};
    ty_engine_work_both(&(ty_work){host, share, seconds}, &nothing);
}

/* As in the folded platform. */
#define NO_LIMIT 1e18

ty_limit ty_engine_limit(const char *name)
{
    return (ty_limit){simgrid->sg_link_by_name(name), NO_LIMIT, 0};
}

/* @return whether messages in transit allow this rate limit on the route; else their limit is
 * removed */
static bool hold_back(ty_limit *limit, double bytes_per_s)
{
    const bool is_free = limit->users == 0 || limit->bytes_per_s == bytes_per_s;
    const double rate = is_free ? bytes_per_s : NO_LIMIT;

    if (limit->bytes_per_s != rate)
        simgrid->sg_link_set_bandwidth(limit->link, rate);
    limit->bytes_per_s = rate;
    return is_free;
}

static void send_limited(const ty_message *message)
{
    message->limit->users++;
    simgrid->sg_host_sendto(message->from, message->to, round(message->bytes));
    message->limit->users--;
}

/*
 * Sends in pieces at the rate of the limit. Without contention, the message takes exactly its
 * minimum time; with contention, its average share of the links. Pieces are not shorter than the
 * route's latency allows, so the latency counts once. On a full link it counts once more for each
 * piece, in total less than the limit itself adds.
 */
static void send_pieces(const ty_message *message, double start_s, double pieces)
{
    double sent = 0.0;

    for (double piece = 0.0; piece < pieces; piece += 1.0) {
        const double until = round(message->bytes * (piece + 1.0) / pieces);
        sleep_until(start_s + message->least_s * piece / pieces);
        if (until > sent)
            simgrid->sg_host_sendto(message->from, message->to, until - sent);
        sent = until;
    }
}

/* The bytes of a message, route latency included. */
static void flow(const ty_message *message, const struct route *route)
{
    const double start_s = simgrid->simgrid_get_clock(), route_latency_s = route->latency_s;
    const double bandwidth = message->route_bandwidth_bytes_per_s > 0.0
                                 ? message->route_bandwidth_bytes_per_s
                                 : route->bandwidth_bytes_per_s;
    const double slack_s = message->least_s - message->bytes / bandwidth;
    const bool is_slow = message->is_paced && slack_s > 0.0;
    const double rate = is_slow ? message->bytes / message->least_s : NO_LIMIT;

    if (message->limit != NULL && round(message->bytes) > 0.0 && hold_back(message->limit, rate))
        send_limited(message);
    else
        send_pieces(message, start_s,
                    is_slow ? fmin(MAX_PIECES, fmax(1.0, floor(slack_s / route_latency_s))) : 1.0);
    sleep_until(start_s + route_latency_s + message->least_s);
}

void ty_engine_message(const ty_message *message)
{
    const double start_s = simgrid->simgrid_get_clock();
    struct work at_source = work_begin(message->from, message->from_share, message->seconds);
    struct work at_target = work_begin(message->to, message->to_share, message->seconds);

    if (message->from == message->to) {
        sleep_until(start_s + message->seconds);
    } else {
        /* A copy: other actors may move the array meanwhile. */
        const struct route route = *find_route(message->from, message->to);
        sleep_until(start_s + message->latency_s - route.latency_s);
        flow(message, &route);
    }
    work_end(&at_source);
    work_end(&at_target);
}

/* ---- Concurrent plays ---------------------------------------------------------------------- */

/* An actor that waits for plays of helpers. */
struct party {
    unsigned left;
    bool is_waiting;
    sg_sem_t gate;
};

struct helper {
    struct helper *next; /* in the list of idle helpers */
    ty_crew *crew;
    sg_sem_t gate;
    const ty_play *play;
    struct party *party;
};

struct ty_crew {
    struct helper *idle;
};

ty_crew *ty_engine_crew(void)
{
    ty_crew *crew = ty_alloc(1, sizeof *crew);
    if (crew == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    return crew;
}

static void run_play(const ty_play *play)
{
    for (unsigned i = 0; i < play->count; i++)
        ty_engine_message(&play->messages[i]);
}

static void help(void *context)
{
    struct helper *self = context;

    for (;;) {
        simgrid->sg_sem_acquire(self->gate);
        run_play(self->play);
        struct party *party = self->party;
        self->next = self->crew->idle;
        self->crew->idle = self;
        if (--party->left == 0 && party->is_waiting)
            simgrid->sg_sem_release(party->gate);
    }
}

static struct helper *take_helper(ty_crew *crew, sg_host_t host)
{
    struct helper *helper = crew->idle;

    if (helper != NULL) {
        crew->idle = helper->next;
        return helper;
    }
    if ((helper = ty_alloc(1, sizeof *helper)) == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    helper->crew = crew;
    helper->gate = simgrid->sg_sem_init(0);
    simgrid->sg_actor_daemonize(spawn("helper", host, help, helper));
    return helper;
}

void ty_engine_play(ty_crew *crew, sg_sem_t gate, const ty_play *plays, unsigned count)
{
    struct party party = {.left = count > 0 ? count - 1 : 0, .gate = gate};

    for (unsigned i = 1; i < count; i++) {
        struct helper *helper = take_helper(crew, plays[i].messages[0].from);
        helper->play = &plays[i];
        helper->party = &party;
        simgrid->sg_sem_release(helper->gate);
    }
    if (count > 0)
        run_play(&plays[0]);
    if (party.left > 0) {
        party.is_waiting = true;
        simgrid->sg_sem_acquire(gate);
    }
}
