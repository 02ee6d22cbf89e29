/* Where stages may begin: at every cut that one tensor crosses, and inside what lies between two of
 * them where several heavy layers do.
 *
 * Between two neighbouring heavy layers one position stands for all: that which fewest bytes cross,
 * the last of equals. The others differ from it by light layers alone. This is a choice, not a
 * proof; a piece with one heavy layer, as half a transformer's block is, is balanced by no cut
 * inside it, and its cuts move twice the bytes. */
#include "candidate.h"

/* A share of the network's work or parameters from which on a layer is heavy: a fourth of a stage
 * in the deepest pipelines that are searched densely. */
#define HEAVY_SHARE (1.0 / 256)

typedef struct positions {
    const ty_workload *workload;
    double flop, measured_s, parameter_bytes; /* of all; opaque layers have times alone */
    uint32_t *list, count;
} positions;

static bool is_heavy(const positions *p, uint32_t layer)
{
    const ty_layer *l = &p->workload->layers[layer];

    return l->forward_flop > HEAVY_SHARE * p->flop ||
           l->measured_forward_s > HEAVY_SHARE * p->measured_s ||
           (double)l->parameter_bytes > HEAVY_SHARE * p->parameter_bytes;
}

/* The position in (first, last] that fewest bytes cross; none before `lowest`. */
static void add_between(positions *p, uint32_t first, uint32_t last, uint32_t lowest)
{
    uint32_t best = 0;
    uint64_t least = 0;

    for (uint32_t at = first + 1 > lowest ? first + 1 : lowest; at <= last; at++) {
        const uint64_t bytes = ty_workload_cut_bytes(p->workload, at);
        if (best == 0 || bytes <= least) {
            best = at;
            least = bytes;
        }
    }
    if (best > 0)
        p->list[p->count++] = best;
}

ty_status ty_cut_positions(const ty_workload *workload, uint32_t least, uint32_t **out,
                           uint32_t *count, ty_error *error)
{
    const uint32_t layers = workload->layer_count;
    uint32_t lowest = layers; /* the first position that a stage may begin at, but 0 */
    positions p = {.workload = workload,
                   .flop = ty_workload_forward_flop(workload, 0, layers),
                   .parameter_bytes = (double)ty_workload_parameter_bytes(workload, 0, layers)};
    uint32_t *narrow = NULL, narrow_count = 0, first = 0;

    TY_TRY(ty_workload_cuts(workload, &narrow, &narrow_count, error));
    while (lowest > 1 && workload->layers[lowest - 1].input_count > 0)
        lowest--;
    for (uint32_t l = 0; l < layers; l++)
        p.measured_s += workload->layers[l].measured_forward_s;
    if ((p.list = ty_alloc(layers, sizeof *p.list)) == NULL) {
        ty_free(narrow);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    for (uint32_t i = 0; i <= narrow_count; i++) {
        /* Inside layers [first, end), which no cut of one tensor divides. */
        uint32_t heavy = TY_NO_LAYER;
        for (uint32_t l = first; l < (i < narrow_count ? narrow[i] : layers); l++) {
            if (!is_heavy(&p, l))
                continue;
            if (heavy != TY_NO_LAYER)
                add_between(&p, heavy, l, lowest);
            heavy = l;
        }
        if (i < narrow_count)
            first = p.list[p.count++] = narrow[i];
    }
    if (p.count < least) {
        p.count = 0;
        for (uint32_t at = lowest; at < layers; at++)
            p.list[p.count++] = at;
    }
    ty_free(narrow);
    *out = p.list;
    *count = p.count;
    return TY_OK;
}
