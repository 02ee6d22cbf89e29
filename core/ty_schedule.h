/**
 * Pipeline schedules as a table: in which order a stage's forwards and backwards run is written
 * once, in planner/schedule_NAME.c; what else anybody has to know of a schedule is a column of its
 * row. No code outside compares schedules: it asks the row.
 */
#ifndef TY_SCHEDULE_H
#define TY_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ty_schedule {
    TY_GPIPE,
    TY_ONE_F_ONE_B,
    TY_INTERLEAVED,
    TY_ZERO_BUBBLE,
    TY_ZERO_BUBBLE_2P,
    TY_PIPEDREAM,
    TY_PIPEDREAM_2BW,
    TY_SCHEDULE_COUNT
} ty_schedule;

/** Which sets of weights a position keeps. */
typedef enum ty_weight_versions {
    TY_WEIGHTS_ONE,       /* the newest */
    TY_WEIGHTS_DOUBLE,    /* a step uses the version before the newest */
    TY_WEIGHTS_IN_FLIGHT, /* one for each update that a micro-batch in flight is behind */
} ty_weight_versions;

typedef struct ty_schedule_row {
    const char *name;       /* "1f1b", in plans and --fix */
    const char *megatron;   /* how Megatron-LM calls it, or NULL: it has none like it */
    const char *torchtitan; /* likewise, of pipeline_parallel_schedule */
    bool is_usual;          /* searched unless another is asked for */
    bool is_interleaved;    /* several stages on each position */
    bool needs_pipeline;    /* one stage alone has no use for it */
    bool is_asynchronous;   /* weights are updated while micro-batches are in flight */
    bool splits_backward;   /* first the gradients of activations, later those of weights */
    bool
        has_full_in_flight; /* all micro-batches of a step are in flight, not those of the stages */
    ty_weight_versions versions;
    uint8_t most_zero;       /* the highest ZeRO level that it can have */
    uint8_t least_per_stage; /* micro-batches of each replica, for each position: at least */
    uint8_t warmup_times;    /* forwards ahead of the first backward, in those of 1F1B */
} ty_schedule_row;

/** The row of a schedule. @param schedule below TY_SCHEDULE_COUNT */
const ty_schedule_row *ty_schedule_at(ty_schedule schedule);

/** "unknown" for what is no schedule. */
const char *ty_schedule_name(ty_schedule schedule);

/** The schedule that is taken where nothing else is asked for. */
ty_schedule ty_schedule_default(bool is_interleaved);

/** Whether a schedule serves one stage and replicas of the whole network: synchronous, with one
 * stage a position and one backward. */
bool ty_schedule_is_plain(ty_schedule schedule);

/** The weights kept beside the newest. @param lead updates that a micro-batch can be behind, of the
 *  position's program */
uint32_t ty_schedule_stashed_versions(ty_schedule schedule, uint32_t lead);

/** What a schedule is asked to do. */
typedef struct ty_schedule_use {
    uint32_t positions;     /* devices of a pipeline, at least 1 */
    uint32_t interleave;    /* stages on each position, at least 1 */
    uint32_t micro_batches; /* of each replica */
    uint32_t zero;          /* level */
    bool has_segments;      /* recomputation makes segments of a stage */
} ty_schedule_use;

typedef enum ty_schedule_problem {
    TY_SCHEDULE_SUITS,
    TY_SCHEDULE_INTERLEAVE, /* several stages a position belong to interleaved schedules, and to
                               those alone */
    TY_SCHEDULE_MULTIPLE,   /* the micro-batches are no multiple of the positions */
    TY_SCHEDULE_TOO_FEW,    /* fewer micro-batches than least_per_stage asks for */
    TY_SCHEDULE_SEGMENTS,   /* recomputation in segments wants backward whole */
    TY_SCHEDULE_ZERO,       /* it has no sharding of that level */
} ty_schedule_problem;

/** Whether a schedule can do it: the one rule for searching, pinning and reading plans. */
ty_schedule_problem ty_schedule_check(ty_schedule schedule, const ty_schedule_use *use);

#endif
