/**
 * @file ty_execute.h
 * Runs programs on real devices. Built into `trainyard-worker`, which links core only.
 *
 *   device backends         what computes layers: "cpu" (oneDNN, OpenBLAS), "cuda" (a plugin)
 *   communication backends  what moves tensors between ranks: "mpi", "local" (threads of one
 * process) interpreter             one compute thread and one communication thread per rank walk
 * the program
 *
 * The worker is started once per rank: `mpirun -n RANKS trainyard-worker JOB.json`, or with tensor
 * parallelism once per rank: process p is rank p % width of rank p / width. Process 0 reports
 * progress and writes the job's output file.
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
        *stop;     /* becomes the signal that asks to stop, else 0; may be NULL */
    bool *is_kept; /* [out] the output was written though the run failed; may be NULL */
} ty_execute_options;

/**
 * Runs the job's part of this rank. All ranks of the transport call it with the same job.
 * Checks before anything starts, with the same answer on all ranks: as many ranks as the plan has,
 * the plan and its program, the data set.
 * @return TY_OK, with the job's output written; TY_EINTERRUPTED on all ranks when any was asked to
 *         stop: the step under way is finished, and the output is of the steps until then, if any;
 *         TY_EIO also where a checkpoint or the weights could not be written: the output is of the
 *         steps until then;
 *         TY_ELIMIT: the loss is no finite number any more. A failure of this rank alone marks the
 *         transport as broken, and closing it ends the others.
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
