/* SimGrid's functions, loaded at the first simulation: it and its libraries (ns-3, Boost) take
 * longer to load than most searches, and most commands simulate nothing. */
#ifndef TY_SIMGRID_CALLS_H
#define TY_SIMGRID_CALLS_H

#include "ty_base.h"

#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/exec.h>
#include <simgrid/host.h>
#include <simgrid/link.h>
#include <simgrid/semaphore.h>

#define TY_SIMGRID_CALLS(CALL)                                                                     \
    CALL(sg_actor_daemonize)                                                                       \
    CALL(sg_actor_exec_init)                                                                       \
    CALL(sg_actor_init)                                                                            \
    CALL(sg_actor_self_get_data)                                                                   \
    CALL(sg_actor_set_data)                                                                        \
    CALL(sg_actor_sleep_for)                                                                       \
    CALL(sg_actor_start_)                                                                          \
    CALL(sg_exec_set_bound)                                                                        \
    CALL(sg_exec_set_host)                                                                         \
    CALL(sg_exec_start)                                                                            \
    CALL(sg_exec_wait)                                                                             \
    CALL(sg_host_by_name)                                                                          \
    CALL(sg_host_core_count)                                                                       \
    CALL(sg_host_get_speed)                                                                        \
    CALL(sg_host_sendto)                                                                           \
    CALL(sg_link_by_name)                                                                          \
    CALL(sg_link_set_bandwidth)                                                                    \
    CALL(sg_sem_acquire)                                                                           \
    CALL(sg_sem_init)                                                                              \
    CALL(sg_sem_release)                                                                           \
    CALL(simgrid_get_clock)                                                                        \
    CALL(simgrid_init)                                                                             \
    CALL(simgrid_load_platform)                                                                    \
    CALL(simgrid_run)

typedef struct ty_simgrid_calls {
#define MEMBER(name) __typeof__(name) *name;
    TY_SIMGRID_CALLS(MEMBER)
#undef MEMBER
} ty_simgrid_calls;

/**
 * Loads SimGrid, once per process; any thread.
 * @param out [out] all of its functions
 * @return TY_EBACKEND: not installed, or without a function that this build needs
 */
ty_status ty_simgrid_load(const ty_simgrid_calls **out, ty_error *error) TY_MUST_CHECK;

#endif
