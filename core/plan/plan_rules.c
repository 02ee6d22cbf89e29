/* Which choices cannot be combined: one table for questions, candidates and plans. */
#include "ty_plan.h"

/* Other choices, and properties of the workload, that exclude a value. */
enum {
    STAGES = 1 << 0,
    RANKS = 1 << 1,
    EXPERT_RANKS = 1 << 2,
    VIRTUAL_STAGES = 1 << 3,
    ZERO = 1 << 4,
    SERVERS = 1 << 5,
    STALE = 1 << 6,
    CYCLE = 1 << 7,
    LOCAL_STEPS = 1 << 8,
    POPULATION = 1 << 9,
    EPISODES = 1 << 10,
    TEACHER = 1 << 11,
    ASYNCHRONOUS = 1 << 12,
    NOT_PLAIN = 1 << 13, /* the schedule */
    SEGMENTS = 1 << 14,  /* of recomputation */
    FP16 = 1 << 15,
    NOT_FP32 = 1 << 16,
    ONE_REPLICA = 1 << 17,
    OTHER_ALGORITHM = 1 << 18, /* than servers' */
    NO_SUM = 1 << 19           /* servers cannot sum that compression */
};

/* In the order in which they are reported. */
static const struct rule {
    ty_axis axis;
    uint32_t if_any;
    const char *why; /* NULL: that of ty_workload_whole_reason */
} rules[] = {
    {TY_AXIS_STALENESS, ASYNCHRONOUS, "gradients of that schedule are late already"},
    {TY_AXIS_STALENESS, POPULATION, "a population has no gradients"},
    {TY_AXIS_STALENESS, TEACHER, NULL},
    {TY_AXIS_STALENESS, LOCAL_STEPS, "replicas take local steps and exchange weights"},
    {TY_AXIS_STALENESS, ZERO,
     "with ZeRO, weights are gathered after the communication that may be late"},
    {TY_AXIS_STALENESS, ONE_REPLICA, "no stage has replicas whose gradients could be late"},

    {TY_AXIS_SERVERS, OTHER_ALGORITHM, "another algorithm is asked for"},
    {TY_AXIS_SERVERS, STAGES, "they serve replicas of the entire model, not stages"},
    {TY_AXIS_SERVERS, RANKS, "they serve replicas of one device each, without tp, cp and ep"},
    {TY_AXIS_SERVERS, ONE_REPLICA, "they sum the gradients of at least two replicas"},
    {TY_AXIS_SERVERS, ZERO, "with ZeRO, replicas have shards of the sum"},
    {TY_AXIS_SERVERS, ASYNCHRONOUS, "that schedule has no flush"},
    {TY_AXIS_SERVERS, POPULATION, "a population has no gradients"},
    {TY_AXIS_SERVERS, LOCAL_STEPS, "replicas take local steps and exchange weights"},
    {TY_AXIS_SERVERS, NO_SUM, "they sum gradients as they are, in fp16 or in bf16"},

    {TY_AXIS_ACTORS, RANKS,
     "with tensor, context or expert parallelism no device has the entire policy"},
    {TY_AXIS_ACTORS, ZERO, "with ZeRO, weights are gathered for passes, and not for playing"},
    {TY_AXIS_ACTORS, STALE, "gradients are late, and with actors samples are"},
    {TY_AXIS_ACTORS, NOT_PLAIN, "the schedule is for stages, and learners have the entire model"},
    {TY_AXIS_ACTORS, NOT_FP32, "policies play in fp32"},

    {TY_AXIS_PRIORITY, STAGES,
     "the next step's forward begins on the first stage, after the updates of others"},
    {TY_AXIS_PRIORITY, RANKS,
     "tensor, context or expert parallelism communicates inside layers, too"},
    {TY_AXIS_PRIORITY, ZERO, "with ZeRO, weights are gathered at once before the next step"},
    {TY_AXIS_PRIORITY, SERVERS, "servers answer in the order in which gradients come"},
    {TY_AXIS_PRIORITY, STALE, "late gradients let no forward wait"},
    {TY_AXIS_PRIORITY, LOCAL_STEPS, "replicas take local steps and exchange weights"},
    {TY_AXIS_PRIORITY, POPULATION, "a population has no gradients"},
    {TY_AXIS_PRIORITY, EPISODES, "the next step begins with episodes, after all updates"},
    {TY_AXIS_PRIORITY, TEACHER,
     "the next step's forward begins with a teacher that follows all updates"},
    {TY_AXIS_PRIORITY, NOT_PLAIN, "that schedule has an order of its own, expected gpipe or 1f1b"},
    {TY_AXIS_PRIORITY, SEGMENTS, "segments are recomputed with weights that may not be there"},
    {TY_AXIS_PRIORITY, FP16, "whether a step counts is known when all gradients of fp16 are there"},
    {TY_AXIS_PRIORITY, ONE_REPLICA, "one replica exchanges nothing"},

    /* Fitted buckets. */
    {TY_AXIS_BUCKET, VIRTUAL_STAGES,
     "stages that take turns on a device end their backward in turns"},
    {TY_AXIS_BUCKET, ZERO, "what ZeRO shards is exchanged by its own order"},
    {TY_AXIS_BUCKET, EXPERT_RANKS, "gradients of experts are reduced by fewer ranks"},
    {TY_AXIS_BUCKET, LOCAL_STEPS | POPULATION,
     "the workload exchanges no gradients as backward makes them"},
    {TY_AXIS_BUCKET, STALE, "which bucket ends when does not matter to late gradients"},
    {TY_AXIS_BUCKET, CYCLE, "a cycle closes them"},
};

static uint32_t if_set(bool is_so, uint32_t fact)
{
    return is_so ? fact : 0;
}

static uint32_t facts_of(const ty_rule_scene *s)
{
    const ty_workload *w = s->workload;
    const ty_pins *p = s->pins;
    const ty_plan_dimensions *d = s->dimensions;
    const uint32_t ranks = ty_plan_replica_ranks(&(ty_plan){.tensor_parallel = d->tensor_parallel,
                                                            .context_parallel = d->context_parallel,
                                                            .expert_parallel = d->expert_parallel});

    return if_set(s->stages > 1, STAGES) | if_set(s->replicas == 1, ONE_REPLICA) |
           if_set(ranks > 1, RANKS) | if_set(d->expert_parallel > 1, EXPERT_RANKS) |
           if_set(d->virtual_stages > 1, VIRTUAL_STAGES) | if_set(d->zero > 0, ZERO) |
           if_set(ty_recompute_has_segments(d->recompute), SEGMENTS) |
           if_set(p->servers > 0, SERVERS) | if_set(p->staleness > 0, STALE) |
           if_set(ty_is_pinned(p, TY_AXIS(CYCLE)), CYCLE) |
           if_set(ty_schedule_at(p->schedule)->is_asynchronous, ASYNCHRONOUS) |
           if_set(!ty_schedule_is_plain(p->schedule), NOT_PLAIN) |
           if_set(ty_is_pinned(p, TY_AXIS(ALGORITHM)) && p->algorithm != TY_PARAMETER_SERVER,
                  OTHER_ALGORITHM) |
           if_set(!ty_server_can_sum(&p->compression), NO_SUM) |
           if_set(w->local_steps > 1, LOCAL_STEPS) |
           if_set(w->learning == TY_LEARNING_EVOLUTION, POPULATION) |
           if_set(w->learning == TY_LEARNING_REINFORCEMENT, EPISODES) |
           if_set(ty_workload_has_teacher(w), TEACHER) |
           if_set(w->precision == TY_PRECISION_FP16, FP16) |
           if_set(w->precision != TY_PRECISION_FP32, NOT_FP32);
}

const char *ty_axis_refusal(ty_axis axis, const ty_rule_scene *scene)
{
    const uint32_t facts = facts_of(scene);

    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        if (rules[r].axis == axis && (rules[r].if_any & facts) != 0)
            return rules[r].why != NULL ? rules[r].why : ty_workload_whole_reason(scene->workload);
    return NULL;
}

void ty_plan_pins(const ty_plan *plan, uint32_t stage, ty_pins *out)
{
    *out = (ty_pins){0};
    ty_pin(out, TY_AXIS_PP, plan->stage_count);
    ty_pin(out, TY_AXIS_SCHEDULE, plan->schedule);
    ty_pin(out, TY_AXIS_TP, plan->tensor_parallel);
    ty_pin(out, TY_AXIS_CP, plan->context_parallel);
    ty_pin(out, TY_AXIS_EP, plan->expert_parallel);
    ty_pin(out, TY_AXIS_SP, plan->sequence_parallel);
    ty_pin(out, TY_AXIS_ZERO, plan->zero);
    ty_pin(out, TY_AXIS_RECOMPUTE, plan->stages[stage].recompute);
    out->dimensions.recompute_blocks = plan->stages[stage].recompute_blocks;
    ty_pin(out, TY_AXIS_STALENESS, plan->staleness);
    ty_pin(out, TY_AXIS_SERVERS, plan->servers.count);
    ty_pin(out, TY_AXIS_PRIORITY,
           plan->exchange_order != NULL ? TY_PRIORITY_FRONT : TY_PRIORITY_NONE);
}

const char *ty_plan_refusal(ty_axis axis, const ty_plan *plan)
{
    ty_pins pins;
    ty_rule_scene scene = {.workload = plan->workload,
                           .pins = &pins,
                           .dimensions = &pins.dimensions,
                           .stages = plan->stage_count};
    uint32_t segmented = 0;

    for (uint32_t s = 0; s < plan->stage_count; s++) {
        if (ty_recompute_has_segments(plan->stages[s].recompute))
            segmented = s;
        if (plan->stages[s].replicas > scene.replicas)
            scene.replicas = plan->stages[s].replicas;
    }
    ty_plan_pins(plan, segmented, &pins);
    return ty_axis_refusal(axis, &scene);
}
