/* Time and memory of one stage of Piper's: bounds from sums over ideals, then the layers
 * themselves, then the choice of a variant for each. */
#include "piper_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Taking a layer's other variant. */
typedef struct piper_swap {
    double lost_s_per_byte, lost_s, saved_bytes;
    uint32_t at; /* place in the stage */
} piper_swap;

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "piper: out of memory");
}

/* ---- What holds for all stages --------------------------------------------------------------- */

static ty_status find_tensors(piper_costs *c, ty_error *error)
{
    const ty_piper_input *in = c->input;
    uint32_t total = 0;

    for (uint32_t v = 0; v < in->layer_count; v++)
        total += in->layers[v].degree_count;
    c->tensors = ty_arena_alloc(c->arena, (size_t)total + 1, sizeof *c->tensors);
    if (c->tensors == NULL)
        return out_of_memory(error);
    for (uint32_t last = 0;;) { /* the next larger one, until there is none */
        uint32_t next = UINT32_MAX;
        for (uint32_t v = 0; v < in->layer_count; v++)
            for (uint32_t i = 0; i < in->layers[v].degree_count; i++) {
                uint32_t tensor = in->layers[v].degrees[i].tensor;
                next = tensor > last && tensor < next ? tensor : next;
            }
        if (next == UINT32_MAX)
            return TY_OK;
        c->tensors[c->tensor_count++] = last = next;
    }
}

static ty_status index_degrees(piper_costs *c, ty_error *error)
{
    const ty_piper_input *in = c->input;
    const uint32_t n = in->layer_count;

    c->degrees =
        ty_arena_alloc(c->arena, (size_t)n * (c->tensor_count + 1), sizeof(ty_piper_degree *));
    c->least_device_s = ty_arena_alloc(c->arena, n, sizeof *c->least_device_s);
    if (c->degrees == NULL || c->least_device_s == NULL)
        return out_of_memory(error);
    for (uint32_t v = 0; v < n; v++) {
        c->least_device_s[v] = HUGE_VAL;
        for (uint32_t i = 0; i < in->layers[v].degree_count; i++) {
            const ty_piper_degree *degree = &in->layers[v].degrees[i];
            uint32_t t = 0;
            while (c->tensors[t] != degree->tensor)
                t++;
            c->degrees[(size_t)t * n + v] = degree;
            for (uint32_t k = 0; k < degree->variant_count; k++)
                c->least_device_s[v] =
                    fmin(c->least_device_s[v], degree->variants[k].time_s * degree->tensor);
        }
        if (c->least_device_s[v] == HUGE_VAL)
            return ty_fail(error, TY_EINVAL, "layer %llu: found no way to run it, expected one",
                           (unsigned long long)in->layers[v].id);
    }
    return TY_OK;
}

static ty_status index_edges(piper_costs *c, ty_error *error)
{
    const ty_piper_input *in = c->input;
    uint32_t *at = ty_arena_alloc(c->arena, in->layer_count, sizeof *at);

    c->edge_starts = ty_arena_alloc(c->arena, (size_t)in->layer_count + 1, sizeof(uint32_t));
    c->edges = ty_arena_alloc(c->arena, (size_t)in->edge_count * 2 + 1, sizeof(uint32_t));
    if (at == NULL || c->edge_starts == NULL || c->edges == NULL)
        return out_of_memory(error);
    for (uint32_t e = 0; e < in->edge_count; e++) {
        c->edge_starts[in->edges[e].from + 1]++;
        c->edge_starts[in->edges[e].to + 1]++;
    }
    for (uint32_t v = 0; v < in->layer_count; v++)
        c->edge_starts[v + 1] += c->edge_starts[v];
    for (uint32_t e = 0; e < in->edge_count; e++) {
        uint32_t from = in->edges[e].from, to = in->edges[e].to;
        c->edges[c->edge_starts[from] + at[from]++] = e;
        c->edges[c->edge_starts[to] + at[to]++] = e;
    }
    return TY_OK;
}

static bool is_figure(double value)
{
    return value >= 0 && value < HUGE_VAL;
}

static ty_status check_input(const ty_piper_input *in, ty_error *error)
{
    if (in->layer_count == 0 || in->devices == 0 || in->devices > TY_MOST_DEVICES ||
        in->micro_batches == 0)
        return ty_fail(error, TY_EINVAL,
                       "found %u layers, %u devices and %u micro-batches, expected at least one of "
                       "each and at most %d devices",
                       in->layer_count, in->devices, in->micro_batches, TY_MOST_DEVICES);
    if (!is_figure(in->memory_bytes) || !is_figure(in->bandwidth_bytes_per_s) ||
        in->bandwidth_bytes_per_s == 0)
        return ty_fail(error, TY_EINVAL,
                       "found %g bytes of memory and %g bytes/s, expected finite numbers > 0",
                       in->memory_bytes, in->bandwidth_bytes_per_s);
    return TY_OK;
}

ty_status piper_costs_make(const ty_piper_input *input, piper_costs *out, ty_error *error)
{
    ty_status status = TY_OK;
    piper_costs c = {.input = input};
    const size_t n = input->layer_count;

    TY_CHECK(check_input(input, error), status, cleanup);
    c.arena = ty_arena_new();
    if (c.arena == NULL)
        return out_of_memory(error);
    TY_CHECK(find_tensors(&c, error), status, cleanup);
    TY_CHECK(index_degrees(&c, error), status, cleanup);
    TY_CHECK(index_edges(&c, error), status, cleanup);
    c.layers = ty_arena_alloc(c.arena, n, sizeof *c.layers);
    c.picks = ty_arena_alloc(c.arena, n, sizeof *c.picks);
    c.cut_bytes = ty_arena_alloc(c.arena, n, sizeof *c.cut_bytes);
    c.swaps = ty_arena_alloc(c.arena, n, sizeof *c.swaps);
    if (c.layers == NULL || c.picks == NULL || c.cut_bytes == NULL || c.swaps == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    *out = c;
    return TY_OK;

cleanup:
    ty_arena_free(c.arena);
    return status;
}

void piper_costs_clear(piper_costs *costs)
{
    ty_arena_free(costs->arena);
    *costs = (piper_costs){0};
}

/* The least that a layer costs at a degree, or that it lacks it. */
static void add_least(piper_costs *c, const ty_piper_degree *degree, size_t at)
{
    double time_s = HUGE_VAL, bytes = HUGE_VAL;

    if (degree == NULL) {
        c->lacking[at]++;
        return;
    }
    for (uint32_t k = 0; k < degree->variant_count; k++) {
        time_s = fmin(time_s, degree->variants[k].time_s);
        bytes = fmin(bytes, degree->variants[k].parameter_bytes);
    }
    c->compute_s[at] += time_s;
    c->parameter_bytes[at] += bytes;
}

ty_status piper_costs_sum(piper_costs *costs, const ty_ideals *ideals, ty_error *error)
{
    const size_t cells = (size_t)costs->tensor_count * ideals->count;
    const uint32_t n = costs->input->layer_count;

    costs->ideal_count = ideals->count;
    costs->compute_s = ty_arena_alloc(costs->arena, cells, sizeof(double));
    costs->parameter_bytes = ty_arena_alloc(costs->arena, cells, sizeof(double));
    costs->lacking = ty_arena_alloc(costs->arena, cells, sizeof(uint32_t));
    if (costs->compute_s == NULL || costs->parameter_bytes == NULL || costs->lacking == NULL)
        return out_of_memory(error);
    for (uint32_t t = 0; t < costs->tensor_count; t++)
        for (uint32_t i = 0; i < ideals->count; i++)
            for (uint32_t v = 0; v < n; v++)
                if (ty_ideal_has(ideals, i, v))
                    add_least(costs, costs->degrees[(size_t)t * n + v],
                              (size_t)t * ideals->count + i);
    return TY_OK;
}

/* ---- One stage ------------------------------------------------------------------------------- */

void piper_stage_begin(piper_stage *stage, piper_costs *costs, const ty_ideals *ideals,
                       uint32_t from, uint32_t to)
{
    *stage = (piper_stage){
        .costs = costs, .ideals = ideals, .from = from, .to = to, .degree = UINT32_MAX};
}

bool piper_stage_has(const piper_stage *stage, uint32_t degree)
{
    const uint32_t *lacking = &stage->costs->lacking[(size_t)degree * stage->costs->ideal_count];
    return lacking[stage->from] == lacking[stage->to];
}

/* Four times the parameters, shared out over a batch; see ty_divide_piper. */
static double exchange_bytes(const ty_piper_input *in, double parameter_bytes, double replicas)
{
    return 4 * (replicas - 1) * parameter_bytes / replicas / in->micro_batches;
}

double piper_least_s(const piper_stage *stage, uint32_t degree, uint32_t replicas)
{
    const piper_costs *c = stage->costs;
    const size_t row = (size_t)degree * c->ideal_count;
    const double compute_s = c->compute_s[row + stage->to] - c->compute_s[row + stage->from];
    const double bytes =
        c->parameter_bytes[row + stage->to] - c->parameter_bytes[row + stage->from];

    return compute_s / replicas +
           exchange_bytes(c->input, bytes, replicas) / c->input->bandwidth_bytes_per_s;
}

static bool is_member(const piper_stage *stage, uint32_t layer)
{
    return ty_ideal_has(stage->ideals, stage->to, layer) &&
           !ty_ideal_has(stage->ideals, stage->from, layer);
}

static const ty_piper_degree *degree_of(const piper_stage *stage, uint32_t place)
{
    const piper_costs *c = stage->costs;
    return c->degrees[(size_t)stage->degree * c->input->layer_count + c->layers[place]];
}

/* Twice (forward and backward) what the edges that leave or enter the stage carry. */
static void find_cut_bytes(const piper_stage *stage, uint32_t place)
{
    const piper_costs *c = stage->costs;
    const ty_piper_input *in = c->input;
    const ty_piper_degree *degree = degree_of(stage, place);
    const uint32_t v = c->layers[place];

    c->cut_bytes[place][0] = c->cut_bytes[place][1] = 0;
    for (uint32_t i = c->edge_starts[v]; i < c->edge_starts[v + 1]; i++) {
        const uint32_t e = c->edges[i];
        const bool is_in = in->edges[e].to == v;
        if (is_member(stage, is_in ? in->edges[e].from : in->edges[e].to))
            continue;
        for (uint32_t k = 0; k < degree->variant_count; k++) {
            const ty_piper_variant *variant = &degree->variants[k];
            double sync = is_in ? variant->forward_bytes[e] : variant->backward_bytes[e];
            c->cut_bytes[place][k] += 2 * (in->edge_bytes[e] + sync);
        }
    }
}

static void prepare(piper_stage *stage, uint32_t degree)
{
    if (stage->layer_count == 0)
        for (uint32_t v = 0; v < stage->costs->input->layer_count; v++)
            if (is_member(stage, v))
                stage->costs->layers[stage->layer_count++] = v;
    if (stage->degree == degree)
        return;
    stage->degree = degree;
    stage->replicas = 0;
    for (uint32_t place = 0; place < stage->layer_count; place++)
        find_cut_bytes(stage, place);
}

static double layer_s(const piper_stage *stage, uint32_t place, uint32_t variant, uint32_t replicas)
{
    const ty_piper_input *in = stage->costs->input;
    const ty_piper_variant *v = &degree_of(stage, place)->variants[variant];
    const double d = replicas;

    return (stage->costs->cut_bytes[place][variant] / d +
            exchange_bytes(in, v->parameter_bytes, d)) /
               in->bandwidth_bytes_per_s +
           v->time_s / d;
}

static double layer_bytes(const piper_stage *stage, uint32_t place, uint32_t variant,
                          uint32_t in_flight)
{
    const ty_piper_variant *v = &degree_of(stage, place)->variants[variant];
    return v->memory_bytes_per_micro_batch * in_flight + v->memory_bytes;
}

/* ---- Variants -------------------------------------------------------------------------------- */

static int by_loss(const void *left, const void *right)
{
    const piper_swap *a = left, *b = right;
    if (a->lost_s_per_byte != b->lost_s_per_byte)
        return a->lost_s_per_byte < b->lost_s_per_byte ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* The fastest variant of each layer; `bytes` and `time_s` get the sums. */
static void pick_fastest(piper_stage *stage, uint32_t replicas, uint32_t in_flight)
{
    stage->time_s = stage->memory_bytes = 0;
    for (uint32_t place = 0; place < stage->layer_count; place++) {
        uint32_t pick = 0;
        double time_s = layer_s(stage, place, 0, replicas);
        if (degree_of(stage, place)->variant_count > 1) {
            double other_s = layer_s(stage, place, 1, replicas);
            pick = other_s < time_s;
            time_s = pick == 1 ? other_s : time_s;
        }
        stage->costs->picks[place] = pick;
        stage->time_s += time_s;
        stage->memory_bytes += layer_bytes(stage, place, pick, in_flight);
    }
}

/* Below this a byte saved is rounding; Piper's own figure (algo.cpp, solveKnapsack). */
#define LEAST_BYTES 1e-9

static uint32_t list_swaps(const piper_stage *stage, uint32_t replicas, uint32_t in_flight)
{
    piper_swap *swaps = stage->costs->swaps;
    uint32_t count = 0;

    for (uint32_t place = 0; place < stage->layer_count; place++) {
        const uint32_t pick = stage->costs->picks[place];
        double saved, lost_s;
        if (degree_of(stage, place)->variant_count < 2)
            continue;
        saved = layer_bytes(stage, place, pick, in_flight) -
                layer_bytes(stage, place, 1 - pick, in_flight);
        if (saved <= LEAST_BYTES)
            continue;
        lost_s = layer_s(stage, place, 1 - pick, replicas) - layer_s(stage, place, pick, replicas);
        swaps[count++] = (piper_swap){lost_s / saved, lost_s, saved, place};
    }
    qsort(swaps, count, sizeof *swaps, by_loss);
    return count;
}

/* Swaps variants until the stage fits; false where it never does. */
static bool make_fit(piper_stage *stage, uint32_t replicas, uint32_t in_flight)
{
    const double limit = stage->costs->input->memory_bytes;
    const piper_swap *swaps = stage->costs->swaps;
    uint32_t count;

    if (stage->memory_bytes <= limit)
        return true;
    count = list_swaps(stage, replicas, in_flight);
    for (uint32_t i = 0; i < count && stage->memory_bytes > limit; i++) {
        stage->costs->picks[swaps[i].at] ^= 1;
        stage->memory_bytes -= swaps[i].saved_bytes;
        stage->time_s += swaps[i].lost_s;
    }
    return stage->memory_bytes <= limit;
}

double piper_stage_s(piper_stage *stage, uint32_t degree, uint32_t replicas,
                     uint32_t total_replicas)
{
    const uint32_t in_flight = (total_replicas + replicas - 1) / replicas;

    prepare(stage, degree);
    if (stage->replicas == replicas && stage->in_flight == in_flight)
        return stage->time_s;
    stage->replicas = replicas;
    stage->in_flight = in_flight;
    pick_fastest(stage, replicas, in_flight);
    if (!make_fit(stage, replicas, in_flight))
        stage->time_s = HUGE_VAL;
    return stage->time_s;
}

void piper_stage_describe(piper_stage *stage, uint32_t degree, uint32_t total_replicas,
                          ty_piper_stage *out)
{
    out->time_s = piper_stage_s(stage, degree, out->replicas, total_replicas);
    out->memory_bytes = stage->memory_bytes;
    out->layer_count = stage->layer_count;
    for (uint32_t place = 0; place < stage->layer_count; place++) {
        out->layers[place] = stage->costs->layers[place];
        out->second_count += stage->costs->picks[place];
    }
}
