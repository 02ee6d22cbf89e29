/**
 * @file ty_execute.h
 * Runs programs on real devices. Built into `trainyard-worker`, which links core only.
 *
 *   device backends         compute layers: "cpu" (oneDNN, OpenBLAS), "cuda" (a plugin)
 *   communication backends  communicate tensors: "mpi", "local" (threads of one process)
 *   interpreter             runs the program: a compute and a communication thread per rank
 *
 * Start the worker once per rank: `mpirun -n RANKS trainyard-worker JOB.json`. The ranks of a stage
 * replica are consecutive: with w = TP x CP x EP, rank r is rank r % w of stage replica r / w.
 * Rank 0 reports progress and writes the job's output file.
 *
 *     TY_CHECK(ty_transport_mpi(&transport, error), status, done);
 *     status = ty_execute_job(job, transport, &(ty_execute_options){.progress = stderr}, error);
 *     transport->close(transport);
 */
#ifndef TY_EXECUTE_H
#define TY_EXECUTE_H

#include "ty_core.h"

#include <signal.h>
#include <stdio.h>

typedef struct ty_transport ty_transport; /* transport.h */

typedef struct ty_execute_options {
    FILE *progress; /* rank 0 reports here; NULL: silent */
    const volatile sig_atomic_t
        *stop;     /* set to the number of a signal to stop, else 0; may be NULL */
    bool resume;   /* from the newest checkpoint in the job's folder for them, if there is one */
    bool *is_kept; /* [out] the output was written although the run failed; may be NULL */
} ty_execute_options;

/**
 * Runs this rank of the job. All ranks of the transport call it with the same job.
 * Checks the number of ranks, the plan and its program, and the data set before anything starts,
 * with the same result on all ranks.
 * @return TY_OK, with the job's output written; TY_EINTERRUPTED on all ranks when any received a
 *         stop: the current step is finished, and the output has the steps until then, if any;
 *         TY_EIO also if the last checkpoint or the weights could not be written: the output has
 *         the steps until then;
 *         TY_ELIMIT: the loss is no longer finite. A failure of this rank alone marks the
 *         transport as broken, and closing it ends the other ranks.
 */
ty_status ty_execute_job(const ty_job *job, ty_transport *transport,
                         const ty_execute_options *options, ty_error *error) TY_MUST_CHECK;

/**
 * The same with one thread pair per rank instead of processes: for tests and sanitizers.
 * @param ranks ty_plan_launched_count of the job's plan, if it is a training job
 * @return the failure of the lowest rank that has one of its own
 */
ty_status ty_execute_job_locally(const ty_job *job, uint32_t ranks,
                                 const ty_execute_options *options, ty_error *error) TY_MUST_CHECK;

#endif
