/**
 * @file vary.h
 * One point of a what-if question: the question with some keys (ty_whatif_axis) set to other
 * values. Internal to study/.
 */
#ifndef TY_STUDY_VARY_H
#define TY_STUDY_VARY_H

#include "question.h"

#define TY_VARY_MOST_KEYS 16

typedef struct ty_vary_point {
    ty_question question; /* its texts are in `texts` or in the base */
    ty_arena *texts;
    ty_cluster_edit edits[TY_VARY_MOST_KEYS];
    uint32_t edit_count;
} ty_vary_point;

/** Starts from the base; `point` must be cleared, also after a failure. */
ty_status ty_vary_point_new(const ty_question *base, ty_vary_point *point,
                            ty_error *error) TY_MUST_CHECK;
void ty_vary_point_clear(ty_vary_point *point);

/** TY_EINVAL: unknown key (names the nearest), or an invalid value for it. Neither text needs to
 * outlive the call. */
ty_status ty_vary_set(ty_vary_point *point, const char *key, const char *value,
                      ty_error *error) TY_MUST_CHECK;

/** Opens workload, cluster and profile of a point, with its edits made to the cluster. */
ty_status ty_vary_open(const ty_vary_point *point, const ty_watch *watch, ty_question_inputs *out,
                       ty_error *error) TY_MUST_CHECK;

#endif
