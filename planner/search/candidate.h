/**
 * @file candidate.h
 * One point of the plan space, before it is a plan. Internal to planner/.
 *
 *   question.c        what was asked, checked
 *   default_stack.c   the software that is taken for granted
 *   plan_stack.c      another one for a plan
 *   cut_positions.c   where stages may begin
 *   device_sets.c     which devices may stay idle
 *   candidates.c      which points of the space are worth a look
 *   dimensions.c      what else is divided, where that is needed
 *   layout/            equal stages of networks of blocks, all of them
 *   divisions.c       ways to cut the layers into stages
 *   bucket_choice.c   which gradients share a bucket
 *   row_choice.c      which embeddings' gradients travel as rows
 *   quick_estimate.c  a first figure for each, in microseconds
 *   candidate_plan.c  from a candidate to a plan, its program and its costs
 *   search.c          which of them are estimated and simulated
 *   actor_choice.c    how many devices only play, where something is played
 *   answer.c          the best as a plan, the others' fates
 *   fix.c             what asks for a candidate, in words
 */
#ifndef TY_PLANNER_CANDIDATE_H
#define TY_PLANNER_CANDIDATE_H

#include "network_cache.h"
#include "ty_planner.h"

#define TY_MAX_STAGES 256

static inline ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory");
}

/* ---- The question ------------------------------------------------------------------------ */

/** Devices that plans may use; the others are idle. */
typedef struct device_set {
    uint32_t count;
    uint32_t *devices; /* [count] of the cluster, ascending */
    bool is_spare;     /* looked at where all devices gave no plan */
    bool is_part;      /* of one host */
    char *name;        /* as `--fix devices=` has them, "" for all; NULL until fix.c made it */
} device_set;

/** What a search was asked, with everything that does not change between candidates. */
typedef struct search_question {
    const ty_workload *workload;
    const ty_cluster *cluster;
    const ty_profile *profile;
    const ty_plan_options *options;
    const ty_stack *stack; /* of the options, or the question's own */
    uint32_t recomputes;   /* what that has for the workload: ty_stack_recomputes */
    bool is_fp16;          /* ty_trains_in_fp16 */
    ty_stack *own_stack;   /* the usual one, where the options name none; else NULL */
    uint32_t global_batch;
    device_set *sets; /* [set_count] by device_sets.c; the first is the largest */
    uint32_t set_count;
    /* In hand, and below: what its devices allow. */
    const device_set *set;
    uint32_t *servers;             /* [options->servers] devices of servers, in no set */
    uint32_t device_count;         /* of the set */
    ty_plan_dimensions dimensions; /* in hand: of the candidates that are enumerated */
    uint32_t stage_replica_count;  /* with them: devices / ranks */
    uint64_t largest_memory_bytes; /* that a plan may take of any device of the set */
    bool has_equal_memory;         /* all devices have that */
    bool is_short_of_memory;       /* the usual micro-batches do not fit: look at smaller ones */
    uint32_t most_virtual_stages;  /* stages a position of layouts; 0: any */
    bool ignore_memory;            /* nothing fits: look for what misses least */
    /* Why nothing can be enumerated with the dimensions that are asked for, others left undivided;
     * status TY_OK: it can. Layouts may divide them. */
    ty_error refusal;
    uint32_t fixed_stages;           /* by the options; 0: searched */
    uint32_t fixed_micro_batch_size; /* by the options; 0: searched */
    bool has_fixed_replicas;
    uint32_t fixed_replicas[TY_MAX_STAGES]; /* [fixed_stages] */
    bool has_fixed_layers;                  /* stages begin at all cuts, and nowhere else */
    uint32_t *all_cuts;                     /* [all_cut_count] */
    uint32_t all_cut_count;
    uint32_t *cuts; /* [cut_count] those that stages may begin at; room for all */
    uint32_t cut_count;
    ty_digest workload_digest;
    ty_network_cache *networks; /* of the cluster */
} search_question;

/**
 * Borrows everything it is given; ty_search_question_clear frees what it adds.
 * @return TY_EINVAL for a question without sense, with the nearest one that has some
 */
ty_status ty_search_question_make(const ty_workload *workload, const ty_cluster *cluster,
                                  const ty_profile *profile, const ty_plan_options *options,
                                  search_question *question, ty_error *error) TY_MUST_CHECK;
void ty_search_question_clear(search_question *question);
/** Takes another set in hand, and the question stands anew: `refusal` says whether it can be asked
 * of it. @return TY_EINVAL where `refusal` is final: layouts cannot divide it either */
ty_status ty_search_question_use(search_question *question, const device_set *set,
                                 ty_error *error) TY_MUST_CHECK;
/**
 * device_sets.c: which devices plans may leave idle. All of the cluster first, or as many as
 * `devices` fixes. If plans may leave some idle, whole hosts of one kind follow, the first of them,
 * in numbers that divide well, many before few. Parts of one host come last.
 * @param servers [options->servers] whose devices, and hosts where there are several, do not train
 * @param sets [out] free with ty_device_sets_free
 */
ty_status ty_device_sets_propose(const ty_cluster *cluster, const ty_plan_options *options,
                                 const uint32_t *servers, uint32_t global_batch, device_set **sets,
                                 uint32_t *count, ty_error *error) TY_MUST_CHECK;
/** Where servers of their own are: see ty_plan_options. @param devices [out] [wanted] */
ty_status ty_server_devices(const ty_cluster *cluster, uint32_t wanted, uint32_t *devices,
                            ty_error *error) TY_MUST_CHECK;
/** Where an actor is, of fewer than the cluster's devices. */
uint32_t ty_actor_device(const ty_cluster *cluster, const ty_plan_options *options, uint32_t actor);
void ty_device_sets_free(device_set *sets, uint32_t count);
/** Seconds that no step on a set is below: its products at the devices' peaks. */
double ty_device_set_bound_s(const search_question *question, const device_set *set);

/** default_stack.c: what is asked for, as a stack is asked whether it can run it. */
ty_stack_use ty_stack_use_of(const ty_workload *workload, const ty_plan_options *options);
/** Ranks of a rank by dimensions. */
uint32_t ty_dimensions_width(const ty_plan_dimensions *dimensions);
/** Whether a stage exchanges gradients: among its replicas, or ranks that have the same weights. */
bool ty_dimensions_exchange(const ty_plan_dimensions *dimensions, uint32_t replicas);
uint32_t ty_dimensions_sequence_parts(const ty_plan_dimensions *dimensions);
/** What counts as 1 is 0, so that equal ones are equal. */
void ty_dimensions_normalize(ty_plan_dimensions *dimensions);
bool ty_dimensions_equal(const ty_plan_dimensions *a, const ty_plan_dimensions *b);
/** A plan of which only the dimensions and the workload are there, for what ty_plan.h says of
 * ranks. */
ty_plan ty_plan_of_dimensions(const search_question *question, uint32_t micro_batch_size);
/** Takes dimensions in hand; TY_EINVAL where the workload or the cluster does not allow them. */
ty_status ty_search_question_divide(search_question *question, const ty_plan_dimensions *dimensions,
                                    ty_error *error) TY_MUST_CHECK;
/**
 * Chooses `cuts` among all. Searching costs the square of the cuts, and a deep network of equal
 * blocks has far more than stages: those nearest to an equal division of its flop stay, at least
 * `least` of them where there are so many. Where one tensor crosses goes before all others, which
 * are looked at only where those are no more than half of what is searched: a ResNet of 50 layers
 * has enough, and would take twice as long.
 */
void ty_search_question_thin(search_question *question, uint32_t least);
/**
 * Where stages may begin: all cuts that one tensor crosses, and inside a piece between two of them
 * one position between each two heavy layers; all positions there are, if these are not `least`.
 * @param cuts [out] ascending; the caller's
 */
ty_status ty_cut_positions(const ty_workload *workload, uint32_t least, uint32_t **cuts,
                           uint32_t *count, ty_error *error) TY_MUST_CHECK;
/** The compressor of a kind as the options have it: fixed, or with the parameters to propose. */
ty_compression ty_proposed_compression(const ty_plan_options *options, ty_compression_kind kind);
/** Whether the stack has a compressor, and uses it by itself or was asked to. */
bool ty_may_compress(const search_question *question, ty_compression_kind kind);
/** Whether buckets that would lose by a compressor travel as they are. */
bool ty_chooses_compressed(const ty_plan_options *options);
/** Whether embeddings may travel as rows; and whether all that can are asked to. */
bool ty_may_have_rows(const ty_plan_options *options);
bool ty_asks_for_rows(const ty_plan_options *options);
/** TY_OK, or TY_EINVAL with the reason why no layer of the workload can travel as rows. */
ty_status ty_rows_possible(const search_question *question, ty_error *error) TY_MUST_CHECK;
/** Whether replicas of these dimensions can send rows, if the question asks for them. */
bool ty_may_send_rows(const search_question *question, const ty_plan_dimensions *d);
/** Whether buckets can be fitted with the dimensions in hand; else TY_EINVAL with the reason. */
ty_status ty_can_fit_buckets(const search_question *question, const ty_plan_dimensions *dimensions,
                             ty_error *error) TY_MUST_CHECK;
bool ty_search_must_stop(const search_question *question);

/** ty_plan_search of one number of actors, the options'. */
ty_status ty_plan_search_once(const ty_workload *workload, const ty_cluster *cluster,
                              const ty_profile *profile, const ty_plan_options *options,
                              ty_plan **out, ty_error *error) TY_MUST_CHECK;

/* ---- Candidates -------------------------------------------------------------------------- */

/** Buckets that a stage may have where they are searched, by its level of ZeRO: with more, latency
 * eats what overlap gains. Of weights that are gathered bucket by bucket there may be more, since
 * what is whole at a time takes memory. */
static inline uint64_t ty_most_buckets(uint32_t zero)
{
    return zero < 3 ? 64 : 1024;
}

/** Where the layers are cut and how many replicas each stage has. */
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

/** Numbers of a list such as "2,1": one more than there are commas. */
static inline uint32_t count_listed(const char *list)
{
    uint32_t count = 1;

    for (; *list != '\0'; list++)
        count += *list == ',';
    return count;
}

/** A dimension, of which 0 counts as 1. */
static inline uint32_t at_least_one(uint32_t value)
{
    return value > 1 ? value : 1;
}

typedef struct candidate {
    const device_set *set; /* the question's; NULL: the first of them */
    const division *division;
    ty_plan_dimensions dimensions;
    uint32_t micro_batches;
    ty_schedule schedule;
    uint64_t bucket_bytes;   /* UINT64_MAX: one bucket a stage */
    bool has_fitted_buckets; /* instead of bytes: chosen one by one for the earliest end */
    ty_compression compression;
    bool has_dense_embeddings; /* none of them as rows, to compare with, or for want of memory */
    /* Candidates with equal schedule, stage count and replicas are one strategy; they differ in
     * micro-batches, buckets and compression. */
    uint32_t strategy; /* below the list's strategy_count */
    double quick_s;    /* of a step, by quick_estimate.c */

    /* What became of it. */
    bool is_judged;                       /* its memory is known */
    bool has_rows;                        /* an embedding travels as rows */
    ty_step_summary estimate, simulation; /* step_time_s 0: it was not estimated, not simulated */
    double expected_s;                    /* the step where there is no estimate */
    uint64_t peak_memory_bytes;
    uint64_t missing_bytes; /* > 0: does not fit a device, by that much */
    uint32_t missing_stage;
    bool is_best_of_strategy;
    bool is_alternative;    /* estimated for the reader alone: it is slower than the choice */
    bool has_no_simulation; /* tried, in vain: its estimate is what there is */
    bool is_preferred; /* the simplest of those that are as fast but for the options' tolerance */
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

/** Adds all candidates worth a look that have the dimensions in hand, with quick estimates, in no
 * order. `list` is empty (all 0) or was filled before. */
ty_status ty_candidates_enumerate(const search_question *question, candidate_list *list,
                                  ty_error *error) TY_MUST_CHECK;
void ty_candidates_clear(candidate_list *list);
/** All but the divisions. */
void ty_candidates_drop(candidate_list *list);
/** The strategy of a candidate, new in the list or not. */
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

/** "26+24": the layers of each stage, as `layers` of --fix has them. */
void ty_division_layers(const search_question *question, const division *d, ty_text *out);

#define TY_MOST_DIMENSIONS 80
/** dimensions.c: ranks that are looked at beside everything else, where layouts (below) say
 * nothing: on devices that share a host's cores, whole and along the sequence. At most
 * TY_MOST_DIMENSIONS.
 * @return how many */
uint32_t ty_dimensions_of_tensor_parallel(const search_question *question,
                                          ty_plan_dimensions out[TY_MOST_DIMENSIONS]);
/** dimensions.c: expert-parallel ranks that divide the tables of embedding bags, in all ways,
 * likewise beside everything else; with what else is asked for. At most TY_MOST_DIMENSIONS. @return
 * how many
 */
uint32_t ty_dimensions_of_tables(const search_question *question,
                                 ty_plan_dimensions out[TY_MOST_DIMENSIONS]);
/** dimensions.c: the same on accelerators, for networks that one does not hold: tensor-parallel
 * ranks within a host, expert-parallel ranks, and both, with what is recomputed for them; optimizer
 * states are sharded where the stack can. What is pinned is as it is asked for. At most
 * TY_MOST_DIMENSIONS, those that recompute least first. @return how many */
uint32_t ty_dimensions_of_accelerators(const search_question *question,
                                       ty_plan_dimensions out[TY_MOST_DIMENSIONS]);
/** dimensions.c: what is tried where nothing fits without, the cheapest first. At most
 * TY_MOST_DIMENSIONS. @return how many */
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
ty_status ty_draft_make(const search_question *question, const candidate *c, draft *out,
                        ty_error *error) TY_MUST_CHECK;
/** The plan with its memory alone: what shows whether a candidate fits, for a part of the work. */
/** Counts the memory of a plan's stages anew; there is room for it. */
ty_status ty_plan_count_memory(ty_plan *plan, ty_error *error) TY_MUST_CHECK;
ty_status ty_draft_plan(const search_question *question, const candidate *c, draft *out,
                        ty_error *error) TY_MUST_CHECK;
/** Adds the program. */
ty_status ty_draft_lower(draft *d, ty_error *error) TY_MUST_CHECK;
/** What a draft's step takes by the estimator, or that of a plan that differs from it in what it
 * borrows. */
ty_status ty_draft_estimate(const search_question *question, const ty_plan *plan,
                            const ty_program *program, ty_step_summary *out,
                            ty_error *error) TY_MUST_CHECK;
void ty_draft_clear(draft *d);

/**
 * Adds the buckets of a stage without tied ones, by ty_buckets_choose; `is_done` is false, and none
 * are added, where frozen weights lie between. Room for one a layer is there.
 */
ty_status ty_stage_buckets_choose(ty_plan *plan, uint32_t stage, ty_network_cache *networks,
                                  const ty_compression *compression, bool *is_done,
                                  ty_error *error) TY_MUST_CHECK;

/** Likewise: buckets of what is ready in one beat of the options' cycle, closed once they have
 * `enough` bytes. */
ty_status ty_stage_buckets_by_cycle(ty_plan *plan, uint32_t stage, ty_network_cache *networks,
                                    const ty_compression *compression, double cycle_s,
                                    uint64_t enough, bool *is_done, ty_error *error) TY_MUST_CHECK;

/**
 * Puts every embedding into a bucket of its own as rows (TY_COMPRESSION_ROWS) whose bucket, and
 * what is left of it, are exchanged sooner that way by what the costs say of them alone; all that
 * can be, where the options fix it. Room for one bucket a layer is there.
 */
ty_status ty_choose_rows(ty_plan *plan, ty_network_cache *networks, const ty_plan_options *options,
                         ty_error *error) TY_MUST_CHECK;
/** exchange_order.c: gives a plan that is complete but for it the order of exchanges that the
 * options ask for, where it may have one. */
ty_status ty_choose_exchange_order(const search_question *question, ty_plan *plan,
                                   ty_error *error) TY_MUST_CHECK;
/** Whether a bucket of the plan travels as rows. */
bool ty_has_rows(const ty_plan *plan);

/** "1f1b 2 stages, replicas 2+1" / with details "..., 8 x 16, 25 MiB buckets, fp16". */
ty_status ty_candidate_name(const search_question *question, const candidate *c, bool with_details,
                            char **out, ty_error *error) TY_MUST_CHECK;
/** fix.c: "pp=2,dp=4,...", with which the search has this candidate and no other. */
ty_status ty_candidate_fix(const search_question *question, const candidate *c, char **out,
                           ty_error *error) TY_MUST_CHECK;

/* ---- The answer -------------------------------------------------------------------------- */

/** The first of `list`, which is in its final order, as a plan with the fates of the others. */
ty_status ty_answer_make(const search_question *question, const candidate_list *list, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;
/** Nothing fits: TY_EINFEASIBLE with the candidate that misses least, and what would help. */
ty_status ty_answer_refuse(const search_question *question, const candidate_list *list,
                           ty_error *error) TY_MUST_CHECK;
/** Seconds of a candidate's step, as well as they are known. */
double ty_candidate_time_s(const candidate *c);

/** Frees what a candidate of an answer holds. */
static inline void candidate_clear(ty_candidate *c)
{
    ty_free(c->name);
    ty_free(c->reason);
    ty_free(c->fix);
}

#endif
