/*
 * Small workloads, plans and programs made by hand, for the tests of core.
 *
 * The toy workload is 6 layers on sequences of 3 tokens; "tied" shares two matrices:
 *   0 embed  embedding 8 x 4, 3 positions   176 bytes of parameters
 *   1 down   linear 4 -> 4 with bias         80
 *   2 relu
 *   3 up     linear 4 -> 4 with bias         80; tied: matrix of layer 1, 16 of its own
 *   4 head   linear 4 -> 8                  128; tied: matrix of layer 0, none of its own
 *   5 loss
 * Every cut is crossed by 48 bytes per sample up to layer 4, by 96 before layer 5.
 */
#ifndef TY_TEST_TOY_H
#define TY_TEST_TOY_H

#include "../plan_shape.h"

/* Plans of every shape that core knows; all are valid. */
extern const plan_shape toy_specs[];
extern const size_t toy_spec_count;

ty_workload *toy_workload(bool is_tied);
#define TOY_DEVICES 8
/** On one host of TOY_DEVICES devices, or as many as the plan needs, from the last device down.
 * Buckets are exchanged by a ring and a tree in turn. */
ty_plan *toy_plan(const plan_shape *shape);
/* By name, one of toy_specs. */
ty_plan *toy_plan_named(const char *name);

/* GPipe written down a second time, plainly: all forwards, all backwards, then each bucket. */
ty_program *toy_program(const ty_plan *plan);

/* Adds an event. */
void toy_event(ty_timeline *timeline, uint32_t step, uint32_t stage_replica, uint32_t instruction,
               double start_s, double end_s);

/* The whole text that a value writes as JSON. Free with ty_free. */
char *toy_plan_json(const ty_plan *plan);
char *toy_program_json(const ty_program *program);
char *toy_timeline_json(const ty_timeline *timeline);

/* `text` with the first occurrence of `old` replaced; aborts when there is none. Free with ty_free.
 */
char *toy_replace(const char *text, const char *old, const char *new);

/* A file name of this process's own; remove() the file afterwards. Valid until the next call. */
const char *toy_path(const char *name);
void toy_write(const char *path, const char *text);
char *toy_read(const char *path);

#endif
