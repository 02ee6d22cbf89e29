/**
 * @file ty_faults.h
 * A long run whose devices, hosts and links fail: checkpoints, restarts, going on with fewer
 * replicas, and what is left of the time. No step is simulated here; what a step takes, whole or
 * shrunken, comes from ty_simulate.
 *
 *     ty_endurance_question question = {.horizon_s = 30 * 86400.0, .failure_rate_per_s = 1e-5,
 *         .checkpoint_interval_s = 1800, .checkpoint_write_s = 20, .restart_s = 300, .seed = 1};
 *     TY_CHECK(ty_endure(&question, &endurance, error), status, cleanup);
 */
#ifndef TY_FAULTS_H
#define TY_FAULTS_H

#include "ty_core.h"

/** A failure that is known beforehand. */
typedef struct ty_known_fault {
    double time_s;
    double rate; /* how fast work goes on, after a restart, until the repair: 1 as before, as over
                    other links that are as fast; 0 not at all */
    uint32_t replicas; /* that it takes out, see `rates`; 0: none */
} ty_known_fault;

typedef struct ty_endurance_question {
    double horizon_s; /* wall-clock time of the run; > 0 */
    uint32_t known_count;
    const ty_known_fault *known;  /* [known_count], ascending by time */
    double failure_rate_per_s;    /* of all parts together: a Poisson process; 0: none */
    double checkpoint_interval_s; /* of work at full rate between checkpoints; > 0, HUGE_VAL:
                                     none are written */
    double checkpoint_write_s;    /* work stands still for that long; >= 0 */
    double restart_s;             /* from a failure to new work; >= 0 */
    double repair_s;              /* from a failure to the part's return; >= 0 */
    /* With `rate_count` 0 a spare takes the place of what fails. Else the run shrinks, by a replica
     * where the failure came by chance: with k replicas out it works at rates[k], rates[0] being 1;
     * with rate_count or more it waits. When a part returns, the run is restarted with it, from a
     * checkpoint written for that. */
    uint32_t rate_count;
    const double *rates;
    uint64_t seed;
} ty_endurance_question;

/** Where the time went; the parts add up to the horizon. */
typedef struct ty_endurance {
    double goodput;      /* work that lasts, in seconds at full rate, over the horizon */
    double work_s;       /* that lasts */
    double degraded_s;   /* what being fewer cost of it */
    double lost_s;       /* work that was done again, or is in no checkpoint at a failure */
    double checkpoint_s; /* writing */
    double down_s;       /* restarting, or waiting for a repair */
    uint32_t failures, checkpoints;
    uint32_t most_out; /* parts out of order at once */
} ty_endurance;

/**
 * Plays one run. Failures while down start the restart anew; failures while a checkpoint is written
 * lose it. At the end of the horizon what was done since the last checkpoint counts.
 * @return TY_EINVAL naming the figure that does not fit; TY_ELIMIT: more than ten million failures
 * and checkpoints
 * O(failures + checkpoints).
 */
ty_status ty_endure(const ty_endurance_question *question, ty_endurance *out,
                    ty_error *error) TY_MUST_CHECK;

/**
 * A plan with one replica less in every stage: the run goes on without the devices that worked with
 * a lost one; batches per replica stay, so that the global batch shrinks by as much.
 * @param rank of the lost device
 * @param out [out] a plan without prediction
 * @return TY_EINFEASIBLE: stages with unequal replicas, or only one
 */
ty_status ty_plan_without_replica(const ty_plan *plan, uint32_t rank, ty_plan **out,
                                  ty_error *error) TY_MUST_CHECK;

#endif
