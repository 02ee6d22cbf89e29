/* Presets: each system's choices as restrictions of the search. */
#include "candidate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define ONE(member) (1u << (member)) /* as a set */

/* How a system parallelizes the model. */
typedef enum division_rule {
    WHOLE,        /* data parallel: every device has all layers */
    PIPELINES,    /* two or more stages, all with equal replicas */
    ANY_DIVISION, /* any stages, any replicas, also one stage */
    LAYOUTS       /* equal stages of blocks */
} division_rule;

/* A system's defaults, and its other values on explicit request. Values in none of the sets are
 * rejected. */
typedef struct preset {
    ty_system system;
    division_rule division;
    /* ---- Buckets. Other sizes than its own are rejected with the text `only_buckets`; NULL: any
     * size. */
    uint64_t bucket_bytes[3]; /* to choose from; 0: searched */
    const char *only_buckets;
    double cycles_s[4]; /* to choose from if the stack has a cycle; 0: none */
    /* ---- Algorithms. */
    int algorithms[2];     /* ty_algorithm to choose from, or -1: chosen for each bucket */
    uint32_t can_exchange; /* set of ty_algorithm that may be requested */
    /* ---- Plans. All of `compressions`, `zero_levels` and `recomputes` are tried only if the field
     * below says so. */
    ty_stack_plans plans;
    bool has_servers; /* may be dedicated hosts */
    int compression;  /* ty_compression_kind, or -1: proposed if it pays */
    ty_recompute recompute;
} preset;

/* Algorithms of NCCL and MPI. */
#define LIBRARY (ONE(TY_AUTOMATIC) | ONE(TY_RING) | ONE(TY_TREE))
#define BY_LIBRARY .algorithms = {-1, -1}, .can_exchange = LIBRARY
/* No compression, no recomputation, no sharding. */
#define PLAIN                                                                                      \
    .compressions = ONE(TY_COMPRESSION_NONE), .recomputes = ONE(TY_RECOMPUTE_NONE),                \
    .zero_levels = ONE(0)
/* Frameworks whose users choose the recomputation. */
#define ANY_RECOMPUTE ((1u << TY_RECOMPUTE_COUNT) - 1)

/* Sources of defaults: docs/guides/compare-systems.md. */
static const preset presets[] = {
    {{"baidu-ring", "rings, one all-reduce a layer",
      "baidu-allreduce, 2017: tensors are not fused"},
     .bucket_bytes = {1},
     .only_buckets = "exchanges every layer by itself",
     .algorithms = {TY_RING, -1},
     .can_exchange = ONE(TY_RING),
     .plans = {PLAIN}},
    {{"parameter-server", "gradients to servers beside the workers, layer by layer",
      "Abadi et al., TensorFlow, OSDI 2016, section 3.3"},
     .bucket_bytes = {1},
     .only_buckets = "pushes every layer by itself",
     .algorithms = {TY_PARAMETER_SERVER, -1},
     .can_exchange = ONE(TY_PARAMETER_SERVER),
     .plans = {PLAIN, .late_gradients = true},
     .has_servers = true},
    {{"tensorflow-on-spark", "Spark executors as workers and servers; 4 MiB parts",
      "TensorFlowOnSpark, 2017: TensorFlow's parameter servers on Spark's executors"},
     .bucket_bytes = {4 * MIB},
     .algorithms = {TY_PARAMETER_SERVER, -1},
     .can_exchange = ONE(TY_PARAMETER_SERVER),
     .plans = {PLAIN, .late_gradients = true},
     .has_servers = true},
    {{"bigdl", "block manager: each task sums its slice, after the whole backward; fp16",
      "Dai et al., BigDL, arXiv:1804.05839, section 3.3"},
     .bucket_bytes = {UINT64_MAX},
     .only_buckets = "exchanges all gradients at once, behind the whole backward",
     .algorithms = {TY_BLOCK_MANAGER, -1},
     .can_exchange = ONE(TY_BLOCK_MANAGER),
     .plans = {.compressions = ONE(TY_COMPRESSION_FP16),
               .recomputes = ONE(TY_RECOMPUTE_NONE),
               .zero_levels = ONE(0)},
     .compression = TY_COMPRESSION_FP16},
    {{"horovod", "fused all-reduces, flat or hierarchical, threshold tuned",
      "Sergeev and Del Balso, arXiv:1802.05799; fusion threshold 128 MiB, autotuner up to 64 MiB"},
     .bucket_bytes = {128 * MIB, 64 * MIB, 16 * MIB},
     .cycles_s = {0.001, 0.0025, 0.005, 0.01},
     .algorithms = {-1, TY_HIERARCHICAL},
     .can_exchange = LIBRARY | ONE(TY_HIERARCHICAL),
     .plans = {.compressions = ONE(TY_COMPRESSION_NONE) | ONE(TY_COMPRESSION_FP16),
               .recomputes = ANY_RECOMPUTE,
               .zero_levels = ONE(0)}},
    {{"ddp", "buckets of 25 MiB overlapped with backward, as PyTorch and Azure ML",
      "Li et al., PyTorch Distributed, VLDB 2020: bucket_cap_mb 25"},
     .bucket_bytes = {25 * MIB},
     BY_LIBRARY,
     .plans = {.compressions = ONE(TY_COMPRESSION_NONE) | ONE(TY_COMPRESSION_FP16) |
                               ONE(TY_COMPRESSION_BF16) | ONE(TY_COMPRESSION_POWERSGD),
               .recomputes = ANY_RECOMPUTE,
               .zero_levels = ONE(0)}},
    {{"moxing", "buckets merged and split, hierarchical where it pays, fp16",
      "ModelArts' DAWNBench entries, 2018-2019: fused, hierarchical, fp16 gradients"},
     .algorithms = {-1, TY_HIERARCHICAL},
     .can_exchange = LIBRARY | ONE(TY_HIERARCHICAL),
     .plans = {.compressions =
                   ONE(TY_COMPRESSION_NONE) | ONE(TY_COMPRESSION_ROWS) | ONE(TY_COMPRESSION_FP16),
               .recomputes = ONE(TY_RECOMPUTE_NONE),
               .zero_levels = ONE(0),
               .priority = true},
     .compression = -1},
    {{"gpipe", "pipelines with recomputing, all forwards before all backwards",
      "Huang et al., GPipe, NeurIPS 2019, section 2"},
     PIPELINES,
     BY_LIBRARY,
     .plans = {.schedules = ONE(TY_GPIPE),
               .compressions = ONE(TY_COMPRESSION_NONE),
               .recomputes = ONE(TY_RECOMPUTE_NONE) | ONE(TY_RECOMPUTE_FULL),
               .zero_levels = ONE(0)},
     .recompute = TY_RECOMPUTE_FULL},
    {{"pipedream", "asynchronous 1F1B, replicated stages, stashed weights",
      "Narayanan et al., PipeDream, SOSP 2019"},
     ANY_DIVISION,
     BY_LIBRARY,
     .plans = {.schedules = ONE(TY_PIPEDREAM), PLAIN, .uneven_stages = true}},
    {{"pipedream-2bw", "asynchronous 1F1B with two versions of the weights",
      "Narayanan et al., PipeDream-2BW, ICML 2021"},
     PIPELINES,
     BY_LIBRARY,
     .plans = {.schedules = ONE(TY_PIPEDREAM_2BW),
               .compressions = ONE(TY_COMPRESSION_NONE),
               .recomputes = ONE(TY_RECOMPUTE_NONE) | ONE(TY_RECOMPUTE_FULL),
               .zero_levels = ONE(0)}},
    {{"megatron", "tensor, sequence, pipeline and data parallel, interleaved",
      "Narayanan et al., SC 2021; Korthikanti et al., 2022"},
     LAYOUTS,
     BY_LIBRARY,
     .plans = {.schedules = ONE(TY_ONE_F_ONE_B) | ONE(TY_INTERLEAVED),
               .compressions = ONE(TY_COMPRESSION_NONE),
               .recomputes =
                   ONE(TY_RECOMPUTE_NONE) | ONE(TY_RECOMPUTE_SELECTIVE) | ONE(TY_RECOMPUTE_FULL),
               .zero_levels = ONE(0) | ONE(1),
               .parallelism =
                   ONE(TY_TENSOR_PARALLEL) | ONE(TY_CONTEXT_PARALLEL) | ONE(TY_EXPERT_PARALLEL)}},
    {{"zero", "data parallel with optimizer state, gradients or weights sharded",
      "Rajbhandari et al., ZeRO, SC 2020"},
     BY_LIBRARY,
     .plans = {.compressions =
                   ONE(TY_COMPRESSION_NONE) | ONE(TY_COMPRESSION_FP16) | ONE(TY_COMPRESSION_BF16),
               .recomputes = ANY_RECOMPUTE,
               .zero_levels = ONE(1) | ONE(2) | ONE(3)}},
};
enum { PRESET_COUNT = sizeof presets / sizeof presets[0] };

const ty_system *ty_system_at(uint32_t index)
{
    return index < PRESET_COUNT ? &presets[index].system : NULL;
}

const ty_system *ty_system_find(const char *name)
{
    for (uint32_t i = 0; i < PRESET_COUNT; i++)
        if (strcmp(presets[i].system.name, name) == 0)
            return &presets[i].system;
    return NULL;
}

/* ---- Requested options -------------------------------------------------------------------- */

/* Number of stages that any option fixes; 0: open. */
static uint32_t stages_asked(const ty_pins *o, const ty_stack_use *use, uint32_t devices)
{
    const uint32_t ranks = ty_dimensions_width(&o->dimensions);

    if (use->stages > 0 || !ty_is_pinned(o, TY_AXIS(DP)) || ty_is_pinned(o, TY_AXIS(REPLICAS)))
        return use->stages;
    return devices / ranks / o->data_parallel;
}

static ty_status check_algorithm(const preset *p, ty_algorithm asked, ty_error *error)
{
    ty_text known = {0};
    ty_status status;

    if (ty_stack_has(p->can_exchange, (int)asked))
        return TY_OK;
    for (int a = 0; a < TY_ALGORITHM_COUNT; a++)
        if (ty_stack_has(p->can_exchange, a))
            ty_text_addf(&known, "%s%s", known.length > 0 ? ", " : "",
                         ty_algorithm_name((ty_algorithm)a));
    status =
        ty_fail(error, TY_EINFEASIBLE, "%s: found algorithm %s, but it exchanges by %s",
                p->system.name, ty_algorithm_name(asked), known.data != NULL ? known.data : "none");
    ty_text_clear(&known);
    return status;
}

static bool has_lossy(const preset *p)
{
    for (int k = 0; k < TY_COMPRESSION_COUNT; k++) {
        const ty_compression c = {.kind = (ty_compression_kind)k};
        if (ty_stack_has(p->plans.compressions, k) && ty_compression_is_lossy(&c))
            return true;
    }
    return false;
}

/* Schedules of one stage: micro-batches whose gradients are accumulated. */
#define SCHEDULES_OF_ONE_STAGE (ONE(TY_GPIPE) | ONE(TY_ONE_F_ONE_B))

static ty_status check_division(const preset *p, const ty_pins *o, const ty_stack_use *use,
                                uint32_t devices, ty_error *error)
{
    const char *name = p->system.name;
    const uint32_t stages = stages_asked(o, use, devices);

    if (o->dimensions.virtual_stages > 1 && !ty_stack_has(p->plans.schedules, TY_INTERLEAVED))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has one run of layers on each device; found vpp %u", name,
                       o->dimensions.virtual_stages);
    if (p->division == WHOLE && stages > 1)
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has the whole network on each of the %u devices; found %u stages", name,
                       devices, stages);
    if (p->division == PIPELINES && stages == 1)
        return ty_fail(error, TY_EINFEASIBLE, "%s has two stages and more; found 1", name);
    if (p->division == WHOLE && ty_is_pinned(o, TY_AXIS(SCHEDULE)) &&
        !ty_stack_has(SCHEDULES_OF_ONE_STAGE, (int)o->schedule))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has no pipelines: gpipe or 1f1b sum the gradients of its micro-batches; "
                       "found schedule %s",
                       name, ty_schedule_name(o->schedule));
    if (o->dimensions.sequence_parallel && (p->plans.parallelism & ONE(TY_TENSOR_PARALLEL)) == 0)
        return ty_fail(error, TY_EINFEASIBLE, "%s has no sequence parallelism", name);
    return TY_OK;
}

/* Whether the system has all requested options. */
static ty_status check_asked(const preset *p, const ty_workload *workload, const ty_pins *o,
                             bool allow_lossy, uint32_t devices, ty_error *error)
{
    const char *name = p->system.name;
    ty_stack_use use = ty_stack_use_of(workload, o);
    ty_error detail = {0};
    ty_status status = check_division(p, o, &use, devices, error);

    if (status != TY_OK)
        return status;
    if (p->division != WHOLE && ty_is_pinned(o, TY_AXIS(SCHEDULE)) && use.stages < 2)
        use.stages = 2; /* a schedule applies to pipelines, also to those of one stage */
    if (ty_stack_plans_check(name, &p->plans, &use, &detail) != TY_OK)
        return ty_fail(error, TY_EINFEASIBLE, "%s", detail.message);
    if (ty_is_pinned(o, TY_AXIS(ALGORITHM)) &&
        (status = check_algorithm(p, o->algorithm, error)) != TY_OK)
        return status;
    if (ty_is_pinned(o, TY_AXIS(BUCKET)) && p->only_buckets != NULL && !o->fit_buckets &&
        o->bucket_bytes != p->bucket_bytes[0])
        return ty_fail(error, TY_EINFEASIBLE, "%s %s; found buckets of %llu bytes", name,
                       p->only_buckets, (unsigned long long)o->bucket_bytes);
    if (o->fit_buckets && (p->bucket_bytes[0] > 0 || !ty_stack_has(p->plans.zero_levels, 0)))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s closes buckets by their bytes; found fitted buckets", name);
    if (o->compress == TY_COMPRESS_SHORTER && p->compression >= 0)
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s compresses all buckets or none; found compress shorter", name);
    if (o->embeddings == TY_EMBEDDINGS_SHORTER &&
        !ty_stack_has(p->plans.compressions, TY_COMPRESSION_ROWS))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s sends no embeddings as rows; found embeddings shorter", name);
    if (ty_is_pinned(o, TY_AXIS(LAYERS)) && p->division == LAYOUTS)
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s divides blocks equally; found layers of each stage", name);
    if (ty_is_pinned(o, TY_AXIS(CYCLE)) && !(p->cycles_s[0] > 0))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s exchanges what is ready and has no cycle; found one of %g s", name,
                       o->cycle_s);
    if (!p->has_servers && o->servers > 0)
        return ty_fail(error, TY_EINFEASIBLE, "%s has no servers of gradients; found %u", name,
                       o->servers);
    if (!p->has_servers && ty_is_pinned(o, TY_AXIS(SHARD)))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has no servers of gradients; found them divided by %s", name,
                       ty_server_shard_name(o->shard));
    if (o->actors > 0 || o->lag > 0)
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has no actors; found %u, with a lag of %u: leave --system out", name,
                       o->actors, o->lag);
    if (o->dimensions.table_shard != TY_TABLES_WHOLE)
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has all tables on each device; found them divided by %s", name,
                       ty_table_shard_name(o->dimensions.table_shard));
    if (allow_lossy && !has_lossy(p))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has no compressor that changes convergence; found lossy ones allowed",
                       name);
    return TY_OK;
}

/* ---- Choices ------------------------------------------------------------------------------ */

/* The choices of a system, tried one after another; the best so far. */
typedef struct trial {
    const preset *preset;
    const ty_workload *workload;
    const ty_cluster *cluster;
    const ty_profile *profile;
    const ty_stack *stack; /* of the answer */
    ty_stack *narrowed;    /* of the options: only plans of the system */
    uint32_t devices;
    ty_plan *best;
    ty_candidate *made; /* [made_count] the best of each choice, by time; chosen ones too */
    uint32_t made_count, made_room;
    ty_error refusal; /* of the choice that came closest; status TY_OK: none was refused */
} trial;

static void trial_clear(trial *t)
{
    ty_plan_free(t->best);
    for (uint32_t i = 0; i < t->made_count; i++)
        candidate_clear(&t->made[i]);
    ty_free(t->made);
}

/* Inserts the best of a choice among those of the others; its fix also names fields that the search
 * does not choose. */
static ty_status remember(trial *t, const ty_plan_options *options, const ty_plan *plan,
                          ty_error *error)
{
    const ty_step_summary *s = ty_plan_summary(plan);
    ty_candidate made = plan->candidates[0];
    const char *fix = made.fix;
    ty_text name = {0};
    uint32_t at = t->made_count;

    if (t->made_count == t->made_room) {
        const uint32_t room = t->made_room > 0 ? 2 * t->made_room : 16;
        ty_candidate *all = ty_resize(t->made, room, sizeof *all);
        TY_TRY(ty_check_memory(all != NULL, error));
        t->made = all;
        t->made_room = room;
    }
    ty_text_add(&name, plan->candidates[0].name);
    if (ty_is_pinned(&options->pins, TY_AXIS(ALGORITHM)))
        ty_text_addf(&name, ", %s", ty_algorithm_name(options->pins.algorithm));
    TY_TRY(ty_text_take(&name, &made.name, error));
    made.reason = ty_strdup(s->limited_by);
    made.fix = ty_strdup(fix);
    if (made.reason == NULL || made.fix == NULL) {
        candidate_clear(&made);
        return out_of_memory(error);
    }
    for (; at > 0 && ty_candidate_step_s(&t->made[at - 1]) > ty_candidate_step_s(&made); at--)
        t->made[at] = t->made[at - 1];
    t->made[at] = made;
    t->made_count++;
    return TY_OK;
}

static ty_status try_choice(trial *t, const ty_plan_options *options, ty_error *error)
{
    const ty_stack_use use = ty_stack_use_of(t->workload, &options->pins);
    ty_plan *plan = NULL;
    ty_error detail = {0};
    ty_status status = ty_stack_check(t->stack, &use, &detail);

    if (status == TY_OK)
        status = ty_plan_search(t->workload, t->cluster, t->profile, options, &plan, &detail);
    if (status == TY_ENOMEM || status == TY_EINTERRUPTED)
        return ty_fail(error, status, "%s", detail.message);
    if (status != TY_OK) {
        /* An error about a missing resource is more useful than one about an invalid option. */
        if (t->refusal.status == TY_OK ||
            (status == TY_EINFEASIBLE && t->refusal.status != TY_EINFEASIBLE))
            t->refusal = detail;
        return TY_OK;
    }
    if ((status = remember(t, options, plan, error)) != TY_OK) {
        ty_plan_free(plan);
    } else if (t->best == NULL ||
               ty_plan_summary(plan)->step_time_s < ty_plan_summary(t->best)->step_time_s) {
        ty_plan_free(t->best);
        t->best = plan;
    } else {
        ty_plan_free(plan);
    }
    return status;
}

/* Equal pipelines: as many stages as a divisor of the devices, the deepest first. */
static ty_status try_divisions(trial *t, ty_plan_options *options, ty_error *error)
{
    const division_rule rule = t->preset->division;
    const ty_pins asked = options->pins;
    const uint32_t most = t->devices < TY_MAX_STAGES ? t->devices : TY_MAX_STAGES;
    ty_status status = TY_OK;

    if (rule == WHOLE && !ty_is_pinned(&asked, TY_AXIS(REPLICAS)))
        ty_pin(&options->pins, TY_AXIS_PP, 1);
    if (rule != PIPELINES || ty_is_pinned(&asked, TY_AXIS(PP) | TY_AXIS(REPLICAS))) {
        status = try_choice(t, options, error);
        options->pins = asked;
        return status;
    }
    for (uint32_t stages = most; status == TY_OK && stages >= 2; stages--)
        if (t->devices % stages == 0 &&
            (!ty_is_pinned(&asked, TY_AXIS(DP)) || asked.data_parallel * stages == t->devices)) {
            ty_pin(&options->pins, TY_AXIS_PP, stages);
            status = try_choice(t, options, error);
        }
    options->pins = asked;
    return status;
}

static ty_status try_zero(trial *t, ty_plan_options *options, ty_error *error)
{
    ty_status status = TY_OK;

    if (ty_is_pinned(&options->pins, TY_AXIS(ZERO)) || t->preset->division == LAYOUTS)
        return try_divisions(t, options, error);
    for (uint32_t level = 0; status == TY_OK && level <= 3; level++)
        if (ty_stack_has(t->preset->plans.zero_levels, (int)level)) {
            ty_pin(&options->pins, TY_AXIS_ZERO, level);
            status = try_divisions(t, options, error);
        }
    ty_unpin(&options->pins, TY_AXIS_ZERO);
    return status;
}

static ty_status try_buckets(trial *t, ty_plan_options *options, ty_error *error)
{
    const uint64_t *bytes = t->preset->bucket_bytes;
    ty_status status = TY_OK;

    if (ty_is_pinned(&options->pins, TY_AXIS(BUCKET)))
        return try_zero(t, options, error);
    for (size_t b = 0; status == TY_OK && b < sizeof t->preset->bucket_bytes / sizeof *bytes; b++) {
        if (b > 0 && bytes[b] == 0)
            break;
        if (bytes[b] > 0)
            ty_pin(&options->pins, TY_AXIS_BUCKET, bytes[b]);
        status = try_zero(t, options, error);
    }
    ty_unpin(&options->pins, TY_AXIS_BUCKET);
    return status;
}

static ty_status try_cycles(trial *t, ty_plan_options *options, ty_error *error)
{
    const double *cycles_s = t->preset->cycles_s;
    const ty_pins asked = options->pins;
    const bool is_asked = ty_is_pinned(&asked, TY_AXIS(CYCLE));
    ty_status status = TY_OK;

    if (!(cycles_s[0] > 0) || !(t->stack->exchange_cycle_s > 0))
        return try_buckets(t, options, error);
    for (size_t c = 0; status == TY_OK && c < sizeof t->preset->cycles_s / sizeof *cycles_s; c++) {
        if (!(cycles_s[c] > 0) || (is_asked && c > 0))
            break;
        options->pins.axes |= TY_AXIS(CYCLE);
        options->pins.cycle_s = is_asked ? asked.cycle_s : cycles_s[c];
        status = try_buckets(t, options, error);
    }
    options->pins = asked;
    return status;
}

static ty_status try_algorithms(trial *t, ty_plan_options *options, ty_error *error)
{
    const int *algorithms = t->preset->algorithms;
    ty_status status = TY_OK;

    if (ty_is_pinned(&options->pins, TY_AXIS(ALGORITHM)))
        return try_cycles(t, options, error);
    for (size_t a = 0; status == TY_OK && a < 2; a++) {
        if (a > 0 && algorithms[a] < 0)
            break;
        if (algorithms[a] >= 0)
            ty_pin(&options->pins, TY_AXIS_ALGORITHM, (uint64_t)algorithms[a]);
        status = try_cycles(t, options, error);
    }
    ty_unpin(&options->pins, TY_AXIS_ALGORITHM);
    return status;
}

/* Maximum number of server hosts to try, of `hosts`: with as many servers as workers, neither waits
 * for the other's links. */
static uint32_t next_servers(uint32_t servers)
{
    if (servers < 4)
        return servers + 1;
    return (servers & (servers - 1)) == 0 ? servers / 2 * 3 : servers / 3 * 4;
}

/* Tries dedicated servers, from one host up; co-located servers were tried before. */
static ty_status try_dedicated(trial *t, ty_plan_options *options, ty_error *error)
{
    const uint32_t hosts = ty_cluster_host_count(t->cluster);
    const uint32_t simulate_top = options->simulate_top;
    const bool may_idle = options->may_idle;
    trial scout = *t;
    uint32_t best = 0;
    double best_s = HUGE_VAL;
    ty_status status = TY_OK;

    scout.best = NULL;
    scout.made = NULL;
    scout.made_count = scout.made_room = 0;
    scout.refusal = (ty_error){0};
    options->may_idle =
        !ty_is_pinned(&options->pins, TY_AXIS(DEVICES)); /* a batch may divide by fewer only */
    options->simulate_top = 0;
    for (uint32_t n = 1; status == TY_OK && n <= hosts / 2; n = next_servers(n)) {
        ty_pin(&options->pins, TY_AXIS_SERVERS, n);
        status = try_algorithms(simulate_top > 0 ? &scout : t, options, error);
        if (status == TY_OK && scout.best != NULL &&
            ty_plan_summary(scout.best)->step_time_s < best_s) {
            best_s = ty_plan_summary(scout.best)->step_time_s;
            best = scout.best->servers.count;
        }
    }
    options->simulate_top = simulate_top;
    ty_pin(&options->pins, TY_AXIS_SERVERS, best);
    if (status == TY_OK && best > 0)
        status = try_algorithms(t, options, error);
    ty_unpin(&options->pins, TY_AXIS_SERVERS);
    options->may_idle = may_idle;
    trial_clear(&scout);
    return status;
}

/* Devices of the servers. */
static ty_status try_servers(trial *t, ty_plan_options *options, ty_error *error)
{
    ty_status status = TY_OK;

    if (!t->preset->has_servers || ty_is_pinned(&options->pins, TY_AXIS(SERVERS))) {
        const bool may_idle = options->may_idle;
        options->may_idle = may_idle || (options->pins.servers > 0 &&
                                         !ty_is_pinned(&options->pins, TY_AXIS(DEVICES)));
        status = try_algorithms(t, options, error);
        options->may_idle = may_idle;
        return status;
    }
    if (!ty_is_pinned(&options->pins, TY_AXIS(SHARD)))
        status = try_algorithms(t, options, error);
    if (status == TY_OK)
        status = try_dedicated(t, options, error);
    return status;
}

/* The system's defaults for options that are not requested. */
static void settle(const preset *p, const ty_workload *workload, ty_plan_options *o)
{
    const ty_stack_use use = ty_stack_use_of(workload, &o->pins);

    o->layouts_only = p->division == LAYOUTS;
    /* "4,4" as two stages of four replicas, for layouts, which have only equal ones. */
    if (o->layouts_only && ty_is_pinned(&o->pins, TY_AXIS(REPLICAS))) {
        ty_pin(&o->pins, TY_AXIS_PP, use.stages);
        ty_pin(&o->pins, TY_AXIS_DP, o->pins.replicas.numbers[0]);
        ty_unpin(&o->pins, TY_AXIS_REPLICAS);
    }
    if (!o->layouts_only) {
        if (!ty_is_pinned(&o->pins, TY_AXIS(RECOMPUTE))) {
            ty_pin(&o->pins, TY_AXIS_RECOMPUTE, p->recompute);
            o->pins.dimensions.recompute_blocks = p->recompute == TY_RECOMPUTE_FULL;
        }
        o->pins.axes |= TY_AXES_OF_DIMENSIONS & ~TY_AXIS(ZERO);
    }
    for (int s = 0; s < TY_SCHEDULE_COUNT; s++)
        if (!ty_is_pinned(&o->pins, TY_AXIS(SCHEDULE)) && p->plans.schedules == ONE(s))
            ty_pin(&o->pins, TY_AXIS_SCHEDULE, (uint64_t)s);
    if (!ty_is_pinned(&o->pins, TY_AXIS(COMPRESSION)) && !o->allow_lossy && p->compression >= 0) {
        o->pins.axes |= TY_AXIS(COMPRESSION);
        o->pins.compression = (ty_compression){.kind = (ty_compression_kind)p->compression};
    }
}

/* Plans of both. */
static ty_stack_plans plans_of_both(const ty_stack_plans *a, const ty_stack_plans *b)
{
    return (ty_stack_plans){
        .schedules = a->schedules & b->schedules,
        .compressions = a->compressions & b->compressions,
        .recomputes = a->recomputes & b->recomputes,
        .zero_levels = a->zero_levels & b->zero_levels,
        .parallelism = a->parallelism & b->parallelism,
        .uneven_stages = a->uneven_stages && b->uneven_stages,
        .late_gradients = a->late_gradients && b->late_gradients,
        .priority = a->priority && b->priority,
        .elementwise_of_experts = a->elementwise_of_experts || b->elementwise_of_experts,
        .whole_key_heads = a->whole_key_heads || b->whole_key_heads,
        .whole_blocks = a->whole_blocks || b->whole_blocks,
        .whole_segments = a->whole_segments || b->whole_segments,
        .experts_along_sequences = a->experts_along_sequences || b->experts_along_sequences,
        .experts_without_fp16 = a->experts_without_fp16 || b->experts_without_fp16,
        .compression_on_request = a->compression_on_request || b->compression_on_request};
}

ty_status ty_system_open_stack(const ty_system *system, const ty_workload *workload,
                               const ty_cluster *cluster, const ty_profile *profile,
                               const ty_plan_options *options, ty_stack **out, ty_error *error)
{
    const preset *p = (const preset *)system; /* its first member */
    ty_stack *usual = NULL, *worker = NULL;
    ty_text why = {0};
    ty_status status = ty_stack_open_default(workload, cluster, profile, options, &usual, error);

    if (status != TY_OK)
        return status;
    /* The default stack is used if it has all that defines the system. */
    const ty_stack_plans both = plans_of_both(&usual->plans, &p->plans);
    if (p->algorithms[0] < 0 && !p->has_servers && both.zero_levels == p->plans.zero_levels &&
        both.schedules == p->plans.schedules && both.parallelism == p->plans.parallelism &&
        both.uneven_stages == p->plans.uneven_stages &&
        ty_stack_has(both.recomputes, (int)p->recompute) &&
        (p->compression < 0 ? both.compressions == p->plans.compressions
                            : ty_stack_has(both.compressions, p->compression))) {
        *out = usual;
        return TY_OK;
    }
    TY_CHECK(ty_stack_open(TY_WORKER_STACK, &worker, error), status, done);
    if (strcmp(usual->name, worker->name) != 0) {
        ty_text_addf(&why, "%s has plans that stack %s does not", p->system.name, usual->name);
        TY_CHECK(ty_text_take(&why, &worker->why, error), status, done);
    }
    *out = worker;
    worker = NULL;
done:
    ty_text_clear(&why);
    ty_stack_free(worker);
    ty_stack_free(usual);
    return status;
}

/* ---- Planning ----------------------------------------------------------------------------- */

/* Results of the choices: the chosen one, the best of each other, then the candidates of the chosen
 * one's search. */
static ty_status describe_gain(trial *t, ty_error *error)
{
    ty_plan *plan = t->best;
    const double best_s = ty_plan_summary(plan)->step_time_s;
    const uint32_t count = t->made_count - 1 + plan->candidate_count;
    ty_candidate *all;

    if (t->made_count < 2)
        return TY_OK;
    TY_TRY(ty_check_memory((all = ty_alloc(count, sizeof *all)) != NULL, error));
    for (uint32_t i = 0; i < t->made_count; i++) {
        const double slower = (ty_candidate_step_s(&t->made[i]) / best_s - 1) * 100;
        ty_text reason = {0};
        char *text;
        ty_status status;
        if (i == 0)
            ty_text_add(&reason, "chosen");
        else if (slower >= 0.05)
            ty_text_addf(&reason, "%.*f %% slower: %s", slower < 10 ? 1 : 0, slower,
                         t->made[i].reason);
        else
            ty_text_addf(&reason, "as fast: %s", t->made[i].reason);
        if ((status = ty_text_take(&reason, &text, error)) != TY_OK) {
            ty_free(all);
            return status;
        }
        ty_free(t->made[i].reason);
        t->made[i].reason = text;
    }
    memcpy(all, t->made, t->made_count * sizeof *all);
    memcpy(all + t->made_count, plan->candidates + 1, (plan->candidate_count - 1) * sizeof *all);
    candidate_clear(&plan->candidates[0]);
    ty_free(plan->candidates);
    plan->candidates = all;
    plan->candidate_count = count;
    t->made_count = 0; /* given away */
    return TY_OK;
}

uint32_t ty_system_batch(const ty_workload *workload, const ty_cluster *cluster)
{
    const uint64_t devices = ty_cluster_device_count(cluster);
    const uint64_t batch = (workload->global_batch + devices - 1) / devices * devices;

    return batch <= UINT32_MAX ? (uint32_t)batch : workload->global_batch;
}

ty_status ty_plan_system(const ty_system *system, const ty_workload *workload,
                         const ty_cluster *cluster, const ty_profile *profile,
                         const ty_plan_options *options, ty_plan **out, ty_error *error)
{
    const preset *p = (const preset *)system; /* its first member */
    ty_plan_options o = *options;
    ty_stack *stack = NULL, *narrowed = NULL;
    trial t = {.preset = p,
               .workload = workload,
               .cluster = cluster,
               .profile = profile,
               .devices = ty_is_pinned(&options->pins, TY_AXIS(DEVICES))
                              ? options->pins.devices
                              : ty_cluster_device_count(cluster)};
    ty_status status = TY_OK;

    TY_CHECK(check_asked(p, workload, &options->pins, options->allow_lossy, t.devices, error),
             status, done);
    if (options->stack != NULL)
        TY_CHECK(ty_stack_copy(options->stack, &stack, error), status, done);
    else
        TY_CHECK(ty_system_open_stack(system, workload, cluster, profile, options, &stack, error),
                 status, done);
    TY_CHECK(ty_stack_copy(stack, &narrowed, error), status, done);
    ty_pin(&o.pins, TY_AXIS_ACTORS, 0); /* they have none */
    narrowed->plans = plans_of_both(&stack->plans, &p->plans);
    t.stack = stack;
    o.stack = t.narrowed = narrowed;
    if (o.global_batch == 0)
        o.global_batch = ty_system_batch(workload, cluster);
    settle(p, workload, &o);
    TY_CHECK(try_servers(&t, &o, error), status, done);
    if (t.best == NULL) {
        status = ty_fail(error, t.refusal.status != TY_OK ? t.refusal.status : TY_EINVAL, "%s: %s",
                         system->name,
                         t.refusal.status != TY_OK ? t.refusal.message : "has nothing to divide");
        goto done;
    }
    TY_CHECK(describe_gain(&t, error), status, done);
    t.best->stack->plans = stack->plans;
    *out = t.best;
    t.best = NULL;

done:
    trial_clear(&t);
    ty_stack_free(narrowed);
    ty_stack_free(stack);
    return status;
}

/* ---- Rows of a table ------------------------------------------------------------------------ */

/* The content of a plan that determines its run, without its name. */
static ty_status write_run(const ty_plan *plan, ty_text *out, ty_error *error)
{
    ty_json_writer w = ty_json_writer_on(out);
    ty_program *program = NULL;

    TY_TRY(ty_plan_lower(plan, &program, error));
    program->plan_digest = (ty_digest){0};
    ty_program_to_json(program, &w, NULL);
    ty_program_free(program);
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        ty_text_addf(out, "%s ", ty_algorithm_name(bucket->algorithm));
        ty_compression_text(&bucket->compression, out);
    }
    for (uint32_t r = 0; r < ty_plan_stage_replica_count(plan); r++)
        ty_text_addf(out, " %u", ty_plan_device_of_replica(plan, r));
    return ty_text_check(out, error);
}

ty_status ty_systems_agree(const ty_plan *a, const ty_plan *b, bool *out, ty_error *error)
{
    ty_text one = {0}, other = {0};
    ty_status status = TY_OK;

    *out = false;
    if (strcmp(a->stack->name, b->stack->name) != 0 || /* other times, and other memory */
        a->global_batch != b->global_batch || a->micro_batches != b->micro_batches ||
        a->stage_count != b->stage_count || a->bucket_count != b->bucket_count ||
        (a->stage_count > 1 && a->schedule != b->schedule) || /* other weights in backward */
        a->zero != b->zero || a->staleness != b->staleness ||
        (a->exchange_order != NULL) != (b->exchange_order != NULL) ||
        a->servers.count != b->servers.count || a->servers.shard != b->servers.shard ||
        a->tensor_parallel != b->tensor_parallel || a->context_parallel != b->context_parallel ||
        a->expert_parallel != b->expert_parallel || a->sequence_parallel != b->sequence_parallel ||
        a->table_shard != b->table_shard)
        return TY_OK;
    for (uint32_t s = 0; s < a->stage_count; s++)
        if (a->stages[s].first_layer != b->stages[s].first_layer ||
            a->stages[s].replicas != b->stages[s].replicas ||
            a->stages[s].recompute != b->stages[s].recompute ||
            a->stages[s].recompute_blocks != b->stages[s].recompute_blocks)
            return TY_OK;
    TY_CHECK(write_run(a, &one, error), status, done);
    TY_CHECK(write_run(b, &other, error), status, done);
    *out = one.length == other.length && memcmp(one.data, other.data, one.length) == 0;
done:
    ty_text_clear(&one);
    ty_text_clear(&other);
    return status;
}
