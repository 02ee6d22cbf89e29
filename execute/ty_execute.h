/**
 * @file ty_execute.h
 * Runs programs on real devices. Built into `trainyard-worker`, which links core only.
 *
 *   device backends         what computes layers: "cpu" (oneDNN, OpenBLAS)
 *   communication backends  what moves tensors between ranks: "mpi", "local" (threads of one process)
 *   interpreter             one compute thread and one communication thread per rank walk the program
 *
 * The worker is started once per rank: `mpirun -n RANKS trainyard-worker JOB.json`. Rank 0 reports progress on
 * stderr and writes the job's output file.
 */
#ifndef TY_EXECUTE_H
#define TY_EXECUTE_H

#include "ty_core.h"

/**
 * Runs the job's part of this rank, from MPI start-up to the output file.
 * Checks before anything starts: as many ranks as the plan has, the program's digest, the data set.
 * @return TY_OK on every rank, or the same failure on all of them.
 */
ty_status ty_execute_job(const ty_job *job, ty_error *error) TY_MUST_CHECK;

#endif
