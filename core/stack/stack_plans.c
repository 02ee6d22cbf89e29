/* The plans that a stack can run: read, written, checked. */
#include "stack_plans.h"
#include "ty_json.h"
#include "ty_plan.h"
#include "ty_profile.h"

#include <inttypes.h>
#include <string.h>

JSON_NAMES(schedule_name, ty_schedule, ty_schedule_name)
JSON_NAMES(compression_name, ty_compression_kind, ty_compression_name)
JSON_NAMES(recompute_name, ty_recompute, ty_recompute_name)

JSON_NAMES(parallelism_name, ty_parallelism, ty_parallelism_name)

static const char *zero_name(int i)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    return names[i];
}

/* Sets of ty_stack_plans in files: their keys and members. */
static const struct plan_set {
    const char *key, *words;
    ty_axis axis; /* of sizes, the first of three: a member is TY_KIND_MORE of its axis */
    const char *(*name)(int);
    int count;
} plan_sets[] = {
    {"schedules", "schedules of pipelines", TY_AXIS_SCHEDULE, schedule_name, TY_SCHEDULE_COUNT},
    {"compressions", "compressors of gradients", TY_AXIS_COMPRESSION, compression_name,
     TY_COMPRESSION_COUNT},
    {"recomputes", "ways to recompute", TY_AXIS_RECOMPUTE, recompute_name, TY_RECOMPUTE_COUNT},
    {"zero_levels", "levels of ZeRO", TY_AXIS_ZERO, zero_name, 4},
    {"lanes", "kinds of parallelism", TY_AXIS_TP, parallelism_name, TY_PARALLELISM_COUNT},
};
#define PLAN_SET_COUNT (sizeof plan_sets / sizeof *plan_sets)
_Static_assert(TY_AXIS_CP == TY_AXIS_TP + 1 && TY_AXIS_EP == TY_AXIS_TP + 2,
               "the sizes of ty_parallelism are in its order");

/* Kinds that stacks have or lack with another one: key and axis of each. */
static const struct plan_switch {
    const char *key;
    ty_axis axis;
    uint32_t kinds;
} plan_switches[] = {
    {"uneven_stages", TY_AXIS_REPLICAS, 1u << TY_KIND_UNEQUAL},
    {"late_gradients", TY_AXIS_STALENESS, 1u << TY_KIND_MORE},
    {"priority", TY_AXIS_PRIORITY, 1u << TY_PRIORITY_FRONT | 1u << TY_PRIORITY_SHORTER},
};
#define PLAN_SWITCH_COUNT (sizeof plan_switches / sizeof *plan_switches)

/* Limits of plans in addition to the sets: key and text of each. */
static const struct plan_limit {
    const char *key, *words;
    size_t offset;
} plan_limits[] = {
    {"elementwise_of_experts", "elementwise where all blocks have routed experts and none shared",
     offsetof(ty_stack_plans, elementwise_of_experts)},
    {"whole_key_heads", "tensor-parallel ranks with heads of keys and values of their own",
     offsetof(ty_stack_plans, whole_key_heads)},
    {"whole_blocks", "stages of whole blocks", offsetof(ty_stack_plans, whole_blocks)},
    {"whole_segments", "blocks made again at a time that divide those of every stage",
     offsetof(ty_stack_plans, whole_segments)},
    {"experts_along_sequences",
     "sequence parallelism if models with experts have tensor parallelism",
     offsetof(ty_stack_plans, experts_along_sequences)},
    {"experts_without_fp16", "no expert-parallel ranks in fp16",
     offsetof(ty_stack_plans, experts_without_fp16)},
    {"compression_on_request", "gradients compressed on request only",
     offsetof(ty_stack_plans, compression_on_request)},
};
#define PLAN_LIMIT_COUNT (sizeof plan_limits / sizeof *plan_limits)

static bool *limit_of(ty_stack_plans *plans, const struct plan_limit *limit)
{
    return (bool *)(void *)((char *)plans + limit->offset);
}

/* The members of a set, as in files. */
static uint32_t members_of(const ty_stack_plans *plans, const struct plan_set *set)
{
    uint32_t members = 0;

    if (set->axis != TY_AXIS_TP)
        return plans->may.of[set->axis];
    for (int k = 0; k < set->count; k++)
        members |= (plans->may.of[set->axis + (ty_axis)k] >> TY_KIND_MORE & 1) << k;
    return members;
}

/* The reverse. Pipelines need a schedule. */
static void set_members(ty_stack_plans *plans, const struct plan_set *set, uint32_t members)
{
    if (set->axis == TY_AXIS_SCHEDULE)
        plans->may.of[TY_AXIS_PP] =
            members != 0 ? 1u << TY_KIND_ONE | 1u << TY_KIND_MORE : 1u << TY_KIND_ONE;
    if (set->axis != TY_AXIS_TP)
        plans->may.of[set->axis] = members;
    for (int k = 0; set->axis == TY_AXIS_TP && k < set->count; k++)
        plans->may.of[set->axis + (ty_axis)k] = 1u << TY_KIND_ONE | (members >> k & 1)
                                                                        << TY_KIND_MORE;
}

static bool has_switch(const ty_stack_plans *plans, const struct plan_switch *of)
{
    return (plans->may.of[of->axis] & of->kinds) != 0;
}

static void put_names(ty_text *text, const char *(*name)(int), uint32_t members, int count)
{
    const char *between = "";

    for (int n = 0; n < count; n++)
        if ((members >> n & 1) != 0) {
            ty_text_addf(text, "%s%s", between, name(n));
            between = ", ";
        }
    if (members == 0)
        ty_text_add(text, "none");
}

void ty_stack_plans_to_json(const ty_stack_plans *can, ty_json_writer *writer)
{
    ty_stack_plans plans = *can;
    const ty_axis_sets all = ty_axis_sets_all();
    bool is_all = memcmp(&plans.may, &all, sizeof all) == 0;

    for (size_t i = 0; i < PLAN_LIMIT_COUNT; i++)
        is_all = is_all && !*limit_of(&plans, &plan_limits[i]);
    if (is_all)
        return;
    ty_json_open(writer, "plans", '{');
    for (size_t i = 0; i < PLAN_SET_COUNT; i++) {
        const uint32_t members = members_of(&plans, &plan_sets[i]);
        ty_json_open_flat(writer, plan_sets[i].key, '[');
        for (int n = 0; n < plan_sets[i].count; n++)
            if ((members >> n & 1) != 0)
                ty_json_put_string(writer, NULL, plan_sets[i].name(n));
        ty_json_close(writer, ']');
    }
    for (size_t i = 0; i < PLAN_SWITCH_COUNT; i++)
        ty_json_put_bool(writer, plan_switches[i].key, has_switch(&plans, &plan_switches[i]));
    for (size_t i = 0; i < PLAN_LIMIT_COUNT; i++)
        if (*limit_of(&plans, &plan_limits[i]))
            ty_json_put_bool(writer, plan_limits[i].key, true);
    ty_json_close(writer, '}');
}

/* An array of names; each at most once. */
static ty_status read_set(const ty_json *object, const struct plan_set *set, uint32_t *out,
                          ty_error *error)
{
    const ty_json *names;
    ty_status status = ty_json_array(object, set->key, 0, (size_t)set->count, &names, error);
    uint32_t found = 0;

    for (size_t i = 0; status == TY_OK && i < ty_json_size(names); i++) {
        const ty_json *item = ty_json_at(names, i);
        const char *word;
        int n = 0;
        TY_TRY(ty_json_as_string(item, &word, error));
        while (n < set->count && strcmp(set->name(n), word) != 0)
            n++;
        if (n == set->count || (found >> n & 1) != 0) {
            ty_text known = {0};
            put_names(&known, set->name, UINT32_MAX, set->count);
            status = ty_json_fail(item, error, "each at most once, of %s",
                                  known.data != NULL ? known.data : "what there is");
            ty_text_clear(&known);
            return status;
        }
        found |= 1u << n;
    }
    if (status == TY_OK)
        *out = found;
    return status;
}

ty_status ty_stack_plans_read(const ty_json *stack, ty_stack_plans *plans, ty_error *error)
{
    const ty_json *said;

    TY_TRY(ty_json_member(stack, "plans", &said, error));
    for (size_t i = 0; i < PLAN_SET_COUNT; i++) {
        uint32_t members;
        if (!ty_json_has(said, plan_sets[i].key))
            continue;
        TY_TRY(read_set(said, &plan_sets[i], &members, error));
        set_members(plans, &plan_sets[i], members);
    }
    for (size_t i = 0; i < PLAN_SWITCH_COUNT; i++) {
        const struct plan_switch *of = &plan_switches[i];
        bool is_on;
        if (!ty_json_has(said, of->key))
            continue;
        TY_TRY(ty_json_bool(said, of->key, &is_on, error));
        plans->may.of[of->axis] = (plans->may.of[of->axis] & ~of->kinds) | (is_on ? of->kinds : 0);
    }
    for (size_t i = 0; i < PLAN_LIMIT_COUNT; i++)
        if (ty_json_has(said, plan_limits[i].key))
            TY_TRY(ty_json_bool(said, plan_limits[i].key, limit_of(plans, &plan_limits[i]), error));
    return ty_json_end(said, error);
}

ty_stack_plans ty_stack_all_plans(void)
{
    return (ty_stack_plans){.may = ty_axis_sets_all()};
}

void ty_stack_plans_text(const ty_stack_plans *can, ty_text *text)
{
    ty_stack_plans plans = *can;

    for (size_t i = 0; i < PLAN_SET_COUNT; i++) {
        ty_text_addf(text, "%s%s ", i > 0 ? "; " : "", plan_sets[i].words);
        put_names(text, plan_sets[i].name, members_of(&plans, &plan_sets[i]), plan_sets[i].count);
    }
    ty_text_addf(
        text, "; stages %s; gradients %s%s",
        has_switch(can, &plan_switches[0]) ? "with replicas of their own" : "with equal replicas",
        has_switch(can, &plan_switches[1]) ? "may be late" : "never late",
        has_switch(can, &plan_switches[2]) ? ", those of the first layers earlier on request" : "");
    for (size_t i = 0; i < PLAN_LIMIT_COUNT; i++)
        if (*limit_of(&plans, &plan_limits[i]))
            ty_text_addf(text, "; %s", plan_limits[i].words);
}

uint32_t ty_stack_first_block(const ty_workload *workload)
{
    return ty_layer_row_of(&workload->layers[0])->table == TY_TABLE_OF_TOKENS &&
           workload->layer_count > 1 && ty_workload_is_cut(workload, 1);
}

/* Blocks that begin in layers [first, end), without the head. */
static uint32_t blocks_between(const ty_workload *workload, uint32_t first, uint32_t end)
{
    const uint32_t *starts;
    uint32_t head, found = 0;
    const uint32_t count = ty_workload_blocks(workload, &starts, &head);

    for (uint32_t b = 0; b < count; b++) {
        const uint32_t start = b == 0 ? ty_stack_first_block(workload) : starts[b];
        found += start >= first && start < end && starts[b] != head;
    }
    return found;
}

static bool is_block(const ty_workload *workload, uint32_t layer)
{
    const uint32_t *starts;
    uint32_t head;
    const uint32_t count = ty_workload_blocks(workload, &starts, &head);

    for (uint32_t b = 0; b < count; b++)
        if (starts[b] == layer)
            return true;
    return layer == ty_stack_first_block(workload);
}

ty_status ty_stack_stages_check(const ty_stack_plans *plans, const ty_workload *workload,
                                const uint32_t *first_layers, uint32_t stages, bool is_full,
                                uint32_t segment, ty_error *error)
{
    uint32_t first_count = 0;

    for (uint32_t s = 0; s < stages && (plans->whole_blocks || plans->whole_segments); s++) {
        const uint32_t end = s + 1 < stages ? first_layers[s + 1] : workload->layer_count;
        const uint32_t count = blocks_between(workload, first_layers[s], end);
        first_count = s == 0 ? count : first_count;
        if (plans->whole_blocks && !is_block(workload, first_layers[s]))
            return ty_fail(error, TY_EINVAL,
                           "stage %u begins at layer %u (\"%.80s\"), expected the first layer of a "
                           "block: the stack has stages of whole blocks",
                           s, first_layers[s], workload->layers[first_layers[s]].name);
        if (plans->whole_segments && is_full &&
            (segment == 0 ? count != first_count : count % segment != 0))
            return ty_fail(error, TY_EINVAL,
                           "stage %u has %u blocks, of which %u are made again at a time, expected "
                           "a multiple: the stack makes equally many again in all stages",
                           s, count, segment == 0 ? first_count : segment);
    }
    return TY_OK;
}

uint32_t ty_stack_recomputes(const ty_stack_plans *plans, bool is_dense)
{
    const uint32_t all = plans->may.of[TY_AXIS_RECOMPUTE];

    return plans->elementwise_of_experts && is_dense ? all & ~(1u << TY_RECOMPUTE_ELEMENTWISE)
                                                     : all;
}

/* Whether blocks per recomputed segment divide those of equal stages. */
static ty_status check_segments(const char *whose, const ty_pins *pins, const ty_workload *workload,
                                ty_error *error)
{
    const ty_plan_dimensions *d = &pins->dimensions;
    const uint32_t segment = d->recompute_blocks;
    const uint32_t *starts;
    uint32_t head, blocks;
    uint64_t parts = ty_pins_stages(pins);

    if (d->virtual_stages > 1) {
        parts = parts > 1 ? parts : 2;
        parts *= ty_is_pinned(pins, TY_AXIS(PP)) ? d->virtual_stages : 1;
    }
    if (parts == 0 || ty_is_pinned(pins, TY_AXIS(LAYERS))) /* these are checked one by one */
        parts = 1;
    if (!ty_is_pinned(pins, TY_AXIS(RECOMPUTE)) || d->recompute != TY_RECOMPUTE_FULL ||
        segment == 1)
        return TY_OK;
    blocks = ty_workload_blocks(workload, &starts, &head);
    blocks -= head != TY_NO_LAYER;
    if (blocks % (parts * (segment > 0 ? segment : 1)) == 0)
        return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "%s makes as many blocks again at a time as divide those of every stage; found "
                   "%u blocks, %" PRIu64 " of such stages, and %u%s",
                   whose, blocks, parts, segment, segment == 0 ? " (a stage)" : "");
}

ty_status ty_stack_plans_check(const char *whose, const ty_stack_plans *plans, const ty_pins *pins,
                               const ty_workload *workload, bool is_fp16, ty_error *error)
{
    const ty_plan_dimensions *d = &pins->dimensions;
    ty_axis_sets may = plans->may;

    if (ty_pins_stages(pins) < 2) /* any schedule will do */
        may.of[TY_AXIS_SCHEDULE] |=
            pins->dimensions.virtual_stages > 1 ? 0 : ty_axis_sets_all().of[TY_AXIS_SCHEDULE];

    if (plans->whole_key_heads && ty_tensor_shares_key_heads(workload, d->tensor_parallel))
        return ty_fail(
            error, TY_EINVAL,
            "%s has tensor-parallel ranks with heads of keys and values of their own; found %u "
            "ranks, more than there are heads",
            whose, d->tensor_parallel);
    if (plans->experts_along_sequences && d->tensor_parallel > 1 &&
        ty_is_pinned(pins, TY_AXIS(SP)) && !d->sequence_parallel &&
        ty_workload_has_experts(workload))
        return ty_fail(
            error, TY_EINVAL,
            "%s has sequence parallelism if models with experts have tensor parallelism; found "
            "%u tensor-parallel ranks without it",
            whose, d->tensor_parallel);
    if (plans->experts_without_fp16 && is_fp16 && d->expert_parallel > 1)
        return ty_fail(error, TY_EINVAL, "%s has no expert parallelism in fp16; found %u", whose,
                       d->expert_parallel);
    if (plans->whole_segments)
        TY_TRY(check_segments(whose, pins, workload, error));
    may.of[TY_AXIS_RECOMPUTE] = ty_stack_recomputes(plans, ty_workload_is_dense(workload));
    return ty_axis_sets_check(&may, whose, pins, error);
}

ty_status ty_stack_check(const ty_stack *stack, const ty_pins *pins, const ty_workload *workload,
                         bool is_fp16, ty_error *error)
{
    ty_text whose = {0};
    ty_status status;

    ty_text_addf(&whose, "stack %s", stack->name);
    status = ty_text_check(&whose, error);
    if (status == TY_OK)
        status = ty_stack_plans_check(whose.data, &stack->plans, pins, workload, is_fp16, error);
    ty_text_clear(&whose);
    return status;
}
