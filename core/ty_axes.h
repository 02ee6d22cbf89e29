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
#include "ty_plan.h"

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
    ty_priority_rule priority; /* front: one stage with replicas, ty_priority_refusal */
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
