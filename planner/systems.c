/* Presets: each system's choices as restrictions of the search. */
#include "ty_planner.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define MOST_CHOICES 16

/* How a system divides the network. */
typedef enum division_rule {
    WHOLE,        /* data parallel: every device has all layers */
    PIPELINES,    /* two stages and more, all with as many replicas */
    ANY_DIVISION, /* any stages, any replicas, one stage included */
    LAYOUTS       /* equal stages of blocks */
} division_rule;

typedef struct preset {
    ty_system system;
    division_rule division;
    int schedule;             /* ty_schedule, or -1: searched */
    int algorithms[2];        /* ty_algorithm to choose from, or -1: chosen for each bucket */
    uint64_t bucket_bytes[3]; /* to choose from; 0: searched */
    int compression;          /* ty_compression_kind, or -1: proposed where it pays */
    uint32_t zero[2];         /* least and most level */
    ty_recompute recompute;
} preset;

/* Sources of defaults: docs/systems.md. */
static const preset presets[] = {
    {{"baidu-ring", "rings, one all-reduce a layer",
      "baidu-allreduce, 2017: tensors are not fused"},
     WHOLE,
     -1,
     {TY_RING, -1},
     {1},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"parameter-server", "gradients to servers beside the workers, layer by layer",
      "Abadi et al., TensorFlow, OSDI 2016, section 3.3"},
     WHOLE,
     -1,
     {TY_PARAMETER_SERVER, -1},
     {1},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"tensorflow-on-spark", "Spark executors as workers and servers; 4 MiB parts",
      "TensorFlowOnSpark, 2017: TensorFlow's parameter servers on Spark's executors"},
     WHOLE,
     -1,
     {TY_PARAMETER_SERVER, -1},
     {4 * MIB},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"bigdl", "block manager: each task sums its slice, after the whole backward; fp16",
      "Dai et al., BigDL, arXiv:1804.05839, section 3.3"},
     WHOLE,
     -1,
     {TY_BLOCK_MANAGER, -1},
     {UINT64_MAX},
     TY_COMPRESSION_FP16,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"horovod", "fused all-reduces, flat or hierarchical, threshold tuned",
      "Sergeev and Del Balso, arXiv:1802.05799; fusion threshold 128 MiB, autotuner up to 64 MiB"},
     WHOLE,
     -1,
     {-1, TY_HIERARCHICAL},
     {128 * MIB, 64 * MIB, 16 * MIB},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"ddp", "buckets of 25 MiB overlapped with backward, as PyTorch and Azure ML",
      "Li et al., PyTorch Distributed, VLDB 2020: bucket_cap_mb 25"},
     WHOLE,
     -1,
     {-1, -1},
     {25 * MIB},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"moxing", "buckets merged and split, hierarchical where it pays, fp16",
      "ModelArts' DAWNBench entries, 2018-2019: fused, hierarchical, fp16 gradients"},
     WHOLE,
     -1,
     {-1, TY_HIERARCHICAL},
     {0},
     -1,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"gpipe", "pipelines with recomputing, all forwards before all backwards",
      "Huang et al., GPipe, NeurIPS 2019, section 2"},
     PIPELINES,
     TY_GPIPE,
     {-1, -1},
     {0},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_FULL},
    {{"pipedream", "asynchronous 1F1B, replicated stages, stashed weights",
      "Narayanan et al., PipeDream, SOSP 2019"},
     ANY_DIVISION,
     TY_PIPEDREAM,
     {-1, -1},
     {0},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"pipedream-2bw", "asynchronous 1F1B with two versions of the weights",
      "Narayanan et al., PipeDream-2BW, ICML 2021"},
     PIPELINES,
     TY_PIPEDREAM_2BW,
     {-1, -1},
     {0},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"megatron", "tensor, sequence, pipeline and data parallel, interleaved",
      "Narayanan et al., SC 2021; Korthikanti et al., 2022"},
     LAYOUTS,
     -1,
     {-1, -1},
     {0},
     TY_COMPRESSION_NONE,
     {0, 0},
     TY_RECOMPUTE_NONE},
    {{"zero", "data parallel with optimizer state, gradients or weights sharded",
      "Rajbhandari et al., ZeRO, SC 2020"},
     WHOLE,
     -1,
     {-1, -1},
     {0},
     TY_COMPRESSION_NONE,
     {1, 3},
     TY_RECOMPUTE_NONE},
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

/* ---- Choices ------------------------------------------------------------------------------ */

typedef struct choices {
    ty_plan_options items[MOST_CHOICES];
    uint32_t count;
} choices;

static void add(choices *c, const ty_plan_options *options)
{
    if (c->count < MOST_CHOICES)
        c->items[c->count++] = *options;
}

/* Equal pipelines: as many stages as a divisor of the devices, the deepest first. */
static void add_divisions(const preset *p, uint32_t devices, ty_plan_options *options, choices *c)
{
    if (p->division != PIPELINES) {
        options->pipeline_stages = p->division == WHOLE ? 1 : 0;
        add(c, options);
        return;
    }
    for (uint32_t stages = devices; stages >= 2; stages--)
        if (devices % stages == 0) {
            options->pipeline_stages = stages;
            add(c, options);
        }
}

static void add_buckets(const preset *p, uint32_t devices, ty_plan_options *options, choices *c)
{
    for (size_t b = 0; b < sizeof p->bucket_bytes / sizeof p->bucket_bytes[0]; b++) {
        if (b > 0 && p->bucket_bytes[b] == 0)
            break;
        options->bucket_bytes = p->bucket_bytes[b];
        for (uint32_t zero = p->zero[0]; zero <= p->zero[1]; zero++) {
            options->dimensions.zero = zero;
            add_divisions(p, devices, options, c);
        }
    }
}

static void choices_of(const preset *p, uint32_t devices, const ty_plan_options *base, choices *c)
{
    ty_plan_options options = *base;

    c->count = 0;
    options.replicas = NULL;
    options.layouts_only = p->division == LAYOUTS;
    options.pinned = p->division != LAYOUTS ? (uint32_t)TY_PIN_ALL : 0;
    options.dimensions = (ty_plan_dimensions){
        .recompute = p->recompute, .recompute_blocks = p->recompute == TY_RECOMPUTE_FULL};
    options.fix_schedule = p->schedule >= 0;
    options.schedule = p->schedule >= 0 ? (ty_schedule)p->schedule : TY_GPIPE;
    options.fix_compression = p->compression >= 0;
    options.compression = (ty_compression){
        .kind = p->compression >= 0 ? (ty_compression_kind)p->compression : TY_COMPRESSION_NONE};
    for (size_t a = 0; a < 2; a++) {
        if (a > 0 && p->algorithms[a] < 0)
            break;
        options.fix_algorithm = p->algorithms[a] >= 0;
        options.algorithm = p->algorithms[a] >= 0 ? (ty_algorithm)p->algorithms[a] : TY_RING;
        add_buckets(p, devices, &options, c);
    }
}

/* ---- Planning ----------------------------------------------------------------------------- */

static double step_s(const ty_plan *plan)
{
    return plan->simulation.step_time_s > 0 ? plan->simulation.step_time_s
                                            : plan->prediction.step_time_s;
}

/* A refusal that says what is missing is worth more than one that says what cannot be asked. */
static bool says_more(ty_status status, ty_status than)
{
    return than == TY_OK || (status == TY_EINFEASIBLE && than != TY_EINFEASIBLE);
}

ty_status ty_plan_system(const ty_system *system, const ty_workload *workload,
                         const ty_cluster *cluster, const ty_profile *profile,
                         const ty_plan_options *options, ty_plan **out, ty_error *error)
{
    const preset *p = (const preset *)system; /* its first member */
    ty_error refusal = {0};
    ty_plan *best = NULL;
    choices c;

    choices_of(p, ty_cluster_device_count(cluster), options, &c);
    for (uint32_t i = 0; i < c.count; i++) {
        ty_plan *plan = NULL;
        ty_error detail = {0};
        ty_status status = ty_plan_search(workload, cluster, profile, &c.items[i], &plan, &detail);
        if (status == TY_ENOMEM || status == TY_EINTERRUPTED) {
            ty_plan_free(best);
            return ty_fail(error, status, "%s", detail.message);
        }
        if (status != TY_OK) {
            if (says_more(status, refusal.status))
                refusal = detail;
            continue;
        }
        if (best == NULL || step_s(plan) < step_s(best)) {
            ty_plan_free(best);
            best = plan;
        } else {
            ty_plan_free(plan);
        }
    }
    if (best == NULL)
        return ty_fail(error, refusal.status != TY_OK ? refusal.status : TY_EINVAL, "%s: %s",
                       system->name,
                       refusal.message[0] != '\0' ? refusal.message : "has nothing to divide");
    *out = best;
    return TY_OK;
}
