/**
 * @file ty_timeline.h
 * A timeline: when each instruction of each rank ran, in one or more steps. The estimator, the
 * simulator and the executor all write one, so predicted and measured can be laid over each other
 * instruction by instruction.
 */
#ifndef TY_TIMELINE_H
#define TY_TIMELINE_H

#include "ty_costs.h"
#include "ty_json.h"
#include "ty_plan.h"
#include "ty_program.h"
#include "ty_status.h"

#include <stdint.h>

typedef struct ty_event {
    uint32_t rank;
    uint32_t step;         /* 0-based, of the recorded steps */
    uint32_t instruction;  /* index in the rank's stage program */
    double start_s, end_s; /* since the start of step 0; on waiting instructions (receive,
                              collective) start is when the rank was ready for it */
} ty_event;

typedef struct ty_timeline {
    ty_digest plan_digest;
    uint32_t rank_count, step_count;
    uint64_t event_count, capacity;
    ty_event *events; /* ascending by step, rank, instruction once ty_timeline_sort was called */
} ty_timeline;

ty_status ty_timeline_new(const ty_plan *plan, uint32_t step_count, ty_timeline **out,
                          ty_error *error) TY_MUST_CHECK;
/** The same without the plan's digest, which takes long on large clusters: for timelines that are
 * summed up and never written. */
ty_status ty_timeline_new_unsigned(const ty_plan *plan, uint32_t step_count, ty_timeline **out,
                                   ty_error *error) TY_MUST_CHECK;
ty_status ty_timeline_add(ty_timeline *timeline, const ty_event *event) TY_MUST_CHECK;
void ty_timeline_sort(ty_timeline *timeline);
void ty_timeline_free(ty_timeline *timeline);

/** `trainyard.timeline/1`: rows of [rank, step, instruction, start_s, end_s]. */
ty_status ty_timeline_from_json(const ty_json *object, ty_timeline **out,
                                ty_error *error) TY_MUST_CHECK;
void ty_timeline_to_json(const ty_timeline *timeline, ty_json_writer *writer, const char *key);

/**
 * Every instruction of every rank and step exactly once, inside its rank's stage program, with
 * finite times and end_s >= start_s. Needs a sorted timeline.
 */
ty_status ty_timeline_check(const ty_plan *plan, const ty_program *program,
                            const ty_timeline *timeline, const char *name,
                            ty_error *error) TY_MUST_CHECK;

/** The event of (step, rank, instruction) in a sorted, checked timeline: arithmetic, no search. */
const ty_event *ty_timeline_find(const ty_timeline *timeline, const ty_program *program,
                                 const ty_plan *plan, uint32_t step, uint32_t rank,
                                 uint32_t instruction);

/**
 * What a step is made of; one definition for predicted and measured timelines.
 *
 * Step time: with several steps, (end of the last step - end of the first) / (steps - 1), the end
 * of a step being the last end of any compute instruction in it; with one step, its end. With more
 * than 8 steps the median of the differences of successive ends is taken instead, so that one
 * disturbed step does not count. Where steps overlap, as many steps at either end are left out as
 * the program runs ahead, down to two. Shares: each gap in a rank's compute stream is charged to
 * what the next compute instruction waited for last: a collective or its codec ->
 * exposed_collective; a load
 * -> input; a receive -> exposed transfer for as long as its send had started, bubble before that;
 * nothing -> bubble. They are shares of the time from the end of the first step to the end of the
 * last (with one step: from 0), over all ranks; what a rank has left at the end of it is bubble.
 * @param program  one that passed ty_program_check
 * @param timeline sorted; checked here
 * @return TY_EPARSE when the timeline is not of this program, TY_EINVAL when its steps take no
 * time.
 */
ty_status ty_timeline_summarize(const ty_plan *plan, const ty_program *program,
                                const ty_timeline *timeline, ty_step_summary *out,
                                ty_error *error) TY_MUST_CHECK;

/** What the time of a rank's compute stream goes to, in more detail than a summary has. */
typedef enum ty_time_kind {
    TY_TIME_FORWARD,
    TY_TIME_BACKWARD,
    TY_TIME_RECOMPUTE,
    TY_TIME_OPTIMIZER,
    TY_TIME_TENSOR_EXCHANGE,   /* inside passes, among the lanes of a rank */
    TY_TIME_GRADIENT_EXCHANGE, /* compute waits for it, as for the kinds from here on */
    TY_TIME_WEIGHT_GATHER,
    TY_TIME_CODEC,
    TY_TIME_TRANSFER, /* of activations and their gradients, while it is being sent */
    TY_TIME_INPUT,
    TY_TIME_BUBBLE, /* another stage's compute */
    TY_TIME_KIND_COUNT
} ty_time_kind;
const char *ty_time_kind_name(ty_time_kind kind); /* "forward", "gradient_exchange" */

/**
 * Shares of the window that ty_timeline_summarize looks at, over all ranks; they add up to 1, and
 * those of a summary are sums of them.
 * @param costs  where a pass's exchange among lanes is known from (inner_s); NULL: it stays with
 * the passes
 * @param shares [out, TY_TIME_KIND_COUNT]
 * @param busy   [out, rank] share of the window that its compute stream is busy; may be NULL
 * @return as ty_timeline_summarize
 */
ty_status ty_timeline_breakdown(const ty_plan *plan, const ty_program *program,
                                const ty_costs *costs, const ty_timeline *timeline, double *shares,
                                double *busy, ty_error *error) TY_MUST_CHECK;

#endif
