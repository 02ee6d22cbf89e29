/**
 * @file candidate.h
 * One point of the plan space, before it is a plan. Internal to planner/.
 *
 *   question.c        the validated question
 *   default_stack.c   the default stack
 *   plan_stack.c      another stack for a plan
 *   cut_positions.c   where stages may begin
 *   device_sets.c     which devices may stay idle
 *   candidates.c      which points of the space to evaluate
 *   dimensions.c      TP, CP, EP, ZeRO and recomputation, if needed
 *   layout/           equal stages of models of blocks, all of them
 *   divisions.c       partitions of the layers into stages
 *   bucket_choice.c   which gradients share a bucket
 *   row_choice.c      which embeddings' gradients are sent as rows
 *   quick_estimate.c  a quick estimate of each, in microseconds
 *   candidate_plan.c  from a candidate to a plan, its program and its costs
 *   search.c          which of them are estimated and simulated
 *   actor_choice.c    the number of actors, if the workload has episodes
 *   answer.c          the best as a plan, and why the others were rejected
 *   candidate_pins.c  the pins that reproduce a candidate
 */
#ifndef TY_PLANNER_CANDIDATE_H
#define TY_PLANNER_CANDIDATE_H

#include "network_cache.h"
#include "ty_planner.h"

static inline ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory");
}

/* ---- The question ------------------------------------------------------------------------ */

/** Devices that plans may use; the others are idle. */
typedef struct device_set {
    uint32_t count;
    uint32_t *devices; /* [count] of the cluster, ascending */
    bool is_spare;     /* considered if all devices gave no plan */
    bool is_regular;   /* part of a host, or a power of two of hosts: always searched */
    char *name;        /* as in `--fix devices=`, "" for all; NULL until candidate_pins.c sets it */
} device_set;

/** The question of a search, with all that is the same for every candidate. */
typedef struct search_question {
    const ty_workload *workload;
    const ty_cluster *cluster;
    const ty_profile *profile;
    const ty_plan_options *options;
    const ty_pins *pins;   /* the options' */
    const ty_stack *stack; /* of the options, or own_stack */
    uint32_t recomputes;   /* the stack's kinds of recomputation: ty_stack_recomputes */
    bool is_fp16;          /* ty_trains_in_fp16 */
    ty_stack *own_stack;   /* the default one if the options name none; else NULL */
    uint32_t global_batch;
    device_set *sets; /* [set_count] by device_sets.c; the first is the largest */
    uint32_t set_count;
    /* The current set; the fields below depend on its devices. */
    const device_set *set;
    uint32_t *servers;             /* [pins.servers] devices of servers, in no set */
    uint32_t device_count;         /* of the set */
    ty_plan_dimensions dimensions; /* current: of the candidates being enumerated */
    uint32_t stage_replica_count;  /* with them: devices / ranks of a stage replica */
    uint64_t largest_memory_bytes; /* maximum that a plan may use on any device of the set */
    bool has_equal_memory;         /* all devices have that much */
    bool is_short_of_memory;       /* the usual micro-batches do not fit: consider smaller ones */
    uint32_t most_virtual_stages;  /* maximum VPP of layouts; 0: any */
    bool ignore_memory;            /* nothing fits: find the candidate that misses least */
    /* Why nothing can be enumerated with the requested dimensions, the others being 1; status
     * TY_OK: it can. Layouts may set the others. */
    ty_error refusal;
    uint32_t fixed_stages;           /* by the options; 0: searched */
    uint32_t fixed_micro_batch_size; /* by the options; 0: searched */
    bool has_fixed_replicas;
    uint32_t fixed_replicas[TY_MAX_STAGES]; /* [fixed_stages] */
    bool has_fixed_layers;                  /* stages begin at all cuts, and only there */
    uint32_t *all_cuts;                     /* [all_cut_count] */
    uint32_t all_cut_count;
    uint32_t *cuts; /* [cut_count] where stages may begin; room for all */
    uint32_t cut_count;
    ty_digest workload_digest;
    ty_network_cache *networks; /* of the cluster */
} search_question;

/** Whether the stack has plans with that kind of value. */
static inline bool stack_may(const search_question *q, ty_axis axis, uint32_t kind)
{
    return ty_axis_may(&q->stack->plans.may, axis, kind);
}
static inline bool ty_has_recompute(const search_question *q, ty_recompute recompute)
{
    return (q->recomputes >> recompute & 1) != 0;
}

/**
 * Borrows its inputs; ty_search_question_clear frees what it adds.
 * @return TY_EINVAL for an invalid question, with the nearest valid one
 */
ty_status ty_search_question_make(const ty_workload *workload, const ty_cluster *cluster,
                                  const ty_profile *profile, const ty_plan_options *options,
                                  search_question *question, ty_error *error) TY_MUST_CHECK;
void ty_search_question_clear(search_question *question);
/** Makes another set current and derives the fields that depend on it; `refusal` says whether the
 * question is possible on it. @return TY_EINVAL if `refusal` is final: layouts cannot solve it
 * either */
ty_status ty_search_question_use(search_question *question, const device_set *set,
                                 ty_error *error) TY_MUST_CHECK;
/**
 * device_sets.c: which devices plans may leave idle. All of the cluster first, or as many as
 * `devices` fixes. If plans may leave some idle, whole hosts of one kind follow, the first of them,
 * in numbers with many divisors, many before few. Some devices of one host come last.
 * @param servers [pins.servers] whose devices, and their hosts if there are several, do not
 * train
 * @param sets [out] free with ty_device_sets_free
 */
ty_status ty_device_sets_propose(const ty_cluster *cluster, const ty_pins *pins, bool may_idle,
                                 const uint32_t *servers, uint32_t global_batch, device_set **sets,
                                 uint32_t *count, ty_error *error) TY_MUST_CHECK;
/** Devices of dedicated servers: see ty_plan_options. @param devices [out] [wanted] */
ty_status ty_server_devices(const ty_cluster *cluster, uint32_t wanted, uint32_t *devices,
                            ty_error *error) TY_MUST_CHECK;
/** The device of an actor; fewer actors than the cluster's devices. */
uint32_t ty_actor_device(const ty_cluster *cluster, const ty_pins *pins, uint32_t actor);
void ty_device_sets_free(device_set *sets, uint32_t count);
/** Lower bound of the step time on a set in seconds: its products at the devices' peaks. */
double ty_device_set_bound_s(const search_question *question, const device_set *set);

/** Ranks of a stage replica by dimensions: TP x CP x EP. */
uint32_t ty_dimensions_width(const ty_plan_dimensions *dimensions);
/** Whether a stage reduces gradients: among its replicas, or among ranks with the same weights. */
bool ty_dimensions_exchange(const ty_plan_dimensions *dimensions, uint32_t replicas);
uint32_t ty_dimensions_sequence_parts(const ty_plan_dimensions *dimensions);
/** Sets sizes of 1 to 0, so that equal dimensions compare equal. */
void ty_dimensions_normalize(ty_plan_dimensions *dimensions);
bool ty_dimensions_equal(const ty_plan_dimensions *a, const ty_plan_dimensions *b);
/** A plan with only dimensions and workload, for functions of ty_plan.h on ranks. */
ty_plan ty_plan_of_dimensions(const search_question *question, uint32_t micro_batch_size);
/** Makes dimensions current; TY_EINVAL if the workload or the cluster does not allow them. */
ty_status ty_search_question_divide(search_question *question, const ty_plan_dimensions *dimensions,
                                    ty_error *error) TY_MUST_CHECK;
/**
 * Chooses `cuts` among all. The search takes time in the square of the cuts, and a deep model of
 * equal blocks has far more cuts than stages. Cuts nearest to an equal partition of its flop stay,
 * at least `least` of them if there are that many. Cuts that one tensor crosses come first. The
 * others are considered only if those are at most half of the searched number: a ResNet of 50
 * layers has enough, and would take twice as long.
 */
void ty_search_question_thin(search_question *question, uint32_t least);
/**
 * Layers at which stages may begin: all cuts that one tensor crosses, and between two of these one
 * cut between each two heavy layers; all cuts, if these are fewer than `least`.
 * @param cuts [out] ascending; the caller's
 */
ty_status ty_cut_positions(const ty_workload *workload, uint32_t least, uint32_t **cuts,
                           uint32_t *count, ty_error *error) TY_MUST_CHECK;
/** The compressor of a kind: pinned, or with the parameters to propose. */
ty_compression ty_proposed_compression(const ty_pins *pins, ty_compression_kind kind);
/** Whether the stack has a compressor, and uses it by default or on request. */
bool ty_may_compress(const search_question *question, ty_compression_kind kind);
/** Whether buckets that a compressor would slow stay uncompressed. */
bool ty_chooses_compressed(const ty_pins *pins);
/** Whether embeddings may be sent as rows; and whether the pins require it for all that can. */
bool ty_may_have_rows(const ty_pins *pins);
bool ty_asks_for_rows(const ty_pins *pins);
/** TY_OK, or TY_EINVAL with the reason why no layer of the workload can be sent as rows. */
ty_status ty_rows_possible(const search_question *question, ty_error *error) TY_MUST_CHECK;
/** Whether replicas of these dimensions can send rows, if the question asks for them. */
bool ty_may_send_rows(const search_question *question, const ty_plan_dimensions *d);
/** Whether buckets can be fitted with these dimensions; else TY_EINVAL with the reason. */
ty_status ty_can_fit_buckets(const search_question *question, const ty_plan_dimensions *dimensions,
                             ty_error *error) TY_MUST_CHECK;
bool ty_search_must_stop(const search_question *question);

/** ty_plan_search with the options' number of actors only. */
ty_status ty_plan_search_once(const ty_workload *workload, const ty_cluster *cluster,
                              const ty_profile *profile, const ty_plan_options *options,
                              ty_plan **out, ty_error *error) TY_MUST_CHECK;

/* ---- Candidates -------------------------------------------------------------------------- */

/** Maximum number of buckets per stage in the search, by ZeRO stage: with more, latency exceeds the
 * gain of overlap. ZeRO 3 may have more, because unsharded weights of a bucket take memory. */
static inline uint64_t ty_most_buckets(uint32_t zero)
{
    return zero < 3 ? 64 : 1024;
}

/** A partition: the first layer and the number of replicas of each stage. */
typedef struct division {
    uint32_t stage_count;
    uint32_t first_layers[TY_MAX_STAGES], replicas[TY_MAX_STAGES];
} division;

static inline bool has_equal_replicas(const division *d)
{
    for (uint32_t s = 1; s < d->stage_count; s++)
        if (d->replicas[s] != d->replicas[0])
            return false;
    return true;
}

/** A dimension, of which 0 counts as 1. */
static inline uint32_t at_least_one(uint32_t value)
{
    return value > 1 ? value : 1;
}

typedef struct candidate {
    const device_set *set; /* the question's; NULL: the first */
    const division *division;
    ty_plan_dimensions dimensions;
    uint32_t micro_batches;
    ty_schedule schedule;
    uint64_t bucket_bytes;   /* UINT64_MAX: one bucket per stage */
    bool has_fitted_buckets; /* instead of bytes: ty_buckets_choose */
    ty_compression compression;
    bool has_dense_embeddings; /* none as rows, for comparison or lack of memory */
    /* Candidates with equal schedule, stage count and replicas are one strategy; they differ in
     * micro-batches, buckets and compression. */
    uint32_t strategy; /* below the list's strategy_count */
    double quick_s;    /* of a step, by quick_estimate.c */

    /* Results. */
    bool is_judged;                       /* its memory is known */
    bool has_rows;                        /* an embedding travels as rows */
    ty_step_summary estimate, simulation; /* step_time_s 0: not estimated, not simulated */
    double expected_s;                    /* step time without an estimate */
    uint64_t peak_memory_bytes;
    uint64_t missing_bytes; /* > 0: exceeds a device's memory by that much */
    uint32_t missing_stage;
    bool is_best_of_strategy;
    bool is_alternative;    /* estimated only for the report: slower than the choice */
    bool has_no_simulation; /* its simulation took too long: only the estimate exists */
    bool is_preferred;      /* the simplest within the options' tolerance */
} candidate;

typedef struct candidate_list {
    candidate *items;
    uint32_t count, capacity;
    uint32_t strategy_count;
    struct strategy *strategies; /* [strategy_count] */
    uint32_t strategy_room;
    bool is_cut_short;   /* by should_stop */
    ty_arena *divisions; /* owns every division */
} candidate_list;

/** Adds all candidates to evaluate with the current dimensions, with quick estimates, in no order.
 * `list` is empty (all 0) or was filled before. */
ty_status ty_candidates_enumerate(const search_question *question, candidate_list *list,
                                  ty_error *error) TY_MUST_CHECK;
void ty_candidates_clear(candidate_list *list);
/** Frees all but the divisions. */
void ty_candidates_drop(candidate_list *list);
/** Finds or adds the strategy of a candidate. */
ty_status ty_candidates_strategy(candidate_list *list, const candidate *c, uint32_t *index,
                                 ty_error *error) TY_MUST_CHECK;
/** Appends a copy. */
ty_status ty_candidates_add(candidate_list *list, const candidate *c,
                            ty_error *error) TY_MUST_CHECK;

/** The layer after a stage. */
static inline uint32_t ty_division_end(const search_question *q, const division *d, uint32_t stage)
{
    return stage + 1 < d->stage_count ? d->first_layers[stage + 1] : q->workload->layer_count;
}

/** The layers of each stage. */
static inline ty_stage_list ty_division_layers(const search_question *q, const division *d)
{
    ty_stage_list list = {.count = d->stage_count};

    for (uint32_t s = 0; s < d->stage_count; s++)
        list.numbers[s] = ty_division_end(q, d, s) - d->first_layers[s];
    return list;
}

#define TY_MOST_DIMENSIONS 80
/** dimensions.c: TP sizes to consider in addition, if layouts (below) do not apply: on devices that
 * share a host's cores, with and without sequence parallelism. At most TY_MOST_DIMENSIONS.
 * @return the number of dimensions */
uint32_t ty_dimensions_of_tensor_parallel(const search_question *question,
                                          ty_plan_dimensions out[TY_MOST_DIMENSIONS]);
/** dimensions.c: EP sizes that shard the tables of embedding bags, in all ways, also in addition;
 * with the other requested dimensions. At most TY_MOST_DIMENSIONS.
 * @return the number of dimensions
 */
uint32_t ty_dimensions_of_tables(const search_question *question,
                                 ty_plan_dimensions out[TY_MOST_DIMENSIONS]);
/** dimensions.c: the same on accelerators, for models that do not fit one: TP within a host, EP,
 * and both, with recomputation; optimizer states are sharded if the stack can. Pinned fields stay.
 * At most TY_MOST_DIMENSIONS, least recomputation first.
 * @return the number of dimensions */
uint32_t ty_dimensions_of_accelerators(const search_question *question,
                                       ty_plan_dimensions out[TY_MOST_DIMENSIONS]);
/** dimensions.c: dimensions to try if nothing fits without, the cheapest first. At most
 * TY_MOST_DIMENSIONS.
 * @return the number of dimensions */
uint32_t ty_dimensions_propose(const search_question *question,
                               ty_plan_dimensions out[TY_MOST_DIMENSIONS]);

/* ---- From a candidate to a plan ---------------------------------------------------------- */

/**
 * A candidate's plan with its program, which lacks the plan's digest: for the estimator and the
 * simulator. The plan borrows the question's workload, profile and cluster text (hundreds of such
 * plans are made in a search): keep it with ty_plan_copy.
 */
typedef struct draft {
    ty_plan *plan; /* stages on consecutive devices, buckets, memory; no prediction yet */
    ty_program *program;
} draft;
/** @return TY_ELIMIT: the program has too many instructions to be stored */
ty_status ty_draft_make(const search_question *question, const candidate *c, draft *out,
                        ty_error *error) TY_MUST_CHECK;
/** The plan with only its memory: shows whether a candidate fits, at a lower cost. */
/** Computes the memory of a plan's stages again, in the existing arrays. */
ty_status ty_plan_count_memory(ty_plan *plan, ty_error *error) TY_MUST_CHECK;
ty_status ty_draft_plan(const search_question *question, const candidate *c, draft *out,
                        ty_error *error) TY_MUST_CHECK;
/** Adds a program for ty_draft_estimate: with very many micro-batches, one that leaves most out. */
ty_status ty_draft_lower(draft *d, ty_error *error) TY_MUST_CHECK;
/** Estimates the step of a draft, or of a plan that differs from it only in borrowed data. */
ty_status ty_draft_estimate(const search_question *question, const ty_plan *plan,
                            const ty_program *program, ty_step_summary *out,
                            ty_error *error) TY_MUST_CHECK;
void ty_draft_clear(draft *d);

/**
 * Adds the buckets of a stage without tied ones, by ty_buckets_choose; `is_done` is false, and none
 * are added, if frozen weights are in between. The plan has room for one bucket per layer.
 */
ty_status ty_stage_buckets_choose(ty_plan *plan, uint32_t stage, ty_network_cache *networks,
                                  const ty_compression *compression, bool *is_done,
                                  ty_error *error) TY_MUST_CHECK;

/** Likewise: buckets of gradients that are ready in one cycle of the options, closed at `enough`
 * bytes. */
ty_status ty_stage_buckets_by_cycle(ty_plan *plan, uint32_t stage, ty_network_cache *networks,
                                    const ty_compression *compression, double cycle_s,
                                    uint64_t enough, bool *is_done, ty_error *error) TY_MUST_CHECK;

/**
 * Moves embeddings into buckets of their own as rows (TY_COMPRESSION_ROWS): those for which this
 * bucket and the rest of the old one are reduced sooner, by their costs alone; or all that can be,
 * if the options fix it. The plan has room for one bucket per layer.
 */
ty_status ty_choose_rows(ty_plan *plan, ty_network_cache *networks, const ty_pins *pins,
                         ty_error *error) TY_MUST_CHECK;
/** exchange_order.c: sets the order of collectives that the options request, if the plan may have
 * one; all else is complete. */
ty_status ty_choose_exchange_order(const search_question *question, ty_plan *plan,
                                   ty_error *error) TY_MUST_CHECK;
/** Whether a bucket of the plan is sent as rows. */
bool ty_has_rows(const ty_plan *plan);

/** "1f1b 2 stages, replicas 2+1" / with details "..., 8 x 16, 25 MiB buckets, fp16". */
ty_status ty_candidate_name(const search_question *question, const candidate *c, bool with_details,
                            char **out, ty_error *error) TY_MUST_CHECK;
/** candidate_pins.c: "pp=2,dp=4,...", with which the search has only this candidate. */
ty_status ty_candidate_fix(const search_question *question, const candidate *c, char **out,
                           ty_error *error) TY_MUST_CHECK;

/* ---- The answer -------------------------------------------------------------------------- */

/** The first of `list`, which is in its final order, as a plan with the other candidates. */
ty_status ty_answer_make(const search_question *question, const candidate_list *list, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;
/** Nothing fits: TY_EINFEASIBLE with the candidate that misses least, and suggestions. */
ty_status ty_answer_refuse(const search_question *question, const candidate_list *list,
                           ty_error *error) TY_MUST_CHECK;
/** The best known step time of a candidate in seconds. */
double ty_candidate_time_s(const candidate *c);

/** Frees the texts of an answer's candidate. */
static inline void candidate_clear(ty_candidate *c)
{
    ty_free(c->name);
    ty_free(c->reason);
    ty_free(c->fix);
}

#endif
