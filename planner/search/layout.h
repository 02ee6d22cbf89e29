/**
 * @file layout.h
 * Layouts: hybrid parallelism of models of blocks on equal accelerators. In a layout, all pipeline
 * ranks have the same DP, TP, CP and EP sizes, and stages have equal numbers of blocks. Internal to
 * planner/.
 *
 *     TY_CHECK(ty_layouts_open(question, &layouts, error), status, cleanup);
 *     while (found && bound_s < best_s) {
 *         TY_CHECK(ty_layouts_next(layouts, &layout, &bound_s, &found, error), status, cleanup);
 *         ... estimate it: best_s = fmin(best_s, ...)
 *     }
 *
 * Layouts come in the order of a lower bound of their estimate. A caller that estimates each until
 * the next bound is no better than the best has the best of all after few estimates.
 *
 * The bound is computed from the costs of layers, collectives, send/recv and updates by costing.h,
 * and memory is ty_stage_memory's.
 *
 *   - a pipeline rank runs all micro-batches of all its stages, and then its exposed gradient
 *     collectives and updates, before it can begin the next step.
 *   - for pipeline rank i in the middle: the first rank's forwards reach i, i runs all its
 *     micro-batches, and the last backward returns to the first rank, which reduces and updates
 *     before it begins the next step.
 *
 * The longest of these is the bound. docs/design/search.md has its error.
 *
 *   layout_space.c   the layouts that a question allows
 *   layout_bounds.c  lower bounds of the step time, and whether a layout fits
 *   layout_order.c   layouts in the order of their bounds
 */
#ifndef TY_PLANNER_LAYOUT_H
#define TY_PLANNER_LAYOUT_H

#include "candidate.h"

typedef struct layout {
    ty_plan_dimensions dimensions;
    uint32_t pipeline_size, replicas, micro_batch_size;
    ty_schedule schedule;
    uint64_t bucket_bytes; /* UINT64_MAX: one bucket per stage */
    ty_compression_kind compression;
} layout;

typedef struct ty_layouts ty_layouts;

/**
 * Opens the space of a question, which it borrows. It computes costs only when bounds need them:
 * about ten microseconds per sharding of a layer and micro-batch size.
 * @param out [out] NULL if the question has no layouts: a model without equal blocks of attention
 * or state spaces, unequal devices, devices that share cores, fixed replicas or layers per stage,
 * or learning without gradients
 * @return TY_EINTERRUPTED if `should_stop` stops it before all bounds are known
 */
ty_status ty_layouts_open(const search_question *question, ty_layouts **out,
                          ty_error *error) TY_MUST_CHECK;
void ty_layouts_close(ty_layouts *layouts);

/**
 * The next layout whose lower bound of memory fits.
 * @param bound_s [out] seconds of a step, rising from call to call
 * @param found   [out] false: there are no more
 */
ty_status ty_layouts_next(ty_layouts *layouts, layout *out, double *bound_s, bool *found,
                          ty_error *error) TY_MUST_CHECK;
/** The number of layouts that satisfy the rules and the pinned fields. O(families), no costs. */
uint64_t ty_layouts_count(ty_layouts *layouts);
/**
 * The layout that needs least memory, to report if none fits.
 * @param found [out] false: there are none at all
 */
ty_status ty_layouts_smallest(ty_layouts *layouts, layout *out, bool *found,
                              ty_error *error) TY_MUST_CHECK;

/**
 * First layers of the stages of a layout. Blocks are partitioned equally. Of the remainder, the
 * stages after the first get one more block each, then the first. So the last stage (with the head)
 * and the first (with the embedding) come last.
 * @param first_layers [out] [pipeline ranks * interleave]
 */
void ty_layout_divide(const ty_layouts *layouts, const layout *layout, uint32_t *first_layers);

#endif
