/**
 * @file ty_axes.h
 * The axes of the plan space: every choice that a plan makes, written once.
 *
 * An axis is a row of one table, core/plan/plan_axes.c. The row has the axis' name (the key of
 * `--fix`, of `whatif --vary` and of configurations), its field in ty_pins, its values, how they
 * are read and printed, and when a suggestion may drop it. Whoever handles choices one by one
 * loops over the table and knows no axis by name.
 *
 *     ty_pins pins = {0};                                             // every axis is open
 *     TY_CHECK(ty_pins_read("pp=2,recompute=full:4", 64, &pins, error), status, cleanup);
 *     ty_pin(&pins, TY_AXIS_DP, 8);
 *     if (ty_is_pinned(&pins, TY_AXIS(PP)))
 *         printf("%u pipeline ranks\n", pins.pipeline_stages);
 *     ty_unpin(&pins, TY_AXIS_RECOMPUTE);
 *     TY_CHECK(ty_pins_print(&pins, &text, error), status, cleanup);  // "pp=2,dp=8"
 *
 * Pins are the question: an axis is *pinned* to one value, or *open*. Only `axes` says which.
 * The field of an open axis is 0, which is also the value of an axis that no search varies unless
 * it is pinned (`staleness`, `servers`, `lag`). A complete plan is a point: the pins that
 * reproduce it (`fix` in ty_plan.h).
 *
 * docs/design/recipes.md shows how to add an axis.
 */
#ifndef TY_AXES_H
#define TY_AXES_H

#include "ty_base.h"
#include "ty_profile.h"

#include <stdbool.h>
#include <stdint.h>

/** The axes, in the order in which pins are printed. */
typedef enum ty_axis {
    TY_AXIS_PP,
    TY_AXIS_DP,
    TY_AXIS_REPLICAS,
    TY_AXIS_LAYERS,
    TY_AXIS_SCHEDULE,
    TY_AXIS_VPP,
    TY_AXIS_MICRO_BATCH,
    TY_AXIS_TP,
    TY_AXIS_CP,
    TY_AXIS_EP,
    TY_AXIS_TABLES,
    TY_AXIS_SP,
    TY_AXIS_ZERO,
    TY_AXIS_RECOMPUTE,
    TY_AXIS_COMPRESSION,
    TY_AXIS_COMPRESS,
    TY_AXIS_EMBEDDINGS,
    TY_AXIS_BUCKET,
    TY_AXIS_CYCLE,
    TY_AXIS_PRIORITY,
    TY_AXIS_ALGORITHM,
    TY_AXIS_SERVERS,
    TY_AXIS_SHARD,
    TY_AXIS_STALENESS,
    TY_AXIS_ACTORS,
    TY_AXIS_LAG,
    TY_AXIS_DEVICES,
    TY_AXIS_COUNT
} ty_axis;

/** An axis as a member of a set: TY_AXIS(TP) | TY_AXIS(PP). */
#define TY_AXIS(name) ((uint64_t)1 << TY_AXIS_##name)

/* ---- Values -------------------------------------------------------------------------------- */

/** Pipeline schedules: a table in ty_plan.h has their properties. */
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
/** The name, or "unknown" for an invalid value. */
const char *ty_schedule_name(ty_schedule schedule);

/**
 * Activation recomputation: the activations that forward does not store and backward recomputes.
 * Elementwise, operator and full split a stage into segments (ty_recompute_segments). Between
 * forward and backward of a micro-batch, only the inputs of a segment are stored. Backward goes
 * from segment to segment and recomputes each first.
 *
 * Operator: a segment is one block, and every other matrix product's output is stored as well, as
 * in torchtitan's "selective op". Of the linear and conv2d layers of a block these are the first,
 * third, ... one's; of each attention its projections and its sums of the values (the scores are as
 * in selective); of each mlp the first product. Everything else is recomputed, and so are all moe,
 * lstm and additive attention layers.
 *
 * Elementwise: a segment is one block, and only the outputs of norms and activation functions are
 * recomputed, those inside an mlp and of experts too. No product is recomputed. Megatron-Core calls
 * it output-discarding recomputing ("layernorm", "moe_act").
 */
typedef enum ty_recompute {
    TY_RECOMPUTE_NONE,
    TY_RECOMPUTE_SELECTIVE, /* attention's inner activations only: the softmax and its output */
    TY_RECOMPUTE_ELEMENTWISE,
    TY_RECOMPUTE_OPERATOR,
    TY_RECOMPUTE_FULL,
    TY_RECOMPUTE_COUNT
} ty_recompute;
const char *ty_recompute_name(ty_recompute recompute);
#define TY_MAX_RECOMPUTE_BLOCKS 10000
/** The user's spelling: "none", "selective", "elementwise", "operator", "full" (a segment is one
 * block), "full:4" (four blocks), "stage" (the entire stage). */
void ty_recompute_text(ty_recompute recompute, uint32_t blocks, ty_text *text);
/** Its inverse. @return TY_EINVAL: what was found, and what there is */
ty_status ty_recompute_parse(const char *text, ty_recompute *recompute, uint32_t *blocks,
                             ty_error *error) TY_MUST_CHECK;

/** How the tables of embedding bags are sharded over expert-parallel ranks. */
typedef enum ty_table_shard {
    TY_TABLES_WHOLE,  /* unsharded: each rank has every table */
    TY_TABLES_ROW,    /* each rank has an equal part of the rows of each table */
    TY_TABLES_COLUMN, /* each rank has an equal part of the columns of each table */
    TY_TABLES_TABLE,  /* each rank has unsharded tables: the largest first, to the rank with the
                         fewest bytes so far */
    TY_TABLE_SHARD_COUNT
} ty_table_shard;
const char *ty_table_shard_name(ty_table_shard shard); /* "row" */

/** The gradients that each server sums. */
typedef enum ty_server_shard {
    TY_SHARD_SIZE,   /* each server sums an equal share of every bucket */
    TY_SHARD_TENSOR, /* unsharded tensors: the largest first, each to the server with the fewest
                        bytes so far. A tensor of more than a fair share of all gradients is split
                        into equal parts of at most that */
    TY_SERVER_SHARD_COUNT
} ty_server_shard;
const char *ty_server_shard_name(ty_server_shard shard); /* "size" */

/** Sharding of layers, ZeRO and recomputation; fields are as in ty_plan and ty_plan_stage. */
typedef struct ty_plan_dimensions {
    uint32_t tensor_parallel, context_parallel, expert_parallel; /* 0 counts as 1 */
    bool sequence_parallel;
    ty_table_shard table_shard;
    uint32_t zero;
    uint32_t virtual_stages; /* per pipeline rank; 0 counts as 1; more only with "interleaved" */
    ty_recompute recompute;
    uint32_t recompute_blocks;
} ty_plan_dimensions;
/** The axes in ty_plan_dimensions; those that give a stage replica several ranks. */
#define TY_AXES_OF_RANKS (TY_AXIS(TP) | TY_AXIS(CP) | TY_AXIS(EP))
#define TY_AXES_OF_DIMENSIONS                                                                      \
    (TY_AXES_OF_RANKS | TY_AXIS(TABLES) | TY_AXIS(SP) | TY_AXIS(ZERO) | TY_AXIS(VPP) |             \
     TY_AXIS(RECOMPUTE))

/** Which buckets are compressed. Open: all if the compressor is pinned, else as "shorter". */
typedef enum ty_compress_rule {
    TY_COMPRESS_ALL = 1, /* all */
    TY_COMPRESS_SHORTER, /* those whose own all-reduce it is predicted to shorten */
    TY_COMPRESS_RULE_END
} ty_compress_rule;

/** Which gradients of embeddings and embedding bags are sent as rows. Open: none if a compression
 * other than rows is pinned; else as "shorter", and none for comparison. */
typedef enum ty_embedding_rule {
    TY_EMBEDDINGS_DENSE = 1, /* none */
    TY_EMBEDDINGS_SHORTER,   /* those whose own all-reduce this is predicted to shorten */
    TY_EMBEDDING_RULE_END
} ty_embedding_rule;

/** The order in which buckets are reduced (ty_plan.h). */
typedef enum ty_priority_rule {
    TY_PRIORITY_NONE,    /* in the order in which backward completes them */
    TY_PRIORITY_FRONT,   /* the bucket of the earliest layers first, among those whose gradients are
                            ready */
    TY_PRIORITY_SHORTER, /* the order with the shorter estimated step, if the plan may have both */
    TY_PRIORITY_RULE_COUNT
} ty_priority_rule;

/** A number for each stage, in order. */
#define TY_MAX_STAGES 256
typedef struct ty_stage_list {
    uint32_t count, numbers[TY_MAX_STAGES];
} ty_stage_list;
/** Appends "4x8+2": four times 8, then 2. */
void ty_stage_list_print(const uint32_t *numbers, uint32_t count, ty_text *out);

/* ---- Pins ---------------------------------------------------------------------------------- */

/** Pinned values. Zero-initialize; the contents of an open axis are 0. */
typedef struct ty_pins {
    uint64_t axes;            /* the pinned ones: TY_AXIS(...) | ... */
    uint32_t pipeline_stages; /* PP size */
    uint32_t data_parallel;   /* DP size, equal for every stage */
    ty_stage_list replicas;   /* of each stage, if they differ */
    ty_stage_list layers;     /* of each stage, with VPP of each virtual stage */
    ty_schedule schedule;
    uint32_t micro_batch_size;
    ty_plan_dimensions dimensions;
    ty_compression compression;
    ty_compress_rule compress;
    ty_embedding_rule embeddings;
    uint64_t bucket_bytes; /* UINT64_MAX: one per stage */
    /* Buckets fitted to the times at which gradients are ready (ty_buckets_choose), not to bytes.
     * Not with virtual stages, ZeRO, EP, local steps or stale gradients. */
    bool fit_buckets;
    /* Gradients that backward computes in one cycle of this many seconds share a bucket of at most
     * `bucket_bytes`, as Horovod fuses ready tensors (Sergeev and Del Balso, arXiv:1802.05799).
     * Cycles count from the start of a stage's backward. An all-reduce's wait for its cycle is the
     * stack's exchange_cycle_s. */
    double cycle_s;
    ty_priority_rule priority; /* front: one stage with replicas, ty_axis_refusal */
    ty_algorithm algorithm;    /* of all gradient collectives */
    /* Dedicated parameter servers (ty_plan.h), which receive all gradients by TY_PARAMETER_SERVER.
     * Each is the first device of a host of its own, whose other devices stay idle: the slowest
     * hosts first, and of equal ones the last. On a cluster of one host, it is one of the last
     * devices. The other devices are at least two replicas of one stage, without TP, CP, EP or
     * ZeRO. */
    uint32_t servers;
    ty_server_shard shard; /* open: by size */
    uint32_t staleness;    /* in steps, of every candidate */
    uint32_t actors;       /* devices that only run episodes, the last of the cluster */
    uint32_t lag;
    /* Devices to use: so many, whole hosts of one kind or devices of one host; or exactly those of
     * the list. The others stay idle. */
    uint32_t devices;
    const char *device_list; /* "0-7+16-23", up to another character; NULL: any */
} ty_pins;

/** Whether any axis of a set is pinned. */
static inline bool ty_is_pinned(const ty_pins *pins, uint64_t axes)
{
    return (pins->axes & axes) != 0;
}
/** Pins an axis whose value is a number or the member of an enumeration. */
void ty_pin(ty_pins *pins, ty_axis axis, uint64_t value);
/** Opens an axis. */
void ty_unpin(ty_pins *pins, ty_axis axis);
/** Gives an axis the state that it has in `from`. */
void ty_pins_take(ty_pins *pins, const ty_pins *from, ty_axis axis);
/** Whether dimensions have the pinned values of `axes`, a subset of TY_AXES_OF_DIMENSIONS. */
bool ty_pins_suit(const ty_pins *pins, uint64_t axes, const ty_plan_dimensions *dimensions);

/**
 * Reads a text such as "pp=2,micro_batch=4": pins the axes that it names and leaves the others
 * alone.
 * @param text    must outlive the pins if it lists devices
 * @param devices of the cluster
 * @return TY_EINVAL naming the axis, what was found and what was expected
 */
ty_status ty_pins_read(const char *text, uint32_t devices, ty_pins *pins,
                       ty_error *error) TY_MUST_CHECK;
/** Appends the pins as such a text, in the order of the axes. */
ty_status ty_pins_print(const ty_pins *pins, ty_text *out, ty_error *error) TY_MUST_CHECK;

/* ---- Sets ---------------------------------------------------------------------------------- */

/**
 * Sets of values, for what software and systems can do. The values of an axis are of some kinds,
 * numbered from 0: each word is a kind; of a size these are 1, and 2 and more; of replicas equal
 * and unequal ones; of buckets those of some bytes and fitted ones. Bit n of `of[axis]` is kind n.
 */
typedef struct ty_axis_sets {
    uint32_t of[TY_AXIS_COUNT];
} ty_axis_sets;
static inline bool ty_axis_may(const ty_axis_sets *sets, ty_axis axis, uint32_t kind)
{
    return kind < 32 && (sets->of[axis] >> kind & 1) != 0;
}
/** Kinds of axes whose values have no names. */
enum { TY_KIND_ONE, TY_KIND_MORE }; /* of sizes, and of counts: 0, and 1 and more */
enum { TY_KIND_EQUAL, TY_KIND_UNEQUAL };
/** All kinds of all axes. */
ty_axis_sets ty_axis_sets_all(void);
/** Only the first kind of each axis: a synchronous replica of the unsharded model per device. Of
 * schedules, those of one stage; of collectives any algorithm, and any number in lists. */
ty_axis_sets ty_axis_sets_plain(void);
/** The kind of a pinned value. */
uint32_t ty_axis_kind(ty_axis axis, const ty_pins *pins);
/** Appends the kinds of a set: "1, 2 and more", "gpipe, 1f1b", "none". */
void ty_axis_kinds_print(ty_axis axis, uint32_t kinds, ty_text *out);
/** Number of stages that pins fix by PP, replicas or layers; 0: open. */
uint32_t ty_pins_stages(const ty_pins *pins);
/**
 * Whether all pinned values are of kinds in the sets. A schedule counts only if the stages or VPP
 * are pinned to more than one.
 * @param whose subject of the message: "stack megatron"
 * @return TY_EINVAL with the value and the possible ones
 */
ty_status ty_axis_sets_check(const ty_axis_sets *sets, const char *whose, const ty_pins *pins,
                             ty_error *error) TY_MUST_CHECK;

/* ---- The table ----------------------------------------------------------------------------- */

/** The name of an axis; NULL after the last. */
const char *ty_axis_name(uint32_t axis);
/** An axis by its name or a synonym; TY_AXIS_COUNT: there is none. */
ty_axis ty_axis_find(const char *name);
/** Appends values for completion, with blanks between them: all words if values are words (except
 * those with a number, such as full:4), else a few of the numbers or sizes. */
void ty_axis_values(ty_axis axis, ty_text *out);
/** The axis to open as number n, of those whose pin may cost memory or speed: the cheapest first;
 * TY_AXIS_COUNT after the last. */
ty_axis ty_axis_to_open(uint32_t n);

#endif
