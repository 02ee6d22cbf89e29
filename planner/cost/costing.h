/*
 * Internal to planner/: costs.c walks a program and calls one of these functions per operation.
 * compute_costs.c prices the work of one device, network_costs.c the communication.
 */
#ifndef TY_COSTING_H
#define TY_COSTING_H

#include "cost/kernels.h"
#include "network_cache.h"
#include "ty_planner.h"

/** A send to a neighbor: the same time for all micro-batches. */
typedef struct ty_stage_transfer {
    bool is_known;
    uint64_t bytes;
    ty_instruction_cost cost;
} ty_stage_transfer;

/* Passes over a layer with different TP, CP and EP collectives. */
enum { COST_FORWARD, COST_BACKWARD, COST_AGAIN, COST_PASSES };

/** Costs that the replicas of the current pipeline rank share, computed once per pipeline rank. */
typedef struct ty_stage_costing {
    uint32_t stage;               /* the pipeline rank, numbered as its first stage */
    uint32_t type_count;          /* kinds of device among the replicas */
    const ty_device_type **types; /* [type_count] */
    ty_layer_price *prices;       /* [type_count][layers of the workload]: of its layers */
    double *weight_shares; /* [layers of the workload]: share of backward for weight gradients */
    ty_layer_again *again; /* [layers of the workload]: recomputation of each */
    bool *takes_part;      /* [layers of the workload]: in backward */
    double *inner_s[COST_PASSES];  /* [layers of the workload]: exposed collectives within a stage
                                      replica */
    double *hidden_s[COST_PASSES]; /* likewise: EP collectives that overlap with products */
    double rank_core_share;        /* of the device kind that needs most */
    double core_share;   /* of all ranks of a stage replica that are on the host of the first */
    bool has_spare_core; /* for each process on that host, in addition to its own */
    /* The cache's; NULL until needed. Of gradient collectives of non-experts, and of experts; of
     * the ranks of a stage replica. */
    const ty_group_network *networks[2];
    double *gather_s;        /* [buckets]: overlapped all-gather of weights; NAN: not known yet */
    double play_s;           /* the episodes of a micro-batch; 0: not known yet */
    double bucket_crowds[2]; /* slowdown of such groups by each other; 0: not known yet */
    const ty_group_network *parallel[TY_PARALLELISM_COUNT];
    double parallel_crowds[TY_PARALLELISM_COUNT]; /* slowdown of such groups by each other */
    ty_stage_transfer transfers[2];               /* to the previous pipeline rank, to the next */
    ty_server_network server_network;             /* workers 0: not known yet */
    ty_server_map server_map;                     /* if servers store unsharded tensors */
} ty_stage_costing;

typedef struct ty_costing {
    const ty_plan *plan;
    const ty_profile *profile; /* NULL: data sheets only */
    const ty_cluster *cluster;
    ty_network_cache *networks; /* of the cluster */
    bool is_local;              /* the cluster is the host on which the profile was measured */
    ty_provenance provenance;   /* of the least reliable figure so far */
    ty_stage_costing stage;
    ty_error *error;
} ty_costing;

typedef ty_status (*ty_cost_function)(ty_costing *costing, const ty_instruction *instruction,
                                      ty_instruction_cost *cost);

/* compute_costs.c */
ty_status ty_cost_stage_open(ty_costing *costing, uint32_t stage) TY_MUST_CHECK;
/** Another pipeline rank on the same devices with other layers: only figures of layers are computed
 * again. */
ty_status ty_cost_stage_likewise(ty_costing *costing, uint32_t stage) TY_MUST_CHECK;
/** Only the figures that a compressor needs: of the devices, not of the layers. */
ty_status ty_cost_stage_meet(ty_costing *costing, uint32_t stage) TY_MUST_CHECK;
/** Encode and decode cost of a bucket of the current stage. */
void ty_cost_of_codec(ty_costing *costing, const ty_bucket *bucket, ty_codec_cost *cost);
void ty_cost_stage_close(ty_costing *costing);
ty_status ty_cost_layers(ty_costing *costing, const ty_instruction *instruction,
                         ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_update(ty_costing *costing, const ty_instruction *instruction,
                         ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_codec(ty_costing *costing, const ty_instruction *instruction,
                        ty_instruction_cost *cost) TY_MUST_CHECK;
/** Cost of begin: a copy of the weights that it replaces. */
ty_status ty_cost_begin(ty_costing *costing, const ty_instruction *instruction,
                        ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_load(ty_costing *costing, const ty_instruction *instruction,
                       ty_instruction_cost *cost) TY_MUST_CHECK;

/** Seconds to move bytes through the memory of the pipeline rank's slowest device kind. */
double ty_cost_memory_s(const ty_costing *costing, double bytes);
/** Overhead of an instruction in seconds. */
double ty_cost_overhead_s(const ty_costing *costing);

/* network_costs.c */
ty_status ty_cost_send(ty_costing *costing, const ty_instruction *instruction,
                       ty_instruction_cost *cost) TY_MUST_CHECK;
/** Zero: the send has the cost of the transfer. */
ty_status ty_cost_receive(ty_costing *costing, const ty_instruction *instruction,
                          ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_collective(ty_costing *costing, const ty_instruction *instruction,
                             ty_instruction_cost *cost) TY_MUST_CHECK;

/** Exposed seconds of a collective among the ranks of a stage replica of the current pipeline rank.
 * @param hidden_s [out] of EP, seconds that overlap with products */
ty_status ty_cost_inner(ty_costing *costing, const ty_inner_collective *inner, double *seconds,
                        double *hidden_s) TY_MUST_CHECK;

/** One collective of a bucket (a phase); reads only the network of `stage`, and finds it if it is
 * not known yet. */
ty_status ty_cost_bucket(ty_costing *costing, uint32_t bucket, uint32_t phase,
                         ty_algorithm algorithm, uint64_t bytes,
                         ty_instruction_cost *cost) TY_MUST_CHECK;

/** Any collective among a bucket's members, likewise. */
ty_status ty_cost_collective_of(ty_costing *costing, const ty_bucket *bucket,
                                ty_collective_kind kind, ty_algorithm algorithm, uint64_t bytes,
                                ty_instruction_cost *cost) TY_MUST_CHECK;

/* server_costs.c */
/** An all-reduce of a bucket of the plan by the plan's servers. @param members of the bucket */
ty_status ty_cost_servers(ty_costing *costing, const ty_bucket *bucket,
                          const ty_group_network *members, uint64_t bytes,
                          ty_instruction_cost *cost) TY_MUST_CHECK;

/* compression_choice.c */
/**
 * Time to reduce a bucket if it were compressed by `compression`: all collectives and the
 * compressor. The current stage is the bucket's, by ty_cost_stage_open or ty_cost_stage_meet.
 */
ty_status ty_cost_exchange(ty_costing *costing, const ty_bucket *bucket,
                           const ty_compression *compression, ty_exchange_terms *terms,
                           double *seconds) TY_MUST_CHECK;
/** ty_cost_stage_meet for the stage of a bucket, if `stage`, the current one, differs. */
ty_status ty_cost_stage_turn(ty_costing *costing, const ty_bucket *bucket,
                             uint32_t *stage) TY_MUST_CHECK;
/**
 * Leaves every bucket uncompressed that is reduced sooner that way, by its cost alone. If that is
 * true of all buckets, it changes none, so that the plan loses by its own time.
 */
ty_status ty_choose_compressions(ty_plan *plan, ty_network_cache *networks,
                                 ty_error *error) TY_MUST_CHECK;

/** Whether a collective library chooses the algorithm for a bucket's members. */
ty_status ty_cost_is_library(ty_costing *costing, const ty_bucket *bucket, bool *out) TY_MUST_CHECK;

/** Starts a costing of all of a plan, on the cluster of `networks`. */
ty_costing ty_costing_of(const ty_plan *plan, ty_network_cache *networks, ty_error *error);
/** ty_costs_of_program, with a cache of networks. */
ty_status ty_costs_by_networks(const ty_plan *plan, const ty_program *program,
                               ty_network_cache *networks, ty_costs **out,
                               ty_error *error) TY_MUST_CHECK;

/* algorithm_choice.c */
/** Chooses the library's own algorithm on devices for which it is modeled; else ring or tree for
 * each bucket, whichever is cheaper for its bytes. */
ty_status ty_choose_algorithms(ty_plan *plan, ty_network_cache *networks,
                               ty_error *error) TY_MUST_CHECK;

/** Records that a figure of this provenance was used. */
static inline void ty_cost_relies_on(ty_costing *costing, ty_provenance provenance)
{
    if (provenance > costing->provenance)
        costing->provenance = provenance;
}

#endif
