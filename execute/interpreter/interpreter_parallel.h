/* The ranks of one stage replica: tensor, context and expert parallelism. */
#ifndef TY_EXECUTE_INTERPRETER_RANKS_H
#define TY_EXECUTE_INTERPRETER_RANKS_H

#include "interpreter_buckets.h"

/* Allocates the process groups and the buffer of a sample. */
ty_status interpreter_groups_open(ty_interpreter *in, ty_error *error) TY_MUST_CHECK;
void interpreter_groups_close(ty_interpreter *in);
/* The rank of a stage replica that has the same TP, CP and EP rank as this one. */
uint32_t interpreter_rank(const ty_interpreter *in, uint32_t rank);
/* Whether this is the first rank of a stage replica, which sends and receives for it. */
bool interpreter_is_first_rank(const ty_interpreter *in, uint32_t rank);
/* Finds the process group of a bucket, and this rank's index in it. */
ty_status interpreter_members_find(const ty_interpreter *in, const ty_bucket *bucket,
                                   bucket_state *state, ty_error *error) TY_MUST_CHECK;
/* Samples of a micro-batch on this rank, and the first of them: expert parallelism shards it. */
uint32_t interpreter_rank_samples(const ty_interpreter *in);
uint32_t interpreter_first_sample(const ty_interpreter *in);
/* Numbers, or tokens, and labels of a row of this rank's batches. */
uint64_t interpreter_row_inputs(const ty_interpreter *in);
uint64_t interpreter_row_labels(const ty_interpreter *in);
/* The rows of a slot's batch; NULL for buffers that the stage does not have. */
whole_sample interpreter_slot_rows(const ty_interpreter *in,
                                   const virtual_stage_state *virtual_stage, uint32_t slot);
/* Writes one sample into a row of the batch; of a sequence only this rank's tokens. */
ty_status interpreter_sample_load(ty_interpreter *in, const whole_sample *batch,
                                  const ty_dataset *dataset, uint64_t sample, uint64_t row,
                                  ty_error *error) TY_MUST_CHECK;
/* The address of a row in the batch. */
whole_sample interpreter_row_at(const ty_interpreter *in, const whole_sample *batch, uint64_t row);
/* The groups as a stage device knows them. */
ty_parallel_group interpreter_parallel_group(ty_interpreter *in);
/* A collective of this rank's process group of a kind, start to end; on the thread of the passes.
 */
ty_status interpreter_parallel_collective(ty_interpreter *in, ty_parallelism among,
                                          ty_collective_kind kind, ty_element element,
                                          uint64_t count, void *data,
                                          ty_error *error) TY_MUST_CHECK;
/* For ty_parallel_group: `context` is the interpreter. */
ty_status interpreter_parallel_exchange(void *context, const ty_parallel_exchange *exchange,
                                        ty_error *error);
ty_status interpreter_parallel_record(void *context, ty_stage_device *stage,
                                      const ty_parallel_exchange *exchange, ty_error *error);
ty_status interpreter_parallel_launch(void *context, ty_stage_device *stage, ty_parallel_run *run,
                                      void *argument, ty_error *error);
/* All-reduces a step's gradients of a bucket's unsharded parameters over the stage replica, if the
 * plan requires it (ty_bucket_rank_bytes). By the thread of the passes, before the bucket's update.
 */
ty_status interpreter_tp_sum(ty_interpreter *in, uint32_t bucket, uint32_t step,
                             ty_error *error) TY_MUST_CHECK;
/* Squared norm of `count` of a bucket's gradients from `offset` on. Those of all ranks add up to
 * the stage replica's: replicated parameters count once, or not at all with sequence parallelism,
 * which gives each rank gradients of its own tokens. */
double interpreter_rank_square(const ty_interpreter *in, uint32_t bucket, const float *gradients,
                               uint64_t offset, uint64_t count);

#endif
