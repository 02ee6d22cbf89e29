/* A job that measures how fast samples are read. Internal to execute/. */
#ifndef TY_EXECUTE_SAMPLES_JOB_H
#define TY_EXECUTE_SAMPLES_JOB_H

#include "ty_execute.h"

/** On one rank, which writes `job->output`. */
ty_status ty_samples_job(const ty_job *job, const ty_execute_options *options,
                         ty_error *error) TY_MUST_CHECK;

#endif
