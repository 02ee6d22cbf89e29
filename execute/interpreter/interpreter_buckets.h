/* Buckets of a rank: their process groups, their parameters and their update. */
#ifndef TY_EXECUTE_INTERPRETER_BUCKETS_H
#define TY_EXECUTE_INTERPRETER_BUCKETS_H

#include "codec.h"
#include "interpreter_state.h"

typedef struct bucket_state {
    bool is_member;
    virtual_stage_state *virtual_stage; /* whose parameters they are */
    uint64_t offset, count;             /* in the gradients */
    uint32_t member_count, position;
    uint32_t *members; /* process group: ranks with these gradients */
    uint32_t *hosts;   /* [member_count] of a hierarchical collective; else NULL */
    bool is_sharded;
    uint64_t share_offset, share_count; /* this rank's shard, in the gradients */
    bool is_shared;         /* another bucket's layers use its matrix: kept for the entire step */
    uint32_t gathered_step; /* of a shared bucket: one more than the last it was gathered for */
    uint32_t place;         /* where a device has all of it while it is used; see device.h */
    bool is_in_use;         /* gathered for a pass that is not over (ZeRO 3); under the lock */
    bool is_made;           /* gradients in its place, not reduced yet; likewise */
    ty_codec *codec;        /* where the gradients are; NULL: not compressed */
} bucket_state;

/* The range, in the gradients, of some layers of a bucket. */
void interpreter_bucket_slice(const ty_interpreter *interpreter, uint32_t bucket,
                              uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                              uint64_t *count);
/* Opens all buckets of this rank's stages, and the optimizer's state on a device. */
ty_status interpreter_buckets_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_buckets_close(ty_interpreter *interpreter);
/* Tag of a bucket's collective in a step, unique among those that may run together. */
uint32_t interpreter_bucket_tag(const ty_plan *plan, uint32_t window, uint32_t bucket,
                                uint32_t step);
/* Fills in the parameter servers of a bucket's collective, if the plan has any. */
void interpreter_servers_name(const ty_interpreter *interpreter, uint32_t bucket,
                              ty_collective_options *options);

/* ---- Updates (interpreter_update.c) -------------------------------------------------------- */

/* Use of a bucket in a step: its gradients are summed before the update; or replicas update
 * locally; or they do so and then average their weights. */
typedef enum exchange_kind { EXCHANGE_GRADIENTS, EXCHANGE_NOTHING, EXCHANGE_WEIGHTS } exchange_kind;
exchange_kind interpreter_exchange_kind(const ty_interpreter *interpreter, uint32_t bucket,
                                        uint32_t step);
/* The optimizer's step on a bucket. By the thread whose instructions no other rank waits for. */
ty_status interpreter_update(ty_interpreter *interpreter, uint32_t bucket, uint32_t step,
                             ty_error *error) TY_MUST_CHECK;
/* Selects the step's set of gradients, if those of other steps are still in use. */
void interpreter_gradients_select(const ty_interpreter *interpreter,
                                  const virtual_stage_state *virtual_stage, uint32_t step);

#endif
