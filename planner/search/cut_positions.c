/* Layers at which stages may begin: every cut that one tensor crosses, and cuts between two of
 * these if several heavy layers are in between. Between two neighboring heavy layers, one cut
 * represents all: the one with fewest bytes, the last of equals. The others differ from it only by
 * light layers. This is a heuristic, not a proof. A part with one heavy layer, such as half of a
 * transformer block, has no balancing cut inside, and its cuts send twice the bytes. */
#include "candidate.h"

/* Minimum share of the model's work or parameters of a heavy layer: a fourth of a stage in the
 * deepest pipelines that are searched densely. */
#define HEAVY_SHARE (1.0 / 256)

typedef struct positions {
    const ty_workload *workload;
    double flop, measured_s, parameter_bytes; /* of all; opaque layers have only times */
    uint32_t *list, count;
} positions;

static bool is_heavy(const positions *p, uint32_t layer)
{
    const ty_layer *l = &p->workload->layers[layer];

    return l->forward_flop > HEAVY_SHARE * p->flop ||
           l->measured_forward_s > HEAVY_SHARE * p->measured_s ||
           (double)l->parameter_bytes > HEAVY_SHARE * p->parameter_bytes;
}

/* The position in (first, last] with fewest bytes across; none before `lowest`. */
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
    uint32_t lowest = layers; /* the first position above 0 at which a stage may begin */
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
        /* Positions inside layers [first, end), which no cut of one tensor splits. */
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
