/* What the search and its oracle share: the values each dimension may take, and the collector of
 * the best layouts and the front. */
#ifndef TY_LAYOUT_SEARCH_H
#define TY_LAYOUT_SEARCH_H

#include "parts.h"

#include <stdio.h>

/* ---- The space ---------------------------------------------------------------------------------
 */

typedef struct layout_axis {
    uint32_t count, *values;
} layout_axis;

typedef struct layout_axes {
    layout_axis tensors, contexts, experts, pipelines, micro_batches, chunks;
} layout_axes;
ty_status layout_axes_of(const ty_layout_question *q, const ty_layout_options *options,
                         layout_axes *out, ty_error *error) TY_MUST_CHECK;
void layout_axes_clear(layout_axes *axes);

/** The data parallel degree that uses all devices; false where there is none, or not the wanted. */
bool layout_set_data(const ty_layout_question *q, const ty_layout_options *options, ty_layout *l);
/** Chunks are searched where they divide the layers. */
bool layout_divides(const ty_layout_question *q, const ty_layout *l);

/** A way to exchange gradients. */
typedef struct layout_choice {
    uint32_t zero;
    ty_compression_kind compression;
    bool overlap_gradients;
    uint64_t bucket_bytes;
} layout_choice;
/** All of them; the first `lone_count` are those of a layout without replicas. */
ty_status layout_choices_of(const ty_layout_options *options, layout_choice **out, uint32_t *count,
                            uint32_t *lone_count, ty_error *error) TY_MUST_CHECK;
static inline void layout_choose(const layout_choice *choice, ty_layout *l)
{
    l->zero = choice->zero;
    l->compression = choice->compression;
    l->overlap_gradients = choice->overlap_gradients;
    l->bucket_bytes = choice->bucket_bytes;
}

/** Every combination of all values, one after the other, valid or not: for the oracle. */
enum { LAYOUT_DIGITS = 12 };
typedef struct layout_counter {
    uint32_t digits[LAYOUT_DIGITS];
    bool is_started;
} layout_counter;
bool layout_next(const ty_layout_question *q, const ty_layout_options *options,
                 const layout_axes *axes, const layout_choice *choices, uint32_t choice_count,
                 layout_counter *counter, ty_layout *out);

/* ---- What is kept
 * --------------------------------------------------------------------------------- */

typedef struct layout_collector {
    ty_layout_answer *answer;
    uint32_t top, front_capacity;
} layout_collector;
ty_status layout_collector_open(layout_collector *c, const ty_layout_options *options,
                                ty_error *error) TY_MUST_CHECK;
/** Whether nothing as slow and as large as this can be kept any more. */
bool layout_is_beaten(const layout_collector *c, double time_s, double memory_bytes);
/** False: memory ran out. */
bool layout_collect_result(layout_collector *c, const ty_layout *l,
                           const ty_layout_estimate *estimate);

#endif
