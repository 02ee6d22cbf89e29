/* The interface to engines: what the actors of a walk (walk.h) need of one. Actors wait for each
 * other at gates and barriers, keep cores busy, and send messages over routes.
 *
 * Two engines share this interface. SimGrid (engine_simgrid.c) is an independent simulator: it has
 * one platform per process, and its errors end the process. The flow engine (engine_flow.c) is our
 * own. Both share links and cores evenly (max-min). All of it runs in a child process. */
#ifndef TY_ENGINE_H
#define TY_ENGINE_H

#include "network.h"

/** Shorter times are none: SimGrid would round them up and warn. */
#define TY_RESOLUTION_S 1e-9

typedef struct ty_engine ty_engine;
typedef struct ty_gate ty_gate;

/** Functions of an engine. The functions of actors may switch to other actors. */
typedef struct ty_engine_calls {
    /** Adds an actor on `host` that calls `code(context)`. A helper does not delay the end of a
     * run. */
    void (*spawn)(ty_engine *engine, uint32_t host, void (*code)(void *), void *context,
                  bool is_helper);
    /** Runs until all actors but helpers have returned or are in deadlock. */
    void (*run)(ty_engine *engine);
    double (*clock)(const ty_engine *engine);
    ty_gate *(*gate)(ty_engine *engine);
    void (*gate_open)(ty_engine *engine, ty_gate *gate);
    void (*gate_wait)(ty_engine *engine, ty_gate *gate);
    void (*sleep)(ty_engine *engine, double seconds);
    /** Work on `share` > 0 cores; NULL: none. It continues until work_end, which waits for it. */
    void *(*work_begin)(ty_engine *engine, uint32_t host, double share, double seconds);
    void (*work_end)(ty_engine *engine, void *work);
    /** Bytes over a route, without its latency, at most at a rate, which may be HUGE_VAL. */
    void (*send)(ty_engine *engine, const ty_route *route, double bytes, double bytes_per_s);
} ty_engine_calls;

struct ty_engine {
    const ty_engine_calls *calls;
    ty_network *network;
    void *state; /* of the engine */
    struct ty_helper *idle;
};

/** Loads SimGrid, once per process, and not in each child.
 * @return TY_EUNSUPPORTED: not installed, or not in this build; TY_EBACKEND; TY_ENOMEM */
ty_status ty_engine_load_simgrid(ty_error *error) TY_MUST_CHECK;
/** Opens an engine in this process, until its end. SimGrid reads `platform`, which describes
 * `network`; it ends the process if that does not load. */
ty_status ty_engine_open_simgrid(ty_engine *out, ty_network *network, const ty_text *platform,
                                 ty_error *error) TY_MUST_CHECK;
ty_status ty_engine_open_flow(ty_engine *out, ty_network *network, ty_error *error) TY_MUST_CHECK;

/* The rest is for actors. Only one actor runs at a time: between two of these calls no other runs.
 */

/** Simulated seconds since the start. */
double ty_engine_clock(const ty_engine *engine);

/** A gate admits one waiting actor per opening; an opening without a waiting actor is stored. */
ty_gate *ty_engine_gate(ty_engine *engine);
void ty_engine_gate_open(ty_engine *engine, ty_gate *gate);
void ty_engine_gate_wait(ty_engine *engine, ty_gate *gate);

/** A reusable barrier for `count` actors. */
typedef struct ty_barrier {
    ty_gate *gate;
    uint32_t count, arrived;
} ty_barrier;
ty_barrier ty_engine_barrier(ty_engine *engine, uint32_t count);
void ty_engine_barrier_wait(ty_engine *engine, ty_barrier *barrier);

/**
 * Work that keeps `share` cores of `host` busy for `seconds`, or longer if the host has too few
 * cores for all its work. Share 0: always `seconds`.
 */
void ty_engine_work(ty_engine *engine, uint32_t host, double share, double seconds);

/** Runs two works at once; returns when both have ended. */
typedef struct ty_work {
    uint32_t host;
    double share, seconds;
} ty_work;
void ty_engine_work_both(ty_engine *engine, const ty_work *one, const ty_work *other);

/** A transfer of data from one host to another. */
typedef struct ty_message {
    uint32_t from, to;
    double latency_s; /* total; at least the route's */
    double bytes;
    double least_s;              /* minimum time of the bytes; 0: the route's */
    bool is_paced;               /* sent evenly over that time, as by a rate limit */
    double seconds;              /* total without contention: the time if both hosts are the same */
    double from_share, to_share; /* cores kept busy at the two ends for `seconds` */
} ty_message;

/**
 * Sends a message: ends when its latency and bytes have passed over the route and the cores at both
 * ends have done their work. Within one host there is no route: it takes `seconds`, and its cores.
 */
void ty_engine_message(ty_engine *engine, const ty_message *message);

/** Messages one after another. */
enum { TY_MOST_LEGS = 3 };
typedef struct ty_play {
    ty_message messages[TY_MOST_LEGS];
    unsigned count;
} ty_play;

/** Runs all plays at once, with the help of other actors, and returns when the last has ended.
 * `gate` belongs to the caller; no other actor opens it meanwhile. */
void ty_engine_play(ty_engine *engine, ty_gate *gate, const ty_play *plays, unsigned count);

#endif
