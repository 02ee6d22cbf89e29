/* The interface to SimGrid; only its implementation calls SimGrid: a platform, actors, gates and
 * barriers between them, and two activities (work on cores, a message over a route).
 *
 * All of it runs in the child process: SimGrid has one engine per process, and its errors end the
 * process. The C API of SimGrid 3.32 has no wait for activities of mixed kinds; the engine builds
 * one. It has no rate limit for a message either: a FATPIPE link of the route limits each message;
 * on a route without one, the message is sent in parts. */
#ifndef TY_ENGINE_H
#define TY_ENGINE_H

#include "ty_base.h"

#include <stdbool.h>
#include <stdint.h>

#if TY_HAS_SIMGRID
#include <simgrid/forward.h>
#else /* messages are described, but never sent */
typedef struct s4u_Host *sg_host_t;
typedef struct s4u_Link *sg_link_t;
typedef struct s4u_Semaphore *sg_sem_t;
typedef struct s4u_Barrier *sg_bar_t;
#endif

/** Loads SimGrid, once per process, and not in each child. @return TY_EBACKEND: it does not load */
ty_status ty_engine_load(ty_error *error) TY_MUST_CHECK;
/** Starts SimGrid on a platform file; ends the process if that does not load. */
void ty_engine_open(const char *platform_path);
/** A host by name; NULL if the platform has none. */
sg_host_t ty_engine_host(const char *name);

/** Adds an actor on `host` that calls `code(context)`; it starts with ty_engine_run. */
void ty_engine_spawn(const char *name, sg_host_t host, void (*code)(void *), void *context);
/** Runs until all actors have returned or are in deadlock. */
void ty_engine_run(void);

/* The rest is for actors. Only one actor runs at a time: between two of
 * these calls no other runs. */

/** Simulated seconds since the start. */
double ty_engine_clock(void);

/** A gate admits one waiting actor per opening; an opening without a waiting actor is stored. */
sg_sem_t ty_engine_gate(void);
void ty_engine_gate_open(sg_sem_t gate);
void ty_engine_gate_wait(sg_sem_t gate);

/** A reusable barrier for `count` actors. */
sg_bar_t ty_engine_barrier(unsigned count);
void ty_engine_barrier_wait(sg_bar_t barrier);

/**
 * Work that keeps `share` cores of `host` busy for `seconds`, or longer if the host has too few
 * cores for all its work. Share 0: always `seconds`.
 */
void ty_engine_work(sg_host_t host, double share, double seconds);

/** Runs two works at once; returns when both have ended. */
typedef struct ty_work {
    sg_host_t host; /* may be NULL with share 0 */
    double share, seconds;
} ty_work;
void ty_engine_work_both(const ty_work *one, const ty_work *other);

/** A link that limits the rate of every message over one route. */
typedef struct ty_limit {
    sg_link_t link;
    double bytes_per_s;
    uint32_t users; /* messages in transit */
} ty_limit;
/** Finds a limit by the link's name, on a platform with that link as the FATPIPE of one route,
 * without a limit. */
ty_limit ty_engine_limit(const char *name);

/** A transfer of data from one host to another. */
typedef struct ty_message {
    sg_host_t from, to;
    double latency_s; /* total; the route's own is not added */
    double bytes;
    double least_s;                     /* minimum time of the bytes; 0: the route's */
    bool is_paced;                      /* sent evenly over that time, as by a rate limit */
    double route_bandwidth_bytes_per_s; /* of the route alone; 0: from the platform */
    ty_limit *limit;                    /* of the route; NULL: none */
    double seconds;              /* total without contention: the time if both hosts are the same */
    double from_share, to_share; /* cores kept busy at the two ends for `seconds` */
} ty_message;

/**
 * Sends a message: ends when its latency and bytes have passed over the route and the cores at both
 * ends have done their work. Within one host there is no route: it takes `seconds`, and its cores.
 */
void ty_engine_message(const ty_message *message);

/** Messages one after another. */
enum { TY_MOST_LEGS = 3 };
typedef struct ty_play {
    ty_message messages[TY_MOST_LEGS];
    unsigned count;
} ty_play;

/** Helper actors for concurrent activities of one actor; they do not delay the end of a run. */
typedef struct ty_crew ty_crew;
ty_crew *ty_engine_crew(void);

/** Runs all plays at once and returns when the last has ended. `gate` belongs to the caller; no
 * other actor opens it meanwhile. */
void ty_engine_play(ty_crew *crew, sg_sem_t gate, const ty_play *plays, unsigned count);

#endif
