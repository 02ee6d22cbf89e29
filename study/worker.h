/**
 * @file worker.h
 * What stands around the worker's processes. Internal to study/.
 */
#ifndef TY_STUDY_WORKER_H
#define TY_STUDY_WORKER_H

#include "ty_core.h"

/** trainyard-worker: $TRAINYARD_WORKER, or beside this program, or in ../libexec/trainyard.
 *  @param out [out, PATH_MAX] */
ty_status ty_worker_path(char *out, ty_error *error) TY_MUST_CHECK;

/** TY_EUNSUPPORTED where this machine's cores or memory are too few for so many processes of the
 * job. */
ty_status ty_processes_check(const ty_job *job, uint32_t processes, ty_error *error) TY_MUST_CHECK;

/**
 * Moves this process into a network namespace that has nothing but a loopback, if the system lets
 * it and $TRAINYARD_NETWORK is not "host".
 */
void ty_private_network_enter(void);

#endif
