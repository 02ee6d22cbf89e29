/**
 * @file candidate.h
 * One point of the plan space, before it is a plan. Internal to planner/.
 */
#ifndef TY_PLANNER_CANDIDATE_H
#define TY_PLANNER_CANDIDATE_H

#include "ty_planner.h"

#define TY_MAX_STAGES 256

/** What a search was asked, with everything that does not change between candidates. */
typedef struct search_question {
    const ty_workload *workload;
    const ty_cluster *cluster;
    const ty_profile *profile;
    const ty_plan_options *options;
    uint32_t global_batch;
    uint32_t device_count;
    bool ignore_memory; /* nothing fits: look for what misses least */
    uint32_t *cuts;
    uint32_t cut_count;
    ty_digest workload_digest, cluster_digest;
    char *cluster_json;
} search_question;

/** Borrows everything it is given; ty_search_question_clear frees what it adds. */
ty_status ty_search_question_make(const ty_workload *workload, const ty_cluster *cluster,
                                  const ty_profile *profile, const ty_plan_options *options,
                                  search_question *question, ty_error *error) TY_MUST_CHECK;
void ty_search_question_clear(search_question *question);

typedef struct candidate {
    uint32_t stage_count;
    uint32_t first_layers[TY_MAX_STAGES], replicas[TY_MAX_STAGES];
    uint32_t micro_batches;
    ty_schedule schedule;
    uint64_t bucket_bytes; /* UINT64_MAX: one bucket a stage */
    ty_compression_kind compression;
    double top_k_ratio;
    double bound_s; /* quick estimate of the step, to order candidates before the real one */

    /* What became of it. */
    bool is_estimated;
    ty_step_summary estimate, simulation; /* simulation.step_time_s 0: not simulated */
    uint64_t peak_memory_bytes;
    uint64_t missing_bytes; /* > 0: does not fit a device, by that much */
    uint32_t missing_stage;
} candidate;

/**
 * The plan of a candidate: stages on consecutive devices, buckets; memory filled in, no prediction
 * yet. It borrows the question's workload, profile and cluster text (hundreds of such plans are
 * made in a search): free it with ty_candidate_plan_free, keep it with ty_plan_copy.
 */
ty_status ty_candidate_to_plan(const search_question *question, const candidate *c, ty_plan **out,
                               ty_error *error) TY_MUST_CHECK;
void ty_candidate_plan_free(ty_plan *plan);

/** "1f1b 2 stages, replicas 2+1" / with details "..., 8 micro-batches of 16, 25.0 MB buckets,
 * fp16". */
ty_status ty_candidate_name(const search_question *question, const candidate *c, bool with_details,
                            char **out, ty_error *error) TY_MUST_CHECK;

/** All candidates worth a look, with bounds, in no order; free with ty_free. */
ty_status ty_candidates_enumerate(const search_question *question, candidate **out, uint32_t *count,
                                  ty_error *error) TY_MUST_CHECK;

#endif
