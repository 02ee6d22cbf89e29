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

static const char *zero_name(int i)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    return names[i];
}

JSON_NAMES(parallelism_name, ty_parallelism, ty_parallelism_name)

/* The sets of ty_stack_plans: their keys and members. */
static const struct plan_set {
    const char *key, *one, *words;
    size_t offset;
    const char *(*name)(int);
    int count;
} plan_sets[] = {
    {"schedules", "schedule", "schedules of pipelines", offsetof(ty_stack_plans, schedules),
     schedule_name, TY_SCHEDULE_COUNT},
    {"compressions", "compression", "compressors of gradients",
     offsetof(ty_stack_plans, compressions), compression_name, TY_COMPRESSION_COUNT},
    {"recomputes", "recompute", "ways to recompute", offsetof(ty_stack_plans, recomputes),
     recompute_name, TY_RECOMPUTE_COUNT},
    {"zero_levels", "zero", "levels of ZeRO", offsetof(ty_stack_plans, zero_levels), zero_name, 4},
    {"lanes", "parallelism", "kinds of parallelism", offsetof(ty_stack_plans, parallelism),
     parallelism_name, TY_PARALLELISM_COUNT},
};
#define PLAN_SET_COUNT (sizeof plan_sets / sizeof *plan_sets)

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

static uint32_t *set_of(ty_stack_plans *plans, const struct plan_set *set)
{
    return (uint32_t *)(void *)((char *)plans + set->offset);
}

static bool *limit_of(ty_stack_plans *plans, const struct plan_limit *limit)
{
    return (bool *)(void *)((char *)plans + limit->offset);
}

void ty_stack_plans_to_json(const ty_stack_plans *can, ty_json_writer *writer)
{
    ty_stack_plans plans = *can, all = ty_stack_all_plans();
    bool is_all = plans.uneven_stages && plans.late_gradients && plans.priority;

    for (size_t i = 0; i < PLAN_LIMIT_COUNT; i++)
        is_all = is_all && !*limit_of(&plans, &plan_limits[i]);
    for (size_t i = 0; i < PLAN_SET_COUNT; i++)
        is_all = is_all && *set_of(&plans, &plan_sets[i]) == *set_of(&all, &plan_sets[i]);
    if (is_all)
        return;
    ty_json_open(writer, "plans", '{');
    for (size_t i = 0; i < PLAN_SET_COUNT; i++) {
        ty_json_open_flat(writer, plan_sets[i].key, '[');
        for (int n = 0; n < plan_sets[i].count; n++)
            if (ty_stack_has(*set_of(&plans, &plan_sets[i]), n))
                ty_json_put_string(writer, NULL, plan_sets[i].name(n));
        ty_json_close(writer, ']');
    }
    ty_json_put_bool(writer, "uneven_stages", plans.uneven_stages);
    ty_json_put_bool(writer, "late_gradients", plans.late_gradients);
    ty_json_put_bool(writer, "priority", plans.priority);
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
        if (n == set->count || ty_stack_has(found, n)) {
            ty_text known = {0};
            for (int k = 0; k < set->count; k++)
                ty_text_addf(&known, "%s%s", k > 0 ? ", " : "", set->name(k));
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
    for (size_t i = 0; i < PLAN_SET_COUNT; i++)
        if (ty_json_has(said, plan_sets[i].key))
            TY_TRY(read_set(said, &plan_sets[i], set_of(plans, &plan_sets[i]), error));
    if (ty_json_has(said, "uneven_stages"))
        TY_TRY(ty_json_bool(said, "uneven_stages", &plans->uneven_stages, error));
    if (ty_json_has(said, "late_gradients"))
        TY_TRY(ty_json_bool(said, "late_gradients", &plans->late_gradients, error));
    if (ty_json_has(said, "priority"))
        TY_TRY(ty_json_bool(said, "priority", &plans->priority, error));
    for (size_t i = 0; i < PLAN_LIMIT_COUNT; i++)
        if (ty_json_has(said, plan_limits[i].key))
            TY_TRY(ty_json_bool(said, plan_limits[i].key, limit_of(plans, &plan_limits[i]), error));
    return ty_json_end(said, error);
}

ty_stack_plans ty_stack_all_plans(void)
{
    return (ty_stack_plans){.schedules = (1u << TY_SCHEDULE_COUNT) - 1,
                            .compressions = (1u << TY_COMPRESSION_COUNT) - 1,
                            .recomputes = (1u << TY_RECOMPUTE_COUNT) - 1,
                            .zero_levels = (1u << 4) - 1,
                            .parallelism = (1u << TY_PARALLELISM_COUNT) - 1,
                            .uneven_stages = true,
                            .late_gradients = true,
                            .priority = true};
}

/* "gpipe, 1f1b". */
static void put_set(ty_text *text, uint32_t set, const struct plan_set *of)
{
    const char *between = "";

    for (int n = 0; n < of->count; n++)
        if (ty_stack_has(set, n)) {
            ty_text_addf(text, "%s%s", between, of->name(n));
            between = ", ";
        }
}

void ty_stack_plans_text(const ty_stack_plans *can, ty_text *text)
{
    ty_stack_plans plans = *can;

    for (size_t i = 0; i < PLAN_SET_COUNT; i++) {
        const uint32_t set = *set_of(&plans, &plan_sets[i]);
        ty_text_addf(text, "%s%s ", i > 0 ? "; " : "", plan_sets[i].words);
        put_set(text, set, &plan_sets[i]);
        if (set == 0)
            ty_text_add(text, "none");
    }
    ty_text_addf(text, "; stages %s; gradients %s%s",
                 plans.uneven_stages ? "with replicas of their own" : "with equal replicas",
                 plans.late_gradients ? "may be late" : "never late",
                 plans.priority ? ", front layers' first where asked for" : "");
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
    return plans->elementwise_of_experts && is_dense
               ? plans->recomputes & ~(1u << TY_RECOMPUTE_ELEMENTWISE)
               : plans->recomputes;
}

ty_status ty_stack_plans_check(const char *whose, const ty_stack_plans *plans,
                               const ty_stack_use *use, ty_error *error)
{
    ty_stack_plans can = *plans;
    /* In the order of plan_sets; -1: unused. */
    const int used[PLAN_SET_COUNT] = {use->stages > 1 ? use->schedule : -1, use->compression,
                                      use->recompute, use->zero};
    const uint64_t parts = use->parts > 1 ? use->parts : 1;
    ty_status status = TY_OK;

    for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
        if (use->sizes[k] > 1 && !ty_stack_has(can.parallelism, k))
            return ty_fail(error, TY_EINVAL, "%s has no %s parallelism; found %u", whose,
                           parallelism_name(k), use->sizes[k]);
    if (use->stages > 1 && can.schedules == 0)
        return ty_fail(error, TY_EINVAL, "%s has no pipelines; found %u stages", whose,
                       use->stages);
    if (use->is_uneven && !can.uneven_stages)
        return ty_fail(error, TY_EINVAL,
                       "%s has as many replicas of one stage as of another; found different "
                       "numbers",
                       whose);
    if (use->staleness > 0 && !can.late_gradients)
        return ty_fail(error, TY_EINVAL,
                       "%s waits for the gradients of every step; found staleness %u", whose,
                       use->staleness);
    if (use->has_priority && !can.priority)
        return ty_fail(error, TY_EINVAL,
                       "%s exchanges buckets as backward finishes them, and its next step begins "
                       "after all updates; found a priority",
                       whose);
    if (use->shares_key_heads && can.whole_key_heads)
        return ty_fail(
            error, TY_EINVAL,
            "%s has tensor-parallel ranks with heads of keys and values of their own; found %u "
            "ranks, more than there are heads",
            whose, use->sizes[TY_TENSOR_PARALLEL]);
    if (can.experts_along_sequences && use->has_experts && use->sizes[TY_TENSOR_PARALLEL] > 1 &&
        use->sequence_parallel == 0)
        return ty_fail(
            error, TY_EINVAL,
            "%s has sequence parallelism if models with experts have tensor parallelism; found "
            "%u tensor-parallel ranks without it",
            whose, use->sizes[TY_TENSOR_PARALLEL]);
    if (can.experts_without_fp16 && use->is_fp16 && use->sizes[TY_EXPERT_PARALLEL] > 1)
        return ty_fail(error, TY_EINVAL, "%s has no expert parallelism in fp16; found %u", whose,
                       use->sizes[TY_EXPERT_PARALLEL]);
    if (can.whole_segments && use->recompute == TY_RECOMPUTE_FULL && use->blocks > 0 &&
        use->blocks % (parts * (use->segment > 0 ? use->segment : 1)) != 0 && use->segment != 1)
        return ty_fail(error, TY_EINVAL,
                       "%s makes as many blocks again at a time as divide those of every stage; "
                       "found %u blocks, %" PRIu64 " of such stages, and %u%s",
                       whose, use->blocks, parts, use->segment,
                       use->segment == 0 ? " (a stage)" : "");
    can.recomputes = ty_stack_recomputes(plans, use->is_dense);
    for (size_t i = 0; status == TY_OK && i + 1 < PLAN_SET_COUNT; i++) {
        const uint32_t set = *set_of(&can, &plan_sets[i]);
        ty_text text = {0};
        if (used[i] < 0 || used[i] >= plan_sets[i].count || ty_stack_has(set, used[i]))
            continue;
        put_set(&text, set, &plan_sets[i]);
        status = ty_fail(error, TY_EINVAL, "%s: found %s %s, but its %s are %s", whose,
                         plan_sets[i].one, plan_sets[i].name(used[i]), plan_sets[i].words,
                         text.data != NULL ? text.data : "none");
        ty_text_clear(&text);
    }
    return status;
}

ty_status ty_stack_check(const ty_stack *stack, const ty_stack_use *use, ty_error *error)
{
    ty_text whose = {0};
    ty_status status;

    ty_text_addf(&whose, "stack %s", stack->name);
    status = ty_text_check(&whose, error);
    if (status == TY_OK)
        status = ty_stack_plans_check(whose.data, &stack->plans, use, error);
    ty_text_clear(&whose);
    return status;
}
