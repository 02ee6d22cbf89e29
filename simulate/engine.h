/* What the simulation needs of SimGrid, and the only files that call it: a platform, actors, gates
 * and barriers between them, and two activities (work on cores, a message over a route).
 *
 * All of it happens in the child process: SimGrid's engine is one per process, and what it does not
 * like ends the process. The C API of SimGrid 3.32 has no wait for activities of mixed kinds; the
 * engine builds one. It has no rate limit for a message either: a FATPIPE link of the route's own
 * limits each message; a route without one gets the message in parts. */
#ifndef TY_ENGINE_H
#define TY_ENGINE_H

#include "ty_base.h"

#include <stdbool.h>
#include <stdint.h>

#if TY_HAS_SIMGRID
#include <simgrid/forward.h>
#else /* messages are described, and never sent */
typedef struct s4u_Host *sg_host_t;
typedef struct s4u_Link *sg_link_t;
typedef struct s4u_Semaphore *sg_sem_t;
typedef struct s4u_Barrier *sg_bar_t;
#endif

/** Loads SimGrid, once a process, and not in each child. @return TY_EBACKEND: it does not load */
ty_status ty_engine_load(ty_error *error) TY_MUST_CHECK;
/** Starts SimGrid on a platform file; ends a process where it does not load. */
void ty_engine_open(const char *platform_path);
/** A host by name; NULL when the platform has none of it. */
sg_host_t ty_engine_host(const char *name);

/** An actor on `host` that calls `code(context)`; runs from ty_engine_run on. */
void ty_engine_spawn(const char *name, sg_host_t host, void (*code)(void *), void *context);
/** Until all actors returned or wait for each other for ever. */
void ty_engine_run(void);

/* The rest is for actors. Actors take turns: between two of these calls an actor is alone. */

/** Simulated seconds since the start. */
double ty_engine_clock(void);

/** A gate lets one waiting actor through per opening; an opening nobody waited for is kept. */
sg_sem_t ty_engine_gate(void);
void ty_engine_gate_open(sg_sem_t gate);
void ty_engine_gate_wait(sg_sem_t gate);

/** A barrier for `count` actors, again and again. */
sg_bar_t ty_engine_barrier(unsigned count);
void ty_engine_barrier_wait(sg_bar_t barrier);

/**
 * Work that keeps `share` cores of `host` busy for `seconds` when it has them; longer when more is
 * asked of the host's cores than there is. Share 0: seconds, whatever else happens.
 */
void ty_engine_work(sg_host_t host, double share, double seconds);

/** Two such works at once; returns when both are over. */
typedef struct ty_work {
    sg_host_t host; /* may be NULL with share 0 */
    double share, seconds;
} ty_work;
void ty_engine_work_both(const ty_work *one, const ty_work *other);

/** A link that limits the rate of every message over one route. */
typedef struct ty_limit {
    sg_link_t link;
    double bytes_per_s;
    uint32_t users; /* messages under way */
} ty_limit;
/** By the link's name, on a platform that has it as the FATPIPE of one route, without a limit. */
ty_limit ty_engine_limit(const char *name);

/** A transfer of data from one host to another. */
typedef struct ty_message {
    sg_host_t from, to;
    double latency_s; /* all of it; what the route has is not added again */
    double bytes;
    double least_s; /* the bytes take at least this long; 0: as long as the route needs */
    bool is_paced;  /* they leave evenly over that time, as a rate limit makes them */
    double route_bandwidth_bytes_per_s; /* of the route alone; 0: as the platform says */
    ty_limit *limit;                    /* of the route; NULL: it has none */
    double seconds;              /* of all, uncontended: what it takes when both hosts are one */
    double from_share, to_share; /* cores kept busy at the two ends for `seconds` */
} ty_message;

/**
 * Plays a message: ends when its latency and its bytes over the route have passed and the cores at
 * both ends have done their share. On one host there is no route to share: the time is `seconds`,
 * and its cores.
 */
void ty_engine_message(const ty_message *message);

/** Messages one after the other. */
enum { TY_MOST_LEGS = 3 };
typedef struct ty_play {
    ty_message messages[TY_MOST_LEGS];
    unsigned count;
} ty_play;

/** Actors that help others to do several things at once; they never hold up the end of a run. */
typedef struct ty_crew ty_crew;
ty_crew *ty_engine_crew(void);

/** Does all plays at once and returns when the last is over. `gate` is one of the caller's that
 * nobody else opens meanwhile. */
void ty_engine_play(ty_crew *crew, sg_sem_t gate, const ty_play *plays, unsigned count);

#endif
