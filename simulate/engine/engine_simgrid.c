/* The engine SimGrid: all calls to it. Its C API has no rate limit for a message: on the platform
 * of a fold, a FATPIPE link of the route limits each message; elsewhere, and where limits differ, a
 * message is sent in pieces. */
#include "engine.h"

#include "child.h"
#include "platform.h"
#include "simgrid_calls.h"
#include "ty_base.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Exactly bytes / bandwidth, with even sharing of links: no corrections fitted to TCP, no limit by
 * window over round-trip time, no traffic of acknowledgments. CM02 shares a link by the latencies
 * of the routes; ours have none (see engine.c), so shares are even. */
static char *const options[] = {
    "trainyard",
    "--cfg=network/model:CM02",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/weight-S:0",
    CONTEXTS,
    "--log=root.thres:error", /* its output is for an error message */
    NULL,
};

/* As in the folded platform. */
#define NO_LIMIT 1e18

/* A link that limits the rate of every message over one route of a fold. */
typedef struct limit {
    sg_link_t link; /* NULL: not found yet */
    double bytes_per_s;
    uint32_t users; /* messages in transit */
} limit;

typedef struct state {
    const ty_simgrid_calls *simgrid;
    sg_host_t *hosts; /* [host of the network]; NULL: not found yet */
    limit *limits;    /* [class of routes] */
} state;

static const ty_simgrid_calls *calls_of(const ty_engine *engine)
{
    const state *self = engine->state;
    return self->simgrid;
}

static sg_host_t host_of(const ty_engine *engine, uint32_t host)
{
    const state *self = engine->state;
    char name[TY_SIMGRID_NAME_SIZE];

    if (self->hosts[host] == NULL) {
        ty_network_host_name(engine->network, host, name);
        self->hosts[host] = self->simgrid->sg_host_by_name(name);
        if (self->hosts[host] == NULL) {
            fprintf(stderr, "the platform has no host '%s'\n", name);
            exit(EXIT_FAILURE);
        }
    }
    return self->hosts[host];
}

/* ---- Actors -------------------------------------------------------------------------------- */

/* Function and context of an actor, as its user data: SimGrid passes only strings. */
struct part {
    void (*code)(void *);
    void *context;
};

/* A process has one SimGrid. */
static const ty_simgrid_calls *running;

static void act(int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    struct part *part = running->sg_actor_self_get_data();
    part->code(part->context);
    ty_free(part);
}

static void spawn(ty_engine *engine, uint32_t host, void (*code)(void *), void *context,
                  bool is_helper)
{
    const ty_simgrid_calls *simgrid = calls_of(engine);
    struct part *part = ty_alloc(1, sizeof *part);

    if (part == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    *part = (struct part){code, context};
    sg_actor_t actor = simgrid->sg_actor_init("actor", host_of(engine, host));
    simgrid->sg_actor_set_data(actor, part);
    simgrid->sg_actor_start_(actor, act, 0, NULL);
    if (is_helper)
        simgrid->sg_actor_daemonize(actor);
}

static void run(ty_engine *engine)
{
    calls_of(engine)->simgrid_run();
}

static double now(const ty_engine *engine)
{
    return calls_of(engine)->simgrid_get_clock();
}

static ty_gate *gate(ty_engine *engine)
{
    return (ty_gate *)calls_of(engine)->sg_sem_init(0);
}

static void gate_open(ty_engine *engine, ty_gate *g)
{
    calls_of(engine)->sg_sem_release((sg_sem_t)g);
}

static void gate_wait(ty_engine *engine, ty_gate *g)
{
    calls_of(engine)->sg_sem_acquire((sg_sem_t)g);
}

static void sleep_for(ty_engine *engine, double seconds)
{
    calls_of(engine)->sg_actor_sleep_for(seconds);
}

/* ---- Work ---------------------------------------------------------------------------------- */

/* Work in progress on several cores of a host. */
struct work {
    int count;
    sg_exec_t execs[];
};

/* An exec keeps one core busy, so a share is split over as many cores as it needs. Each part is
 * limited to its share of a core, so it takes `seconds` even alone on the core. */
static void *work_begin(ty_engine *engine, uint32_t host, double share, double seconds)
{
    const ty_simgrid_calls *simgrid = calls_of(engine);
    const sg_host_t on = host_of(engine, host);
    const double parts = fmin(ceil(share), (double)simgrid->sg_host_core_count(on));
    const double speed = simgrid->sg_host_get_speed(on) * share / parts;
    struct work *work = ty_alloc(1, sizeof *work + (size_t)parts * sizeof *work->execs);

    if (work == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    work->count = (int)parts;
    for (int i = 0; i < work->count; i++) {
        work->execs[i] = simgrid->sg_actor_exec_init(seconds * speed);
        simgrid->sg_exec_set_host(work->execs[i], on);
        simgrid->sg_exec_set_bound(work->execs[i], speed);
        simgrid->sg_exec_start(work->execs[i]);
    }
    return work;
}

static void work_end(ty_engine *engine, void *begun)
{
    struct work *work = begun;

    for (int i = 0; i < work->count; i++)
        calls_of(engine)->sg_exec_wait(work->execs[i]);
    ty_free(work);
}

/* ---- Messages ------------------------------------------------------------------------------ */

static limit *limit_of(const ty_engine *engine, const ty_route *route)
{
    const state *self = engine->state;
    char name[TY_SIMGRID_NAME_SIZE];

    if (self->limits == NULL)
        return NULL;
    limit *found = &self->limits[route->from / 2];
    if (found->link == NULL) {
        snprintf(name, sizeof name, "way-%u", route->from / 2);
        *found = (limit){self->simgrid->sg_link_by_name(name), NO_LIMIT, 0};
    }
    return found;
}

/* @return whether messages in transit allow this rate limit on the route; else their limit is
 * removed */
static bool hold_back(const ty_engine *engine, limit *of, double bytes_per_s)
{
    const bool is_free = of->users == 0 || of->bytes_per_s == bytes_per_s;
    const double rate = is_free ? bytes_per_s : NO_LIMIT;

    if (of->bytes_per_s != rate)
        calls_of(engine)->sg_link_set_bandwidth(of->link, rate);
    of->bytes_per_s = rate;
    return is_free;
}

/*
 * Sends in pieces at a rate. Without contention, the message takes exactly its minimum time; with
 * contention, its average share of the links. Pieces are not shorter than the route's latency.
 */
static void send_pieces(ty_engine *engine, const ty_route *route, double bytes, double bytes_per_s)
{
    const ty_simgrid_calls *simgrid = calls_of(engine);
    const double start_s = now(engine), least_s = bytes / bytes_per_s;
    const double slack_s = least_s - bytes / route->bandwidth_bytes_per_s;
    const double pieces =
        isinf(bytes_per_s) ? 1.0 : fmin(MAX_PIECES, fmax(1.0, floor(slack_s / route->latency_s)));
    double sent = 0.0;

    for (double piece = 0.0; piece < pieces; piece += 1.0) {
        const double until = round(bytes * (piece + 1.0) / pieces);
        const double left_s = start_s + least_s * piece / pieces - now(engine);
        if (left_s >= TY_RESOLUTION_S)
            simgrid->sg_actor_sleep_for(left_s);
        if (until > sent)
            simgrid->sg_host_sendto(host_of(engine, route->from), host_of(engine, route->to),
                                    until - sent);
        sent = until;
    }
}

static void send_over(ty_engine *engine, const ty_route *route, double bytes, double bytes_per_s)
{
    limit *of = limit_of(engine, route);

    if (!(round(bytes) > 0.0))
        return;
    if (of == NULL || !hold_back(engine, of, isinf(bytes_per_s) ? NO_LIMIT : bytes_per_s)) {
        send_pieces(engine, route, bytes, bytes_per_s);
        return;
    }
    of->users++;
    calls_of(engine)->sg_host_sendto(host_of(engine, route->from), host_of(engine, route->to),
                                     round(bytes));
    of->users--;
}

/* ---- Opening ------------------------------------------------------------------------------- */

ty_status ty_engine_load_simgrid(ty_error *error)
{
    const ty_simgrid_calls *found; /* for children, one each */

    return ty_simgrid_load(&found, error);
}

/* SimGrid reads platforms only from files. This one has no name, so no file remains. */
static ty_status load_platform(const ty_simgrid_calls *simgrid, const ty_text *platform,
                               ty_error *error)
{
    ty_status status = TY_OK;
    char path[64];
    FILE *file = tmpfile();

    if (file == NULL)
        return ty_fail(error, TY_EIO, "cannot make a temporary file: %s", strerror(errno));
    if (fwrite(platform->data, 1, platform->length, file) != platform->length ||
        fflush(file) != 0) {
        status = ty_fail(error, TY_EIO, "cannot write a temporary file: %s", strerror(errno));
        goto cleanup;
    }
    rewind(file);
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(file));
    simgrid->simgrid_load_platform(path);

cleanup:
    fclose(file);
    return status;
}

ty_status ty_engine_open_simgrid(ty_engine *out, ty_network *network, const ty_text *platform,
                                 ty_error *error)
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
    char *arguments[sizeof options / sizeof *options];
    int count = (int)(sizeof options / sizeof *options) - 1;
    const uint32_t routes = ty_network_fold_count(network);
    state *self = ty_alloc(1, sizeof *self);

    TY_TRY(ty_check_memory(self != NULL, error));
    self->hosts = ty_alloc(ty_network_host_count(network), sizeof(sg_host_t));
    self->limits = routes == 0 ? NULL : ty_alloc(routes, sizeof *self->limits);
    TY_TRY(ty_check_memory(self->hosts != NULL && (routes == 0 || self->limits != NULL), error));
    TY_TRY(ty_simgrid_load(&self->simgrid, error));
    running = self->simgrid;
    for (int i = 0; i <= count; i++)
        arguments[i] = options[i];
    self->simgrid->simgrid_init(&count, arguments);
    signal(SIGINT, SIG_DFL); /* its own handler would end the process with 1, like a failure */
    *out = (ty_engine){.calls = &calls, .network = network, .state = self};
    return load_platform(self->simgrid, platform, error);
}
