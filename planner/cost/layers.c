/* Runs of layers: equal ones are priced once, and the launch time of a slow host is added. */
#include "kernels.h"

#include <math.h>
#include <string.h>

/* Layers with equal cost, regardless of their names. */
static bool are_alike(const ty_workload *w, uint32_t a, uint32_t b)
{
    const ty_layer *x = &w->layers[a], *y = &w->layers[b];

    if (x->kind != y->kind || x->input_count != y->input_count || x->is_frozen != y->is_frozen ||
        (x->tied_to == TY_NO_LAYER) != (y->tied_to == TY_NO_LAYER) ||
        ty_layer_row_of(x)->is_opaque || x->forward_flop != y->forward_flop ||
        x->backward_flop != y->backward_flop || x->traffic_bytes != y->traffic_bytes ||
        x->parameter_bytes != y->parameter_bytes ||
        memcmp(x->attributes, y->attributes, sizeof x->attributes) != 0 ||
        memcmp(&x->output, &y->output, sizeof x->output) != 0 ||
        ty_layer_is_trained(w, a) != ty_layer_is_trained(w, b))
        return false;
    for (uint32_t i = 0; i < x->input_count; i++)
        if (memcmp(ty_layer_input_shape(w, a, i), ty_layer_input_shape(w, b, i),
                   sizeof(ty_shape)) != 0)
            return false;
    return true;
}

/* First layers of their kind: later ones may be copies of them. */
#define MOST_ORIGINALS 64

static ty_status price_layers(const ty_plan *plan, uint32_t first, uint32_t count,
                              const ty_device_type *device, ty_layer_price *out, ty_error *error)
{
    uint32_t originals[MOST_ORIGINALS], known = 0;

    for (uint32_t l = first; l < first + count; l++) {
        uint32_t i = 0;
        while (i < known && !are_alike(plan->workload, originals[i], l))
            i++;
        if (i < known) {
            out[l] = out[originals[i]];
            continue;
        }
        TY_TRY(ty_layer_price_of(plan, l, device, &out[l], error));
        if (known < MOST_ORIGINALS)
            originals[known++] = l;
    }
    return TY_OK;
}

/* The number of tensors that cross the cut before each layer of [first, end), counting the input as
 * one: 1 at the start of a block. */
static ty_status count_crossing(const ty_workload *w, uint32_t first, uint32_t end, int32_t **out,
                                ty_error *error)
{
    int32_t *crossing = ty_alloc((size_t)(end - first) + 1, sizeof *crossing);
    uint32_t *last = ty_alloc(end - first, sizeof *last), last_of_input = 0;

    if (crossing == NULL || last == NULL) {
        ty_free(crossing);
        ty_free(last);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    for (uint32_t l = first; l < end; l++)
        for (uint32_t i = 0; i < w->layers[l].input_count; i++)
            if (w->layers[l].inputs[i] >= first)
                last[w->layers[l].inputs[i] - first] = l - first;
            else
                last_of_input = l - first;
    crossing[1] += last_of_input > 0;
    crossing[last_of_input + 1] -= last_of_input > 0;
    for (uint32_t p = 0; p < end - first; p++)
        if (last[p] > p) { /* crosses the cuts before p + 1 to last[p] */
            crossing[p + 1]++;
            crossing[last[p] + 1]--;
        }
    for (uint32_t p = 1; p <= end - first; p++)
        crossing[p] += crossing[p - 1];
    ty_free(last);
    *out = crossing;
    return TY_OK;
}

/* A block of a transformer is its attention and its mlp, though one tensor crosses between them. */
static bool is_whole(const ty_workload *w, uint32_t first, uint32_t end)
{
    bool has_attention = false, has_mlp = false;

    for (uint32_t l = first; l < end; l++) {
        has_attention = has_attention || ty_layer_has_heads(&w->layers[l]);
        has_mlp = has_mlp || ty_layer_row_of(&w->layers[l])->has_activation;
    }
    return has_mlp || !has_attention;
}

static void wait_for_host(ty_layer_price *prices, uint32_t count, const double *talk_s,
                          bool is_backward)
{
    double device_s = 0, host_s = 0, late_s;

    for (uint32_t i = 0; i < count; i++) {
        const ty_layer_pass *p = is_backward ? &prices[i].backward : &prices[i].forward;
        device_s += p->device_s + (talk_s != NULL ? talk_s[i] : 0);
        host_s += p->host_s;
    }
    late_s = host_s - device_s;
    for (uint32_t i = 0; late_s > 0 && i < count; i++) {
        ty_layer_pass *p = is_backward ? &prices[i].backward : &prices[i].forward;
        p->device_s += late_s * p->host_s / host_s;
    }
}

ty_status ty_layer_prices_of(const ty_plan *plan, uint32_t first, uint32_t count,
                             const ty_device_type *device, double *const talk_s[2],
                             const bool *takes_part, ty_layer_price *out, ty_error *error)
{
    int32_t *crossing = NULL;
    ty_status status = TY_OK;

    TY_CHECK(price_layers(plan, first, count, device, out, error), status, done);
    for (uint32_t l = first; l < first + count; l++)
        if (!takes_part[l])
            out[l].backward = (ty_layer_pass){0};
    if (!(ty_stack_of(plan)->host_kernel_s > 0) && !(ty_stack_of(plan)->host_collective_s > 0))
        goto done;
    TY_CHECK(count_crossing(plan->workload, first, first + count, &crossing, error), status, done);
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        end = begin + 1;
        while (end < count &&
               (crossing[end] != 1 || !is_whole(plan->workload, first + begin, first + end)))
            end++;
        for (int pass = 0; pass < 2; pass++)
            wait_for_host(&out[first + begin], end - begin,
                          talk_s != NULL ? &talk_s[pass][first + begin] : NULL, pass == 1);
    }
done:
    ty_free(crossing);
    return status;
}
