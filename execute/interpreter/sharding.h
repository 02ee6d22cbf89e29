/* Sharded buckets (ZeRO), and weights gathered from their shards. */
#ifndef TY_EXECUTE_SHARDING_H
#define TY_EXECUTE_SHARDING_H

#include "interpreter_buckets.h"
#include "interpreter_state.h"

/* Finds this rank's shard of a bucket, and whether a gathered bucket must be kept for a step. */
void interpreter_share_find(const ty_interpreter *interpreter, uint32_t bucket);
/* The parameters of a stage that this rank keeps, ascending: all except other ranks' shards.
 * @param out room as interpreter_kept_room makes it; @return their number */
uint32_t interpreter_kept_ranges(const ty_interpreter *interpreter,
                                 const virtual_stage_state *virtual_stage, ty_parameter_range *out);
ty_parameter_range *interpreter_kept_room(const ty_interpreter *interpreter); /* or NULL */
/* Whether the gather is unnecessary: a shared bucket was gathered before in this step. */
bool interpreter_gather_is_done(ty_interpreter *interpreter, const ty_instruction *gather,
                                uint32_t step);
/* Whether the gather may overwrite its bucket: no pass uses the weights gathered last. Marks the
 * bucket as in use. With the lock. */
bool interpreter_gather_may_start(ty_interpreter *interpreter, const ty_instruction *gather);
/* Whether a backward may write its gradients: their place is free. With the lock, as the next. */
bool interpreter_backward_may_start(ty_interpreter *interpreter, const ty_instruction *backward);
void interpreter_backward_starts(ty_interpreter *interpreter, const ty_instruction *backward);
/* After a pass: releases the weights gathered for it only. With the lock. */
void interpreter_pass_over(ty_interpreter *interpreter, const ty_instruction *pass);
/* After the collective of a bucket: releases all except this rank's shard (ZeRO 2 and 3). */
ty_status interpreter_exchange_over(ty_interpreter *interpreter, bucket_state *bucket,
                                    ty_error *error) TY_MUST_CHECK;
/* Finds whether devices have memory only for shards of this plan's weights or gradients. */
void interpreter_sharing_find(ty_interpreter *interpreter);
/* Allocates that memory. */
ty_status interpreter_sharing_open(ty_interpreter *interpreter, virtual_stage_state *virtual_stage,
                                   ty_error *error) TY_MUST_CHECK;
/* Addresses of the weights or gradients from `offset` to the end of their range, and of the
 * gradients that backward computes for a bucket. Need no lock. */
float *interpreter_weights_at(const ty_interpreter *interpreter,
                              const virtual_stage_state *virtual_stage, uint64_t offset);
float *interpreter_gradients_at(const ty_interpreter *interpreter,
                                const virtual_stage_state *virtual_stage, uint32_t step,
                                uint64_t offset);
float *interpreter_bucket_gradients(const ty_interpreter *interpreter, const bucket_state *bucket,
                                    uint32_t step);
/* Begins the all-gather of a bucket's weights, with this rank's shard in place. */
ty_status interpreter_gather_begin(ty_interpreter *interpreter, const bucket_state *bucket,
                                   uint32_t tag, ty_collective_options *out,
                                   ty_error *error) TY_MUST_CHECK;
/* Ends it: passes find the weights. */
ty_status interpreter_gather_end(ty_interpreter *interpreter, const bucket_state *bucket,
                                 ty_error *error) TY_MUST_CHECK;
/* All ranks, between runs: gathers all weights for passes, unless interpreter_forward_alone gathers
 * them itself. */
ty_status interpreter_weights_together(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
/* All ranks, between runs: gathers weights, or gradients, from their shards; in the host's memory
 * (`gathered` of each stage) if devices have no room for them. */
ty_status interpreter_gather_all(ty_interpreter *interpreter, bool is_gradients,
                                 ty_error *error) TY_MUST_CHECK;
/* Releases other ranks' shards of weights (ZeRO 3), and those in the host's memory. */
void interpreter_shares_only(ty_interpreter *interpreter);
/* All replicas of a stage, between runs: forward of slot 0, bucket by bucket if need be.
 * @param has_batch false: this one only takes part in gathers */
ty_status interpreter_forward_alone(ty_interpreter *interpreter,
                                    const virtual_stage_state *virtual_stage, bool has_batch,
                                    ty_error *error) TY_MUST_CHECK;

/* All ranks, between runs: replaces this rank's weights by a variant's. A reader of other ranks'
 * weights has to gather them again.
 * @param trained [out] the weights before, also after a failure; freed by interpreter_variant_free
 */
ty_status interpreter_variant_make(ty_interpreter *interpreter, const ty_variant *variant,
                                   float ***trained, ty_error *error) TY_MUST_CHECK;
/* Puts them back. */
ty_status interpreter_variant_over(ty_interpreter *interpreter, float *const *trained,
                                   ty_error *error) TY_MUST_CHECK;
void interpreter_variant_free(const ty_interpreter *interpreter, float **trained);

/* ---- Unsharded layers (gradients.c) ------------------------------------------------------ */

/* All ranks, between runs: gathers the newest weight version from its shards, and averages
 * statistics over replicas. interpreter_shares_only afterwards. */
ty_status interpreter_weights_ready(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
/* All ranks: appends a layer's unsharded weights (layer_tensors.h; a tied matrix only its owner's)
 * to the text on rank 0. A failure is this rank's alone. */
ty_status interpreter_weights_move(ty_interpreter *interpreter, uint32_t layer, ty_text *text,
                                   ty_error *error) TY_MUST_CHECK;
/* Averages a stage's statistics over replicas and EP ranks (evaluate.c). */
ty_status interpreter_statistics_average(ty_interpreter *interpreter,
                                         const virtual_stage_state *virtual_stage,
                                         ty_error *error) TY_MUST_CHECK;

#endif
