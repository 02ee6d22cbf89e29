/**
 * @file layout.h
 * Layouts: hybrid parallelism of networks of blocks on equal accelerators. A layout divides every
 * device alike: so many pipeline ranks of a pipeline, each with as many replicas, each of as many
 * ranks, and the blocks of the network equally among the stages. Internal to planner/.
 *
 *     TY_CHECK(ty_layouts_open(question, &layouts, error), status, cleanup);
 *     while (found && bound_s < best_s) {
 *         TY_CHECK(ty_layouts_next(layouts, &layout, &bound_s, &found, error), status, cleanup);
 *         ... estimate it: best_s = fmin(best_s, ...)
 *     }
 *
 * They come in the order of a bound: no estimate of a layout is below it. So whoever estimates each
 * until the next one's bound is no better than the best has the best of all, having looked at few.
 *
 * There are no costs of its own here. The bound is put together from what layers, exchanges,
 * transfers and updates cost by costing.h, and memory is ty_stage_memory's:
 *
 *   - a pipeline rank works through all micro-batches of all its stages, and then exchanges what no
 *     backward hides and updates, before it can begin the next step;
 *   - with pipeline rank i in the middle of it all: the first one's forwards reach i, i works
 * through all its micro-batches, and the last backward goes back to the first one, which exchanges
 * and updates before it begins the next step.
 *
 * The longest of these is the bound. docs/design/search.md tells how close it comes.
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
    uint64_t bucket_bytes; /* UINT64_MAX: one bucket a stage */
    ty_compression_kind compression;
} layout;

typedef struct ty_layouts ty_layouts;

/**
 * The space of a question. Borrows it. Costs are asked for as far as bounds need them: some ten
 * microseconds for each way to divide a layer and each size of micro-batches.
 * @param out [out] NULL where the question has no layouts: a network without equal blocks of
 *            attention or state spaces, unequal devices, devices that share cores, a stage's own
 *            number of replicas, or of layers, asked for, learning without gradients
 * @return TY_EINTERRUPTED when the question says so before all bounds are known
 */
ty_status ty_layouts_open(const search_question *question, ty_layouts **out,
                          ty_error *error) TY_MUST_CHECK;
void ty_layouts_close(ty_layouts *layouts);

/**
 * The next layout that fits by what memory needs at least.
 * @param bound_s [out] seconds of a step, rising from call to call
 * @param found   [out] false: there are no more
 */
ty_status ty_layouts_next(ty_layouts *layouts, layout *out, double *bound_s, bool *found,
                          ty_error *error) TY_MUST_CHECK;
/** How many there are that keep the rules and what is pinned. O(families), no costs. */
uint64_t ty_layouts_count(ty_layouts *layouts);
/**
 * The layout that needs least memory: what to tell of where none fits.
 * @param found [out] false: there are none at all
 */
ty_status ty_layouts_smallest(ty_layouts *layouts, layout *out, bool *found,
                              ty_error *error) TY_MUST_CHECK;

/**
 * First layers of the stages of a layout: blocks are divided equally; of what is left over each
 * stage behind the first has one more, then the first, so that the last, which has the head, and
 * the first, which has the embedding, come last.
 * @param first_layers [out] [pipeline ranks * interleave]
 */
void ty_layout_divide(const ty_layouts *layouts, const layout *layout, uint32_t *first_layers);

#endif
