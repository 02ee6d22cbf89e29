/**
 * @file lane_parts.h
 * What a lane of a rank has of layers and of their parameter tensors: the rules of
 * ty_lane_group (device.h), the same on every backend. Internal to execute/.
 *
 * Of n rows, columns or words a lane has those from ceil(n / lanes) * lane on, at most
 * ceil(n / lanes); a lane's tensors have room for as many, and what is behind the last is 0.
 */
#ifndef TY_EXECUTE_LANE_PARTS_H
#define TY_EXECUTE_LANE_PARTS_H

#include "device.h"
#include "token_runs.h"

typedef ty_layer_tensor lane_tensor;

/** One of the lanes that divide a tensor. */
typedef struct lane_place {
    uint32_t lanes, lane;
} lane_place;

typedef struct lane_range {
    uint64_t first, count;
} lane_range;

/** A run of elements that lie together in the whole tensor and in a lane's part of it. */
typedef struct lane_run {
    uint64_t whole, part, count; /* starts, and length */
} lane_run;

uint32_t lane_count(const ty_stage_options *options); /* at least 1 */
/** How much of `count` each lane has room for. */
static inline uint64_t lane_part(uint64_t count, uint32_t lanes)
{
    return (count + lanes - 1) / lanes;
}
/** What a lane really has of it. */
lane_range lane_range_of(uint64_t count, uint32_t lanes, uint32_t lane);

uint32_t lane_context_count(const ty_stage_options *options); /* at least 1 */
uint32_t lane_expert_count(const ty_stage_options *options);  /* at least 1 */
/** What this context lane has of something along the sequence, [T] or [T, D]. */
ty_shape lane_context_shape(const ty_stage_options *options, const ty_shape *whole);
/** Which tokens of a sequence it has, and which another one has. */
token_runs lane_token_runs(const ty_stage_options *options, uint64_t sequence);
token_runs lane_token_runs_of(uint64_t sequence, uint32_t lanes, uint32_t lane);

/** Whether lanes, of which there are several, have parts of the layer's parameters. */
bool lane_divides(const ty_stage_options *options, uint32_t layer);
/** Shape per sample of what a lane has of a layer's output. */
ty_shape lane_shape(const ty_stage_options *options, uint32_t layer);
/** Whether the stage's layers can be divided as asked; else the status says why. */
ty_status lanes_check(const ty_stage_options *options, ty_error *error) TY_MUST_CHECK;

/** Whether a tensor is in the slice of experts, which there is where expert lanes divide them, or
 * tables. */
bool lane_is_of_experts(const ty_stage_options *options, const lane_tensor *tensor);
/** What lanes divide of a layer's tensor, and which of them this is: tensor lanes all of it or this
 * expert lane's experts, expert lanes a table.
 * @param first [out] its first element in the whole */
lane_tensor lane_tensor_here(const ty_stage_options *options, uint32_t layer,
                             const lane_tensor *tensor, uint64_t *first, lane_place *place);
/** Of lanes that have whole tables, the one that has a layer's; TY_NO_LAYER where they have not. */
uint32_t lane_of_table(const ty_stage_options *options, uint32_t layer);
/** Room behind a layer's table, so that all lanes have as much as the one with most of them. */
uint64_t lane_table_padding(const ty_stage_options *options, uint32_t layer);
/** Elements of a tensor on each lane. */
uint64_t lane_tensor_count(const lane_tensor *tensor, uint32_t lanes);
/** The index-th run of a lane's part; false behind the last one. */
bool lane_tensor_run(const lane_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t index,
                     lane_run *out);
/** A lane's part into its place in the whole. */
void lane_tensor_join(const lane_tensor *tensor, uint32_t lanes, uint32_t lane, const float *part,
                      float *whole);

#endif
