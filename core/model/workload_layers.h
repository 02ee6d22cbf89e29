/* Private to core: shared by the files of workloads and of plans. */
#ifndef TY_WORKLOAD_LAYERS_H
#define TY_WORKLOAD_LAYERS_H

#include "ty_workload.h"

#define TY_WORKLOAD_SCHEMA "trainyard.workload/1"

/** Largest quantity that JSON carries exactly. */
#define TY_MAX_QUANTITY (((uint64_t)1 << 53) - 1)

/** A scenario beyond these limits is rejected as implausible: one sample per day, a million local
 * steps, one label in a million samples, views that are shifted by more than the width of
 * images. */
#define TY_MAX_INPUT_S 86400.0
#define TY_MAX_LOCAL_STEPS 1000000
#define TY_MAX_TEACHER_EVERY 1000000
#define TY_MAX_CONSISTENCY 1e6
#define TY_MAX_SHIFT 10000
#define TY_MAX_DEVIATION 1e6

/** Largest value of an attribute: products of two stay far from overflow. */
#define TY_MAX_ATTRIBUTE INT32_MAX

/** Names in the order of ty_input_kind and ty_learning. */
extern const char *const ty_input_kind_names[2];
extern const char *const ty_learning_names[TY_LEARNING_COUNT];

/** Whether an attribute of a layer that has it is at least 1 (sizes) or may be 0 (flags). */
bool ty_attribute_is_size(ty_attribute attribute);
/** Whether files and signatures name an attribute of this layer. */
bool ty_attribute_is_shown(const ty_layer *layer, ty_attribute attribute);
/** Whether an attribute is 0 or 1. */
bool ty_attribute_is_flag(ty_attribute attribute);

/** As ty_workload_check; `place` is from ty_json_place: pointers are appended to it. */
ty_status ty_workload_check_at(const ty_workload *workload, const char *place,
                               ty_error *error) TY_MUST_CHECK;

#endif
