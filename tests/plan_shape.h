/* Plans made from a short description, for the tests of every module. */
#ifndef TY_TEST_PLAN_SHAPE_H
#define TY_TEST_PLAN_SHAPE_H

#include "ty_core.h"

enum { MOST_SHAPE_STAGES = 16 };

/* A plan in short. A member of 0 is left out of the plan, unless its comment says otherwise. */
typedef struct plan_shape {
    const char *name; /* NULL: "made for a test" */
    ty_schedule schedule;
    uint32_t replicas[MOST_SHAPE_STAGES];    /* of each stage; 0 ends them */
    uint32_t cuts[MOST_SHAPE_STAGES - 1];    /* first layer of each later stage */
    uint32_t buckets;                        /* of each stage, at most */
    uint32_t global_batch, micro_batch_size; /* 0: micro-batches of 2 samples */
    ty_algorithm algorithm;
    ty_compression compression; /* ratio, rank 0: 0.01 and 2 where it has them */
    ty_recompute recompute;
    uint32_t recompute_blocks;
    uint32_t frozen; /* layers before this one are */
    uint32_t virtual_stages, zero, staleness;
    uint32_t lag;     /* of actors: a first stage of replicas, with a first cut at layer 0 */
    bool is_reversed; /* buckets are exchanged in the reverse of their order, where they can */
    uint32_t local_steps;
    const char *cluster; /* one-line description; NULL: nothing is known of it */
    uint32_t tp;         /* tensor parallel; 0: 1 */
    bool divides_sequence;
    uint32_t contexts, experts; /* context and expert parallel; 0: 1 */
    ty_table_shard tables;      /* how expert-parallel ranks shard them */
    uint32_t servers;           /* dedicated, on the devices after all others */
    ty_server_shard shard;
    uint32_t micro_batches;                    /* instead of a global batch */
    uint32_t layers[MOST_SHAPE_STAGES];        /* of each stage, instead of cuts */
    uint32_t stage_buckets[MOST_SHAPE_STAGES]; /* of each stage, instead of `buckets` */
    bool is_tied; /* in the workload made with the plan, the last matrix is the first one */
} plan_shape;

/** A message and an abort, which fail programs with Criterion and without. */
void must(bool holds, const char *what, const char *detail);

/** Opaque layers in a row: layer i has (i + 1) * 1000 parameters, and every cut carries 400 bytes
 * per sample. Tied: the first is an embedding, and the last a linear layer with its matrix. */
ty_workload *chain_workload(uint32_t layers, bool is_tied);

/** One host with N devices; free with ty_cluster_free. */
ty_cluster *host_of(uint32_t devices);

/** The sum of `layers`. */
uint32_t shape_layers(const plan_shape *shape);

/** A plan that passes ty_plan_check; each bucket has as many layers as can be, from the last of its
 * stage with parameters to the first that is not frozen. It does what the shape says of the plan;
 * The caller makes a workload with the shape's `frozen` layers, `local_steps` and `is_tied`, and
 * the cluster that `cluster` names.
 * @param workload which the plan takes over, as it does the cluster
 * @param cluster NULL: a host with the devices that it needs */
ty_plan *plan_of(ty_workload *workload, ty_cluster *cluster, const plan_shape *shape);

#endif
