/* Internal to layout_*.c: the blocks of a model and the rules of layouts. */
#ifndef TY_PLANNER_LAYOUT_SPACE_H
#define TY_PLANNER_LAYOUT_SPACE_H

#include "cost/kernels.h"
#include "layout.h"

/** A model as blocks; blocks of a class take the same time. */
typedef struct layout_space {
    const search_question *q;
    uint32_t block_count, head; /* head: its first layer; layer_count: none */
    uint32_t *blocks;           /* [block_count + 1]: first layers; the last one is the head's */
    uint32_t *classes;          /* [block_count] */
    uint32_t class_count, *class_of_first; /* [class_count]: the first block of each class */
    bool has_scores;                       /* an attention whose scores the stack stores */
    bool has_experts;
} layout_space;
/** @param has_blocks [out] whether stages could be equal blocks; if not, `out` is unchanged */
ty_status ty_layout_space_open(const search_question *q, layout_space *out, bool *has_blocks,
                               ty_error *error) TY_MUST_CHECK;
void ty_layout_space_clear(layout_space *space);

/** Partition of blocks into stages: `base` each, and `rest` of them have one more. */
typedef struct layout_cuts {
    uint32_t stages, base, rest;
} layout_cuts;
layout_cuts ty_layout_cuts_of(const layout_space *space, uint32_t stages);
/** The first block of a stage; block_count after the last. */
static inline uint32_t ty_layout_cut(const layout_cuts *cuts, uint32_t stage)
{
    /* Stages 1 to `rest` have one more; if these would be all but the first, the first one has it
     * and the last does not. */
    const uint32_t before = cuts->rest + 1 == cuts->stages || stage == 0 ? stage : stage - 1;

    return stage * cuts->base + (before < cuts->rest ? before : cuts->rest);
}

/* Whether the workload, the batch and the pinned fields allow a value, given allowed values of the
 * earlier arguments. In dimensions, 1 means "not parallel". */
bool ty_layout_allows_parallelism(const layout_space *space, const ty_plan_dimensions *dimensions);
bool ty_layout_allows_grid(const layout_space *space, uint32_t ranks, uint32_t pipeline_size);
bool ty_layout_allows_batch(const layout_space *space, uint32_t expert, uint32_t replicas,
                            uint32_t micro_batch_size);
bool ty_layout_allows_recompute(const layout_space *space, ty_recompute recompute, uint32_t blocks);
/** @param micro_batches of a replica */
bool ty_layout_allows_schedule(const layout_space *space, const layout *layout,
                               uint32_t micro_batches);
bool ty_layout_allows_zero(const layout_space *space, const layout *layout, uint32_t zero);
bool ty_layout_allows_compression(const layout_space *space, const layout *layout,
                                  ty_compression_kind kind, bool is_exchanged);
#define LAYOUT_MOST_BUCKETS 8
/** Bucket sizes for stages of `stage_bytes` of gradients. @return the number of sizes */
uint32_t ty_layout_buckets(const layout_space *space, uint64_t stage_bytes, uint32_t zero,
                           uint64_t out[LAYOUT_MOST_BUCKETS]);

/* ---- bounds.c ----------------------------------------------------------------------------- */

/** Seconds of passes on one rank, for one sharding of layers,
 * micro-batch size and recomputation. */
typedef struct layout_cell {
    double *forward_s,
        *backward_s;  /* [block_count + 1]: of all blocks before; backward with its recomputation */
    double *weight_s; /* likewise: weight gradients of backward, which no stage waits for */
    double *again_s;  /* likewise: recomputation in backward */
    double head_forward_s, head_backward_s, head_weight_s;
    double pass_s, again_pass_s; /* of the host, a forward or backward; a recomputing pass */
    uint64_t message_bytes;      /* to the next stage */
} layout_cell;

/** Time of collectives, updates and send/recv for equal DP, TP, CP and EP sizes: of the first
 * pipeline rank, one in the middle and the last. */
enum { LAYOUT_FIRST, LAYOUT_MIDDLE, LAYOUT_LAST, LAYOUT_PLACES };
typedef struct layout_grid_costs {
    uint64_t gradient_bytes; /* of the middle, or the only, pipeline rank */
    bool is_exchanged;
    double reduce_s[LAYOUT_PLACES]
                   [TY_COMPRESSION_COUNT]; /* all-reduce, all at once; < 0: not known */
    double scatter_s[LAYOUT_PLACES][TY_COMPRESSION_COUNT]; /* with ZeRO */
    double gather_s[LAYOUT_PLACES];
    double update_s[LAYOUT_PLACES], sharded_update_s[LAYOUT_PLACES];
    double latency_s, s_per_byte; /* of a send between pipeline ranks */
} layout_grid_costs;

ty_status ty_layout_cell_make(const layout_space *space, const ty_plan_dimensions *dimensions,
                              uint32_t micro_batch_size, layout_cell *out,
                              ty_error *error) TY_MUST_CHECK;
void ty_layout_cell_clear(layout_cell *cell);
ty_status ty_layout_grid_make(const layout_space *space, const ty_plan_dimensions *dimensions,
                              uint32_t pipeline_size, layout_grid_costs *out,
                              ty_error *error) TY_MUST_CHECK;
/** Lower bound of the estimated step time in seconds. */
double ty_layout_bound_s(const layout_space *space, const layout *layout, const layout_cell *cell,
                         const layout_grid_costs *grid);
/** Bytes of the device that needs most, by ty_stage_memory. With more than one bucket per stage,
 * without message buffers, which depend on buckets: a lower bound. */
ty_status ty_layout_memory(const layout_space *space, const layout *layout, uint64_t *bytes,
                           ty_error *error) TY_MUST_CHECK;

#endif
