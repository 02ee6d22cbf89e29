/* Plans for the tests of the runtime: a workload divided as asked, lowered, run in this process. */
#ifndef TY_TEST_EXECUTE_PLANS_H
#define TY_TEST_EXECUTE_PLANS_H

#include "ty_execute.h"
#include "ty_planner.h"

typedef struct plan_shape {
    const char *name;
    ty_schedule schedule;
    uint32_t replicas[8]; /* of each stage; 0 ends them */
    uint32_t cuts[7];     /* first layer of each later stage */
    uint32_t buckets;     /* of each stage, at most */
    uint32_t global_batch, micro_batch_size;
    ty_algorithm algorithm;
    ty_compression compression;
    ty_recompute recompute;
    uint32_t recompute_blocks;
    uint32_t frozen; /* layers before this one are */
    uint32_t virtual_stages, zero, staleness;
    uint32_t lag;     /* of actors: a first stage of replicas, with a first cut at layer 0 */
    bool is_reversed; /* buckets are exchanged in the reverse of their order, where they can */
    uint32_t local_steps;
    const char *cluster; /* one-line description of what it is planned for; NULL: nothing known */
    uint32_t tp;         /* tensor parallel; 0: 1 */
    bool divides_sequence;
    uint32_t contexts, experts; /* context and expert parallel; 0: 1 */
    ty_table_shard tables;      /* how experts divide them */
    uint32_t servers;           /* of their own, behind all other devices */
    ty_server_shard shard;
} plan_shape;

/** A message and an abort, which fail programs with Criterion and without. */
void must(bool holds, const char *what, const char *detail);

/** The text of a zoo file: two recurrent layers with a residual sum, as in GNMT. */
extern const char gnmt_small[];
/** Another: a decoder whose tokens see two of four experts each, as in Mixtral. */
extern const char moe_small[];

/** In the quick form of a test (quick.h) a network of the same layers, a tenth as wide, for what
 * has one: `mlp` and the `gpt-tiny` of short sequences. Else the same again. */
const char *narrow(const char *workload);

/** A name with changes, a path, or the text of a zoo file. Aborts the test with a message on
 * anything unexpected, as do all here. */
ty_workload *open_workload(const char *workload);
/** @param workload as open_workload has it */
ty_plan *make_plan(const char *workload, const plan_shape *shape);
/** The same training on one rank. */
ty_plan *plan_alone(const ty_plan *plan, uint32_t micro_batch_size);
/** A training job for the plan, which it takes over; paths are under `directory`, and so is the
 * data: images are written there, token workloads get synthetic text. */
ty_job *make_job(ty_plan *plan, uint32_t steps, const char *directory);
/** The same in a directory that has data. */
ty_job *make_job_on(ty_plan *plan, uint32_t steps, const char *directory);
void write_data(const char *directory);
/** A new directory in $TMPDIR, or /tmp; free the name with directory_remove, which also empties it.
 */
char *directory_make(void);
void directory_remove(char *directory);

#endif
