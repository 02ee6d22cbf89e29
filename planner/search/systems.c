/* Presets: each system's choices as sets over the axes of the plan space. */
#include "candidate.h"
#include "lowering.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The plans of a system: possible values, and those used unless the user requests others. Both
 * are texts as of --fix, in which an axis has several values with | between them. */
typedef struct preset {
    ty_system system;
    /* Values that it can have in addition to those of COMMON and of ty_axis_sets_plain; *: all. */
    const char *may;
    /* Values that are tried for an open axis, one after another, the first axis in the outermost
     * loop; an empty one leaves the axis open. Dimensions without values here are pinned to their
     * plain ones. */
    const char *tries;
    uint64_t only;      /* axes that have no other values than those that are tried */
    bool has_pipelines; /* tries all equal pipelines, the deepest first */
    bool is_of_layouts; /* equal stages of blocks; dimensions are searched */
} preset;

/* Algorithms of NCCL and MPI; what systems have beyond the plain values. */
#define LIBRARY "automatic|ring|tree"
#define COMMON "cycle=,shard=,algorithm=" LIBRARY
#define WHOLE "pp=1,compression=none" /* data parallel: every device has all layers */

/* Sources of defaults: docs/guides/compare-systems.md. */
static const preset presets[] = {
    {{"baidu-ring", "rings, one all-reduce a layer",
      "baidu-allreduce, 2017: tensors are not fused"},
     .may = "algorithm=ring",
     .tries = WHOLE ",algorithm=ring,bucket=1B",
     .only = TY_AXIS(BUCKET)},
    {{"parameter-server", "gradients to servers beside the workers, layer by layer",
      "Abadi et al., TensorFlow, OSDI 2016, section 3.3"},
     .may = "algorithm=parameter-server,servers=*,shard=*,staleness=*",
     .tries = WHOLE ",algorithm=parameter-server,bucket=1B",
     .only = TY_AXIS(BUCKET)},
    {{"tensorflow-on-spark", "Spark executors as workers and servers; 4 MiB parts",
      "TensorFlowOnSpark, 2017: TensorFlow's parameter servers on Spark's executors"},
     .may = "algorithm=parameter-server,servers=*,shard=*,staleness=*",
     .tries = WHOLE ",algorithm=parameter-server,bucket=4MiB"},
    {{"bigdl", "block manager: each task sums its slice, after the whole backward; fp16",
      "Dai et al., BigDL, arXiv:1804.05839, section 3.3"},
     .may = "algorithm=block-manager,compression=fp16",
     .tries = "pp=1,compression=fp16,algorithm=block-manager,bucket=one",
     .only = TY_AXIS(BUCKET)},
    {{"horovod", "fused all-reduces, flat or hierarchical, threshold tuned",
      "Sergeev and Del Balso, arXiv:1802.05799; fusion threshold 128 MiB, autotuner up to 64 MiB"},
     .may = "algorithm=" LIBRARY "|hierarchical,compression=none|fp16,recompute=*,cycle=*",
     .tries = WHOLE ",algorithm=|hierarchical,cycle=1ms|2.5ms|5ms|10ms,bucket=128MiB|64MiB|16MiB"},
    {{"ddp", "buckets of 25 MiB overlapped with backward, as PyTorch and Azure ML",
      "Li et al., PyTorch Distributed, VLDB 2020: bucket_cap_mb 25"},
     .may = "compression=none|fp16|bf16|powersgd-4,recompute=*",
     .tries = WHOLE ",bucket=25MiB"},
    {{"moxing", "buckets merged and split, hierarchical where it pays, fp16",
      "ModelArts' DAWNBench entries, 2018-2019: fused, hierarchical, fp16 gradients"},
     .may = "pp=*,algorithm=" LIBRARY "|hierarchical,compression=none|rows|fp16,compress=*,"
            "embeddings=*,bucket=*,priority=*",
     .tries = "pp=1,algorithm=|hierarchical"},
    {{"gpipe", "pipelines with recomputing, all forwards before all backwards",
      "Huang et al., GPipe, NeurIPS 2019, section 2"},
     .may = "pp=2,schedule=gpipe,recompute=none|full,bucket=*",
     .tries = "compression=none,schedule=gpipe,recompute=full",
     .has_pipelines = true},
    {{"pipedream", "asynchronous 1F1B, replicated stages, stashed weights",
      "Narayanan et al., PipeDream, SOSP 2019"},
     .may = "pp=*,replicas=*,schedule=pipedream,bucket=*",
     .tries = "compression=none,schedule=pipedream"},
    {{"pipedream-2bw", "asynchronous 1F1B with two versions of the weights",
      "Narayanan et al., PipeDream-2BW, ICML 2021"},
     .may = "pp=2,schedule=pipedream-2bw,recompute=none|full,bucket=*",
     .tries = "compression=none,schedule=pipedream-2bw",
     .has_pipelines = true},
    {{"megatron", "tensor, sequence, pipeline and data parallel, interleaved",
      "Narayanan et al., SC 2021; Korthikanti et al., 2022"},
     .may = "pp=*,schedule=1f1b|interleaved,vpp=*,tp=*,cp=*,ep=*,sp=*,zero=0|1,"
            "recompute=none|selective|full,bucket=*,layers=",
     .tries = "compression=none",
     .is_of_layouts = true},
    {{"zero", "data parallel with optimizer state, gradients or weights sharded",
      "Rajbhandari et al., ZeRO, SC 2020"},
     .may = "compression=none|fp16|bf16,recompute=*,zero=1|2|3",
     .tries = WHOLE ",zero=1|2|3"},
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

/* ---- Sets in texts ------------------------------------------------------------------------- */

/* The next axis of a text: its values, and how long these are. @return false after the last */
static bool next_axis(const char **at, ty_axis *axis, const char **values, size_t *length)
{
    char name[32];
    const size_t name_length = strcspn(*at, "=");

    if (**at == '\0')
        return false;
    snprintf(name, sizeof name, "%.*s", (int)name_length, *at);
    *axis = ty_axis_find(name);
    *values = *at + name_length + 1;
    *length = strcspn(*values, ",");
    *at = *values + *length;
    *at += **at == ',';
    return true;
}

/* The length of the first of several values, with the | after it. */
static size_t length_of(const char *value)
{
    const size_t length = strcspn(value, "|,");

    return length + (value[length] == '|');
}

/* Pins the first of several values, unless it is empty. */
static ty_status pin_value(ty_axis axis, const char *value, ty_pins *pins, ty_error *error)
{
    const size_t length = strcspn(value, "|,");
    char text[64];

    snprintf(text, sizeof text, "%s=%.*s", ty_axis_name(axis), (int)length, value);
    return length > 0 ? ty_pins_read(text, UINT32_MAX, pins, error) : TY_OK;
}

/* The kinds of an axis' values. */
static ty_status kinds_of(ty_axis axis, const char *values, size_t length, uint32_t *out,
                          ty_error *error)
{
    const bool is_all = length == 1 && *values == '*';

    *out = is_all ? ty_axis_sets_all().of[axis] : 0;
    for (const char *at = values; at < values + length && !is_all; at += length_of(at)) {
        ty_pins pins = {0};
        TY_TRY(pin_value(axis, at, &pins, error));
        *out |= 1u << ty_axis_kind(axis, &pins);
    }
    return TY_OK;
}

static ty_status may_of(const preset *p, ty_axis_sets *out, ty_error *error)
{
    const char *const texts[] = {COMMON, p->may};
    const char *values;
    size_t length;
    ty_axis axis;

    *out = ty_axis_sets_plain();
    for (size_t i = 0; i < 2; i++)
        for (const char *at = texts[i]; next_axis(&at, &axis, &values, &length);)
            TY_TRY(kinds_of(axis, values, length, &out->of[axis], error));
    return TY_OK;
}

/* The values that are tried for an axis; NULL: none. */
static const char *tried(const preset *p, ty_axis wanted, size_t *length)
{
    const char *values;
    ty_axis axis;

    for (const char *at = p->tries; next_axis(&at, &axis, &values, length);)
        if (axis == wanted)
            return values;
    return NULL;
}

/* ---- Requested options -------------------------------------------------------------------- */

/* The pins with the number of stages that DP leaves. */
static ty_pins with_stages(const ty_pins *pins, uint32_t devices)
{
    ty_pins all = *pins;

    if (ty_pins_stages(pins) == 0 && ty_is_pinned(pins, TY_AXIS(DP)))
        ty_pin(&all, TY_AXIS_PP,
               devices / ty_dimensions_width(&pins->dimensions) / pins->data_parallel);
    return all;
}

static bool has_lossy(uint32_t compressions)
{
    for (uint32_t k = 0; k < TY_COMPRESSION_COUNT; k++) {
        const ty_compression c = {.kind = (ty_compression_kind)k};
        if ((compressions >> k & 1) != 0 && ty_compression_is_lossy(&c))
            return true;
    }
    return false;
}

/* Whether a pinned value is the one that the system tries. */
static ty_status check_only(const preset *p, ty_axis axis, const ty_pins *pins, ty_error *error)
{
    size_t length = 0;
    const char *values = tried(p, axis, &length);
    ty_pins one = {0};
    ty_text text = {0};
    ty_status status = TY_OK;

    ty_pins_take(&one, pins, axis);
    TY_CHECK(ty_pins_print(&one, &text, error), status, done);
    if (strncmp(strchr(text.data, '=') + 1, values, length) != 0 ||
        text.length != strlen(ty_axis_name(axis)) + 1 + length)
        status = ty_fail(error, TY_EINFEASIBLE, "%s has no %s: its %s is %.*s", p->system.name,
                         text.data, ty_axis_name(axis), (int)length, values);
done:
    ty_text_clear(&text);
    return status;
}

/* Whether the system has all requested options. */
static ty_status check_asked(const preset *p, const ty_axis_sets *may, const ty_plan_options *o,
                             uint32_t devices, ty_error *error)
{
    const ty_pins pins = with_stages(&o->pins, devices);
    ty_error detail = {0};

    if (ty_axis_sets_check(may, p->system.name, &pins, &detail) != TY_OK)
        return ty_fail(error, TY_EINFEASIBLE, "%s", detail.message);
    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++)
        if (ty_is_pinned(&pins, p->only & (uint64_t)1 << a))
            TY_TRY(check_only(p, (ty_axis)a, &pins, error));
    if (o->allow_lossy && !has_lossy(may->of[TY_AXIS_COMPRESSION]))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%s has no compressor that changes convergence; found lossy ones allowed",
                       p->system.name);
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
    bool has_servers; /* may be dedicated hosts */
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
    ty_plan *plan = NULL;
    ty_error detail = {0};
    ty_status status = ty_stack_check(t->stack, &options->pins, t->workload,
                                      t->workload->precision == TY_PRECISION_FP16, &detail);

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
    const ty_pins asked = options->pins;
    const uint32_t most = t->devices < TY_MAX_STAGES ? t->devices : TY_MAX_STAGES;
    ty_status status = TY_OK;

    if (!t->preset->has_pipelines || ty_is_pinned(&asked, TY_AXIS(PP) | TY_AXIS(REPLICAS)))
        return try_choice(t, options, error);
    for (uint32_t stages = most; status == TY_OK && stages >= 2; stages--)
        if (t->devices % stages == 0 &&
            (!ty_is_pinned(&asked, TY_AXIS(DP)) || asked.data_parallel * stages == t->devices)) {
            ty_pin(&options->pins, TY_AXIS_PP, stages);
            status = try_choice(t, options, error);
        }
    options->pins = asked;
    return status;
}

/* Whether values are tried for an axis: it is open, and the question leaves it a choice. */
static bool is_tried(const trial *t, const ty_plan_options *o, ty_axis axis)
{
    if (axis == TY_AXIS_PP)
        return ty_pins_stages(&o->pins) == 0 &&
               with_stages(&o->pins, t->devices).pipeline_stages < 2;
    if (axis == TY_AXIS_CYCLE)
        return t->stack->exchange_cycle_s > 0 && !ty_is_pinned(&o->pins, TY_AXIS(CYCLE));
    return !ty_is_pinned(&o->pins, (uint64_t)1 << axis) &&
           !(axis == TY_AXIS_COMPRESSION && o->allow_lossy);
}

/* All values of the axes of a text, each with all of the others. */
static ty_status try_axes(trial *t, const char *at, ty_plan_options *options, ty_error *error)
{
    const ty_pins asked = options->pins;
    const char *values, *end;
    size_t length;
    ty_axis axis;
    ty_status status = TY_OK;

    if (!next_axis(&at, &axis, &values, &length))
        return try_divisions(t, options, error);
    if (!is_tried(t, options, axis))
        return try_axes(t, at, options, error);
    for (end = values + length; status == TY_OK && values < end; values += length_of(values)) {
        status = pin_value(axis, values, &options->pins, error);
        if (status == TY_OK)
            status = try_axes(t, at, options, error);
        options->pins = asked;
    }
    return status;
}

static ty_status try_all(trial *t, ty_plan_options *options, ty_error *error)
{
    return try_axes(t, t->preset->tries, options, error);
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
    const ty_idle_rule idle = options->idle;
    trial scout = *t;
    uint32_t best = 0;
    double best_s = HUGE_VAL;
    ty_status status = TY_OK;

    scout.best = NULL;
    scout.made = NULL;
    scout.made_count = scout.made_room = 0;
    scout.refusal = (ty_error){0};
    options->idle = TY_IDLE_MAY; /* a batch may divide by fewer only */
    options->simulate_top = 0;
    for (uint32_t n = 1; status == TY_OK && n <= hosts / 2; n = next_servers(n)) {
        ty_pin(&options->pins, TY_AXIS_SERVERS, n);
        status = try_all(simulate_top > 0 ? &scout : t, options, error);
        if (status == TY_OK && scout.best != NULL &&
            ty_plan_summary(scout.best)->step_time_s < best_s) {
            best_s = ty_plan_summary(scout.best)->step_time_s;
            best = scout.best->servers.count;
        }
    }
    options->simulate_top = simulate_top;
    ty_pin(&options->pins, TY_AXIS_SERVERS, best);
    if (status == TY_OK && best > 0)
        status = try_all(t, options, error);
    ty_unpin(&options->pins, TY_AXIS_SERVERS);
    options->idle = idle;
    trial_clear(&scout);
    return status;
}

/* Devices of the servers. */
static ty_status try_servers(trial *t, ty_plan_options *options, ty_error *error)
{
    ty_status status = TY_OK;

    if (!t->has_servers || ty_is_pinned(&options->pins, TY_AXIS(SERVERS))) {
        const ty_idle_rule idle = options->idle;
        options->idle = options->pins.servers > 0 ? TY_IDLE_MAY : idle;
        status = try_all(t, options, error);
        options->idle = idle;
        return status;
    }
    if (!ty_is_pinned(&options->pins, TY_AXIS(SHARD)))
        status = try_all(t, options, error);
    if (status == TY_OK)
        status = try_dedicated(t, options, error);
    return status;
}

/* The plain values of dimensions that are neither requested nor tried. */
static void settle(const preset *p, ty_plan_options *o)
{
    size_t length;

    o->layouts_only = p->is_of_layouts;
    /* "4+4" as two stages of four replicas, for layouts, which have only equal ones. */
    if (o->layouts_only && ty_is_pinned(&o->pins, TY_AXIS(REPLICAS))) {
        ty_pin(&o->pins, TY_AXIS_PP, o->pins.replicas.count);
        ty_pin(&o->pins, TY_AXIS_DP, o->pins.replicas.numbers[0]);
        ty_unpin(&o->pins, TY_AXIS_REPLICAS);
    }
    for (uint32_t a = 0; a < TY_AXIS_COUNT && !o->layouts_only; a++)
        if (tried(p, (ty_axis)a, &length) == NULL)
            o->pins.axes |= TY_AXES_OF_DIMENSIONS & (uint64_t)1 << a;
}

/* Plans of a stack that a system has, too. */
static ty_stack_plans plans_of_both(const ty_stack_plans *stack, const ty_axis_sets *may)
{
    ty_stack_plans both = *stack;

    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++)
        both.may.of[a] &= may->of[a];
    return both;
}

/* Whether a stack has all that defines the system. */
static ty_status suits_system(const ty_stack_plans *stack, const preset *p, bool *out,
                              ty_error *error)
{
    static const ty_axis defining[] = {TY_AXIS_ZERO, TY_AXIS_SCHEDULE, TY_AXIS_TP,
                                       TY_AXIS_CP,   TY_AXIS_EP,       TY_AXIS_REPLICAS};
    static const ty_axis chosen[] = {TY_AXIS_RECOMPUTE, TY_AXIS_COMPRESSION};
    const char *values;
    size_t length = 0;
    ty_axis_sets may;

    TY_TRY(may_of(p, &may, error));
    values = tried(p, TY_AXIS_ALGORITHM, &length);
    *out = (values == NULL || *values == '|') && !ty_axis_may(&may, TY_AXIS_SERVERS, TY_KIND_MORE);
    for (size_t i = 0; i < sizeof defining / sizeof *defining; i++) {
        const ty_axis a = defining[i];
        /* One stage has any schedule. */
        const bool is_of_one = a == TY_AXIS_SCHEDULE && tried(p, TY_AXIS_PP, &length) != NULL;
        *out = *out && (is_of_one || (may.of[a] & ~stack->may.of[a]) == 0);
    }
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        const ty_axis a = chosen[i];
        uint32_t kinds = a == TY_AXIS_RECOMPUTE ? 1u << TY_RECOMPUTE_NONE : may.of[a];
        values = tried(p, a, &length);
        if (values != NULL)
            TY_TRY(kinds_of(a, values, length, &kinds, error));
        *out = *out && (kinds & ~stack->may.of[a]) == 0;
    }
    return TY_OK;
}

ty_status ty_system_open_stack(const ty_system *system, const ty_workload *workload,
                               const ty_cluster *cluster, const ty_profile *profile,
                               const ty_plan_options *options, ty_stack **out, ty_error *error)
{
    const preset *p = (const preset *)system; /* its first member */
    ty_stack *usual = NULL, *worker = NULL;
    ty_text why = {0};
    bool suits;
    ty_status status = ty_stack_open_default(workload, cluster, profile, options, &usual, error);

    if (status != TY_OK)
        return status;
    TY_CHECK(suits_system(&usual->plans, p, &suits, error), status, done);
    if (suits) {
        *out = usual;
        usual = NULL;
        goto done;
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
    ty_axis_sets may;
    trial t = {.preset = p,
               .workload = workload,
               .cluster = cluster,
               .profile = profile,
               .devices = ty_is_pinned(&options->pins, TY_AXIS(DEVICES))
                              ? options->pins.devices
                              : ty_cluster_device_count(cluster)};
    ty_status status = TY_OK;

    TY_CHECK(may_of(p, &may, error), status, done);
    TY_CHECK(check_asked(p, &may, options, t.devices, error), status, done);
    t.has_servers = ty_axis_may(&may, TY_AXIS_SERVERS, TY_KIND_MORE);
    if (options->stack != NULL)
        TY_CHECK(ty_stack_copy(options->stack, &stack, error), status, done);
    else
        TY_CHECK(ty_system_open_stack(system, workload, cluster, profile, options, &stack, error),
                 status, done);
    TY_CHECK(ty_stack_copy(stack, &narrowed, error), status, done);
    ty_pin(&o.pins, TY_AXIS_ACTORS, 0); /* they have none */
    narrowed->plans = plans_of_both(&stack->plans, &may);
    t.stack = stack;
    o.stack = t.narrowed = narrowed;
    if (o.global_batch == 0)
        o.global_batch = ty_system_batch(workload, cluster);
    settle(p, &o);
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

/* The content of a plan that determines its run, without its name; the program with as few
 * micro-batches as show its order. */
static ty_status write_run(const ty_plan *plan, ty_text *out, ty_error *error)
{
    ty_json_writer w = ty_json_writer_on(out);
    ty_program *program = NULL;

    TY_TRY(ty_plan_lower_short(plan, ty_plan_steady_micro_batches(plan), &program, error));
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
