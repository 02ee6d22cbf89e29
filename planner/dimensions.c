/* What else can be divided where layers and samples alone do not fit: the cheapest first. */
#include "candidate.h"

/* The devices of the smallest host: lanes talk in every layer, so they stay inside one. */
static uint32_t smallest_host(const search_question *q)
{
    const uint32_t hosts = ty_cluster_host_count(q->cluster);
    uint32_t smallest = UINT32_MAX, *counts = ty_alloc(hosts, sizeof *counts);

    if (counts == NULL)
        return 1;
    for (uint32_t d = 0; d < q->device_count; d++)
        counts[ty_cluster_device_host(q->cluster, d)]++;
    for (uint32_t h = 0; h < hosts; h++)
        if (counts[h] > 0 && counts[h] < smallest)
            smallest = counts[h];
    ty_free(counts);
    return smallest;
}

uint32_t ty_dimensions_propose(const search_question *q, ty_plan_dimensions out[TY_MOST_DIMENSIONS])
{
    static const ty_recompute recomputes[] = {TY_RECOMPUTE_NONE, TY_RECOMPUTE_SELECTIVE,
                                              TY_RECOMPUTE_FULL};
    const uint32_t widest = smallest_host(q);
    uint32_t count = 0;

    for (uint32_t lanes = 1; lanes <= widest; lanes++) {
        if (widest % lanes != 0 || q->device_count % lanes != 0 ||
            ty_tensor_check(q->workload, lanes, NULL) != TY_OK)
            continue;
        for (size_t r = 0; r < sizeof recomputes / sizeof recomputes[0]; r++)
            for (uint32_t zero = 0; zero <= 3 && count < TY_MOST_DIMENSIONS; zero++) {
                if (lanes == 1 && r == 0 && zero == 0)
                    continue;
                if (zero == 2) /* gradients are the smallest part; 3 contains it */
                    continue;
                out[count++] = (ty_plan_dimensions){.tensor_parallel = lanes,
                                                    .sequence_parallel = lanes > 1,
                                                    .zero = zero,
                                                    .recompute = recomputes[r]};
            }
    }
    return count;
}
