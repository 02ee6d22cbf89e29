/* What plans a stack can run: read, written, checked. */
#include "stack_plans.h"
#include "ty_compression.h"
#include "ty_plan.h"

#include <string.h>

static const char *schedule_name(int i)
{
    return ty_schedule_name((ty_schedule)i);
}

static const char *compression_name(int i)
{
    return ty_compression_name((ty_compression_kind)i);
}

static const char *recompute_name(int i)
{
    return ty_recompute_name((ty_recompute)i);
}

static const char *zero_name(int i)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    return names[i];
}

static const char *lane_name(int i)
{
    return ty_lane_kind_name((ty_lane_kind)i);
}

/* The sets of ty_stack_plans: their keys and what is in them. */
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
    {"lanes", "lane", "lanes", offsetof(ty_stack_plans, lanes), lane_name, TY_LANE_KIND_COUNT},
};
#define PLAN_SET_COUNT (sizeof plan_sets / sizeof *plan_sets)

static uint32_t *set_of(ty_stack_plans *plans, const struct plan_set *set)
{
    return (uint32_t *)(void *)((char *)plans + set->offset);
}

void ty_stack_plans_to_json(const ty_stack_plans *can, ty_json_writer *writer)
{
    ty_stack_plans plans = *can, all = ty_stack_all_plans();
    bool is_all = plans.uneven_stages && plans.late_gradients && !plans.elementwise_of_experts;

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
    if (plans.elementwise_of_experts)
        ty_json_put_bool(writer, "elementwise_of_experts", true);
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
        TY_CHECK(ty_json_as_string(item, &word, error), status, done);
        while (n < set->count && strcmp(set->name(n), word) != 0)
            n++;
        if (n == set->count || ty_stack_has(found, n)) {
            ty_text known = {0};
            for (int k = 0; k < set->count; k++)
                ty_text_addf(&known, "%s%s", k > 0 ? ", " : "", set->name(k));
            status = ty_json_fail(item, error, "each at most once, of %s",
                                  known.data != NULL ? known.data : "what there is");
            ty_text_clear(&known);
            goto done;
        }
        found |= 1u << n;
    }
    if (status == TY_OK)
        *out = found;
done:
    return status;
}

ty_status ty_stack_plans_read(const ty_json *stack, ty_stack_plans *plans, ty_error *error)
{
    const ty_json *said;
    ty_status status;

    TY_CHECK(ty_json_member(stack, "plans", &said, error), status, done);
    for (size_t i = 0; i < PLAN_SET_COUNT; i++)
        if (ty_json_has(said, plan_sets[i].key))
            TY_CHECK(read_set(said, &plan_sets[i], set_of(plans, &plan_sets[i]), error), status,
                     done);
    if (ty_json_has(said, "uneven_stages"))
        TY_CHECK(ty_json_bool(said, "uneven_stages", &plans->uneven_stages, error), status, done);
    if (ty_json_has(said, "late_gradients"))
        TY_CHECK(ty_json_bool(said, "late_gradients", &plans->late_gradients, error), status, done);
    if (ty_json_has(said, "elementwise_of_experts"))
        TY_CHECK(
            ty_json_bool(said, "elementwise_of_experts", &plans->elementwise_of_experts, error),
            status, done);
    status = ty_json_end(said, error);
done:
    return status;
}

ty_stack_plans ty_stack_all_plans(void)
{
    return (ty_stack_plans){.schedules = (1u << TY_SCHEDULE_COUNT) - 1,
                            .compressions = (1u << TY_COMPRESSION_COUNT) - 1,
                            .recomputes = (1u << TY_RECOMPUTE_COUNT) - 1,
                            .zero_levels = (1u << 4) - 1,
                            .lanes = (1u << TY_LANE_KIND_COUNT) - 1,
                            .uneven_stages = true,
                            .late_gradients = true};
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
    ty_text_addf(text, "; stages %s; gradients %s",
                 plans.uneven_stages ? "with replicas of their own" : "with equal replicas",
                 plans.late_gradients ? "may be late" : "never late");
    if (plans.elementwise_of_experts)
        ty_text_add(text, "; elementwise where all blocks have routed experts and none shared");
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
    /* In the order of plan_sets; -1: nothing of it is used. */
    const int used[PLAN_SET_COUNT] = {use->stages > 1 ? use->schedule : -1, use->compression,
                                      use->recompute, use->zero};
    ty_status status = TY_OK;

    for (int k = 0; k < TY_LANE_KIND_COUNT; k++)
        if (use->lanes[k] > 1 && !ty_stack_has(can.lanes, k))
            return ty_fail(error, TY_EINVAL, "%s has no %s parallelism; found %u", whose,
                           lane_name(k), use->lanes[k]);
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
