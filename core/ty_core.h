/**
 * @file ty_core.h
 * The nouns that every part of Trainyard shares, and the ground they stand on.
 *
 *   ty_status.h    how a call fails and says why
 *   ty_memory.h    checked allocation, arenas
 *   ty_text.h      growing strings, units, "did you mean", digests
 *   ty_json.h      strict JSON: reading with pointers in the messages, exact writing
 *   ty_file.h      whole-file reading, atomic writing, data directory
 *   ty_progress.h  one progress line on stderr
 *   ty_precision.h  in what numbers layers compute
 *   ty_workload.h  a network as a graph of layers
 *   ty_cluster.h   devices, hosts and links
 *   ty_compression.h  compressors of gradients: bytes, collectives, memory, when they pay
 *   ty_profile.h   measured times of layers, copies and collectives
 *   ty_stack.h     the software that runs a plan, as far as its costs go
 *   ty_plan.h      what to run: stages, replicas, micro-batches, buckets
 *   ty_program.h   in which order: the instructions of each stage
 *   ty_input.h     whether samples come as fast as they are used
 *   ty_samples.h   how fast they were measured to be read
 *   ty_deploy.h    whether a trained network keeps the budget of a small device
 *   ty_costs.h     what each instruction costs: the input of estimate and simulate
 *   ty_timeline.h  what happened when: the output of estimate, simulate and execute
 *   ty_run.h       a job for the worker, and what it measured
 *   ty_relay.h     messages between ranks for who knows nothing of MPI
 *
 * Conventions, valid for every header of the project:
 * - Seconds, bytes, flop and their rates; `double` for times and rates, `uint64_t` for sizes and
 *   counts, `uint32_t` for indices. A multiply-add is 2 flop. Bandwidths are per direction.
 * - Everything that can fail returns a ty_status; out-parameters are written only on TY_OK.
 * - The caller owns what comes back through an out-parameter and frees it with the matching
 *   `_free`, which accepts NULL. Inputs are borrowed for the call.
 * - Objects are immutable once loaded, so threads may share them.
 * - Nothing here prints, exits, or keeps mutable global state.
 */
#ifndef TY_CORE_H
#define TY_CORE_H

#include "ty_busy.h"
#include "ty_cluster.h"
#include "ty_compression.h"
#include "ty_costs.h"
#include "ty_deploy.h"
#include "ty_file.h"
#include "ty_input.h"
#include "ty_json.h"
#include "ty_memory.h"
#include "ty_plan.h"
#include "ty_precision.h"
#include "ty_profile.h"
#include "ty_program.h"
#include "ty_progress.h"
#include "ty_quote.h"
#include "ty_relay.h"
#include "ty_run.h"
#include "ty_samples.h"
#include "ty_stack.h"
#include "ty_status.h"
#include "ty_text.h"
#include "ty_timeline.h"
#include "ty_tokens.h"
#include "ty_workload.h"

#endif
