/**
 * @file ty_core.h
 * The data types that all modules of Trainyard share, and their base.
 *
 *   ty_base.h      status and errors, checked memory, text, quoting, files, progress
 *   ty_json.h      strict JSON: reading with pointers in messages, exact writing, records
 *   ty_workload.h  precision; a model as a graph of layers
 *   ty_cluster.h   devices, hosts and links; input rates of samples
 *   ty_profile.h   collectives and compressors; measured times
 *   ty_stack.h     the framework that runs a plan: its costs
 *   ty_plan.h      schedules; stages, replicas, micro-batches, buckets; small devices
 *   ty_program.h   the instructions of each pipeline rank, and their costs
 *   ty_run.h       timelines; a job for the worker, and its measurements
 *
 * Conventions, valid for every header of the project:
 * - Seconds, bytes, FLOPs and their rates; `double` for times and rates, `uint64_t` for sizes and
 *   counts, `uint32_t` for indices. A multiply-add is 2 FLOPs. Bandwidths are per direction.
 * - Everything that can fail returns a ty_status; out-parameters are written only on TY_OK.
 * - The caller owns the value of an out-parameter and frees it with the matching `_free`, which
 *   accepts NULL. Inputs are borrowed for the call.
 * - Objects are immutable once loaded, so threads may share them.
 * - Nothing here prints, exits, or keeps mutable global state.
 */
#ifndef TY_CORE_H
#define TY_CORE_H

#include "ty_axes.h"
#include "ty_base.h"
#include "ty_cluster.h"
#include "ty_json.h"
#include "ty_plan.h"
#include "ty_profile.h"
#include "ty_program.h"
#include "ty_run.h"
#include "ty_stack.h"
#include "ty_workload.h"

#endif
