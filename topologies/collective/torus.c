/* The box that a group of devices fills on a torus. */
#include "cluster.h"
#include "ty_topologies.h"

#include <math.h>

static const cluster_torus *torus_of(const ty_cluster *cluster, uint32_t device)
{
    for (uint32_t t = 0; t < cluster->torus_count; t++)
        if (device - cluster->tori[t].first < cluster->tori[t].count)
            return &cluster->tori[t];
    return NULL;
}

/* The members' places along an axis; false if they are not evenly spaced.
 * @param is_taken [size] */
static bool read_axis(const bool *is_taken, uint32_t size, bool is_closed, ty_torus_axis *axis)
{
    uint32_t last = NO_INDEX;

    *axis = (ty_torus_axis){.spacing = 1};
    for (uint32_t at = 0; at < size; at++) {
        if (!is_taken[at])
            continue;
        if (axis->members == 1)
            axis->spacing = at - last;
        else if (axis->members > 1 && at - last != axis->spacing)
            return false;
        axis->members++;
        last = at;
    }
    axis->is_ring =
        is_closed && axis->members > 2 && (uint64_t)axis->members * axis->spacing == size;
    return true;
}

/* The slowest link from members to the next chip along an axis. */
static void see_links(const ty_cluster *cluster, const cluster_torus *t, const uint32_t *devices,
                      uint32_t count, uint32_t stride, uint32_t size, ty_torus_axis *axis)
{
    axis->bandwidth_bytes_per_s = HUGE_VAL;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = (devices[i] - t->first) / stride % size;
        const uint32_t next = at + 1 < size ? devices[i] + stride : devices[i] - at * stride;
        const uint32_t l =
            ty_cluster_link_between(cluster, cluster->routers[devices[i]], cluster->routers[next]);
        if (l == NO_INDEX) /* the edge of a mesh */
            continue;
        axis->bandwidth_bytes_per_s =
            fmin(axis->bandwidth_bytes_per_s, cluster->links[l].bandwidth_bytes_per_s);
        axis->latency_s = fmax(axis->latency_s, cluster->links[l].latency_s);
    }
}

ty_status ty_cluster_torus(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                           ty_torus *out, ty_error *error)
{
    const cluster_torus *t = count > 1 ? torus_of(cluster, devices[0]) : NULL;
    bool *is_taken;
    ty_torus torus = {0};
    uint64_t members = 1;
    size_t places = 0;

    *out = (ty_torus){0};
    for (uint32_t i = 0; t != NULL && i < count; i++)
        if (devices[i] - t->first >= t->count)
            return TY_OK;
    if (t == NULL)
        return TY_OK;
    for (uint32_t axis = 0; axis < t->axis_count; axis++)
        places += t->sizes[axis];
    TY_TRY(ty_check_memory((is_taken = ty_alloc(places, sizeof *is_taken)) != NULL, error));
    places = 0;
    for (uint32_t axis = 0, stride = 1; axis < t->axis_count; axis++) {
        const uint32_t size = t->sizes[axis];
        ty_torus_axis *found = &torus.axes[torus.axis_count], read;
        for (uint32_t i = 0; i < count; i++)
            is_taken[places + (devices[i] - t->first) / stride % size] = true;
        if (!read_axis(is_taken + places, size, t->is_closed[axis], &read))
            goto cleanup;
        members *= read.members;
        if (read.members > 1) {
            see_links(cluster, t, devices, count, stride, size, &read);
            *found = read;
            torus.axis_count++;
        }
        places += size;
        stride *= size;
    }
    if (members == count)
        *out = torus;
cleanup:
    ty_free(is_taken);
    return TY_OK;
}
