/* Rings in meshes of direct links: Hamiltonian cycles, packed so that each link lane is used once.
 * Backtracking lists all cycles. Then a depth-first search finds the largest set that fits the
 * lanes, bounded by the devices' lanes. For few devices without a cycle, the best ring in which
 * some edges pass through a neighbor. */
#include "cluster.h"
#include "ty_topologies.h"

#include <math.h>
#include <string.h>

enum { MESH_LIMIT = 64, CYCLE_LIMIT = 20000 };
#define STEP_LIMIT 20000000u

typedef struct mesh {
    uint32_t count;
    uint16_t lanes[MESH_LIMIT][MESH_LIMIT];
    double rates[MESH_LIMIT][MESH_LIMIT]; /* per lane */
    uint32_t cycle_count;
    uint8_t *cycles; /* [cycle_count][count] */
    uint32_t steps;
    /* The packing: */
    uint32_t chosen[MESH_LIMIT * 8], chosen_count;
    uint32_t best[MESH_LIMIT * 8], best_count;
    double best_rate;
} mesh;

void ty_ring_set_clear(ty_ring_set *set)
{
    ty_free(set->devices);
    *set = (ty_ring_set){0};
}

static void read_mesh(const ty_cluster *c, const uint32_t *devices, uint32_t count, mesh *m)
{
    m->count = count;
    for (uint32_t a = 0; a < count; a++) {
        uint32_t v = c->device_vertices[devices[a]];
        for (uint32_t p = c->port_starts[v]; p < c->port_starts[v + 1]; p++)
            for (uint32_t b = 0; b < count; b++) {
                const cluster_port *port = &c->ports[p];
                double lanes = floor(c->link_lanes[port->link]);
                if (port->vertex != c->device_vertices[devices[b]] || lanes < 1)
                    continue;
                m->lanes[a][b] = (uint16_t)fmin(m->lanes[a][b] + lanes, 1000);
                m->rates[a][b] = c->link_types[c->link_kinds[port->link]].bandwidth_bytes_per_s;
            }
    }
}

/* ---- Cycles ------------------------------------------------------------------------------ */

/* Continues from path[at - 1]. The last device is larger than the second, so each cycle is listed
 * once. */
static void list_cycles(mesh *m, uint8_t *path, uint32_t at, uint64_t used)
{
    if (m->cycle_count == CYCLE_LIMIT || ++m->steps > STEP_LIMIT)
        return;
    if (at == m->count) {
        bool is_closed = m->lanes[path[at - 1]][0] > 0;
        if (is_closed && (at == 2 || path[1] < path[at - 1]))
            memcpy(m->cycles + (size_t)m->cycle_count++ * m->count, path, m->count);
        return;
    }
    for (uint32_t next = 1; next < m->count; next++)
        if (m->lanes[path[at - 1]][next] > 0 && (used >> next & 1) == 0) {
            path[at] = (uint8_t)next;
            list_cycles(m, path, at + 1, used | (uint64_t)1 << next);
        }
}

/* ---- Packing ----------------------------------------------------------------------------- */

/* With two devices, the cycle uses both directions of one lane. */
static uint32_t edges_of(const mesh *m)
{
    return m->count == 2 ? 1 : m->count;
}

/* Adds a cycle (sign -1: uses its lanes) or removes it (+1). */
static void use_cycle(mesh *m, uint32_t cycle, int sign)
{
    const uint8_t *path = m->cycles + (size_t)cycle * m->count;

    for (uint32_t i = 0; i < edges_of(m); i++) {
        uint8_t a = path[i], b = path[(i + 1) % m->count];
        m->lanes[a][b] = (uint16_t)(m->lanes[a][b] + sign);
        m->lanes[b][a] = (uint16_t)(m->lanes[b][a] + sign);
    }
}

static bool fits(const mesh *m, uint32_t cycle)
{
    const uint8_t *path = m->cycles + (size_t)cycle * m->count;

    for (uint32_t i = 0; i < edges_of(m); i++)
        if (m->lanes[path[i]][path[(i + 1) % m->count]] == 0)
            return false;
    return true;
}

static double rate_of(const mesh *m, uint32_t cycle)
{
    const uint8_t *path = m->cycles + (size_t)cycle * m->count;
    double rate = HUGE_VAL;

    for (uint32_t i = 0; i < m->count; i++)
        rate = fmin(rate, m->rates[path[i]][path[(i + 1) % m->count]]);
    return rate;
}

/* Every ring uses two lanes per device, except for two devices. */
static uint32_t most_rings(const mesh *m)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t a = 0; a < m->count; a++) {
        uint32_t lanes = 0;
        for (uint32_t b = 0; b < m->count; b++)
            lanes += m->lanes[a][b];
        if (m->count > 2)
            lanes /= 2;
        if (lanes < least)
            least = lanes;
    }
    return least;
}

static void keep_best(mesh *m)
{
    double rate = 0;

    for (uint32_t i = 0; i < m->chosen_count; i++)
        rate += rate_of(m, m->chosen[i]);
    if (m->chosen_count < m->best_count ||
        (m->chosen_count == m->best_count && rate <= m->best_rate))
        return;
    memcpy(m->best, m->chosen, m->chosen_count * sizeof m->chosen[0]);
    m->best_count = m->chosen_count;
    m->best_rate = rate;
}

/* Tries cycles from `first` on, each repeatedly. True if no more rings are possible. */
static bool pack(mesh *m, uint32_t first, uint32_t bound)
{
    keep_best(m);
    if (m->best_count == bound || m->chosen_count == sizeof m->chosen / sizeof m->chosen[0])
        return true;
    if (m->chosen_count + most_rings(m) <= m->best_count)
        return false;
    for (uint32_t cycle = first; cycle < m->cycle_count; cycle++) {
        bool is_done;
        if (++m->steps > STEP_LIMIT)
            return true;
        if (!fits(m, cycle))
            continue;
        m->chosen[m->chosen_count++] = cycle;
        use_cycle(m, cycle, -1);
        is_done = pack(m, cycle, bound);
        use_cycle(m, cycle, 1);
        m->chosen_count--;
        if (is_done)
            return true;
    }
    return false;
}

/* ---- Through neighbors ------------------------------------------------------------------ */

enum { WALK_LIMIT = 9 };
typedef struct walk {
    uint8_t order[WALK_LIMIT], best[WALK_LIMIT];
    double best_rate;
} walk;

static double left_of(const mesh *m, uint16_t uses[WALK_LIMIT][WALK_LIMIT], uint32_t a, uint32_t b)
{
    return m->lanes[a][b] * m->rates[a][b] / (uses[a][b] + 1);
}

/* The device with lanes to both and the most left; `count`: none. */
static uint32_t between(const mesh *m, uint16_t uses[WALK_LIMIT][WALK_LIMIT], uint32_t a,
                        uint32_t b)
{
    uint32_t best = m->count;
    double most = 0;

    for (uint32_t v = 0; v < m->count; v++) {
        const double left = fmin(left_of(m, uses, a, v), left_of(m, uses, v, b));
        if (v != a && v != b && left > most) {
            most = left;
            best = v;
        }
    }
    return best;
}

/* Rate per direction of a ring in this order that runs both ways; 0: it cannot be closed. */
static double walk_rate(const mesh *m, const uint8_t *order)
{
    uint16_t uses[WALK_LIMIT][WALK_LIMIT] = {{0}};
    double rate = HUGE_VAL;

    for (uint32_t i = 0; i < m->count; i++) {
        const uint32_t a = order[i], b = order[(i + 1) % m->count];
        uint32_t v = b;
        if (m->lanes[a][b] == 0 && (v = between(m, uses, a, b)) == m->count)
            return 0;
        uses[a][v]++;
        uses[v][a]++;
        if (v != b) {
            uses[v][b]++;
            uses[b][v]++;
        }
    }
    for (uint32_t a = 0; a < m->count; a++)
        for (uint32_t b = 0; b < a; b++)
            if (uses[a][b] > 0)
                rate = fmin(rate, m->lanes[a][b] * m->rates[a][b] / uses[a][b]);
    return rate;
}

/* Tries every order of the devices after `at`. */
static void try_walks(const mesh *m, walk *w, uint32_t at)
{
    if (at == m->count) {
        const double rate = walk_rate(m, w->order);
        if (rate > w->best_rate) {
            w->best_rate = rate;
            memcpy(w->best, w->order, sizeof w->best);
        }
        return;
    }
    for (uint32_t i = at; i < m->count; i++) {
        const uint8_t kept = w->order[at];
        w->order[at] = w->order[i];
        w->order[i] = kept;
        try_walks(m, w, at + 1);
        w->order[i] = w->order[at];
        w->order[at] = kept;
    }
}

/* The ring starts at two devices with a direct link. */
static ty_status take_walk(const mesh *m, const walk *w, const uint32_t *devices, ty_ring_set *out,
                           ty_error *error)
{
    uint32_t *list = ty_alloc(m->count, sizeof *list), first = 0;

    TY_TRY(ty_check_memory(list != NULL, error));
    while (m->lanes[w->best[first]][w->best[(first + 1) % m->count]] == 0)
        first++;
    for (uint32_t i = 0; i < m->count; i++)
        list[i] = devices[w->best[(first + i) % m->count]];
    *out = (ty_ring_set){1, m->count, list, w->best_rate, false};
    return TY_OK;
}

/* ---- The whole --------------------------------------------------------------------------- */

static ty_status take_rings(const mesh *m, const uint32_t *devices, ty_ring_set *out,
                            ty_error *error)
{
    uint32_t *list = ty_alloc((size_t)m->best_count * m->count, sizeof *list);

    TY_TRY(ty_check_memory(list != NULL, error));
    for (uint32_t r = 0; r < m->best_count; r++)
        for (uint32_t i = 0; i < m->count; i++)
            list[(size_t)r * m->count + i] = devices[m->cycles[(size_t)m->best[r] * m->count + i]];
    *out = (ty_ring_set){m->best_count, m->count, list, m->best_rate, false};
    return TY_OK;
}

static ty_status take_route(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                            ty_ring_set *out, ty_error *error)
{
    double bandwidth, latency;
    uint32_t *list;

    TY_TRY(ty_cluster_ring(cluster, devices, count, &bandwidth, &latency, error));
    TY_TRY(ty_check_memory((list = ty_alloc(count, sizeof *list)) != NULL, error));
    memcpy(list, devices, count * sizeof *list);
    *out = (ty_ring_set){1, count, list, bandwidth, true};
    return TY_OK;
}

ty_status ty_cluster_find_rings(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                                ty_ring_set *out, ty_error *error)
{
    uint8_t path[MESH_LIMIT] = {0};
    double bandwidth, latency;
    walk around = {.best_rate = 0};
    mesh *m = NULL;
    ty_status status;

    if (count < 2 || count > MESH_LIMIT)
        return ty_fail(error, TY_EINVAL, "rings: found %u devices, expected 2 to %d", count,
                       MESH_LIMIT);
    /* refuses missing and repeated devices */
    TY_CHECK(ty_cluster_ring(cluster, devices, count, &bandwidth, &latency, error), status, done);
    m = ty_alloc(1, sizeof *m);
    TY_CHECK(
        ty_check_memory(m != NULL && (m->cycles = ty_alloc((size_t)CYCLE_LIMIT * count, 1)) != NULL,
                        error),
        status, done);
    read_mesh(cluster, devices, count, m);
    list_cycles(m, path, 1, 1);
    m->steps = 0;
    (void)pack(m, 0, most_rings(m));
    if (m->best_count == 0 && count > 2 && count <= WALK_LIMIT) {
        for (uint32_t i = 0; i < count; i++)
            around.order[i] = (uint8_t)i;
        try_walks(m, &around, 1);
    }
    status = m->best_count > 0      ? take_rings(m, devices, out, error)
             : around.best_rate > 0 ? take_walk(m, &around, devices, out, error)
                                    : take_route(cluster, devices, count, out, error);
done:
    if (m != NULL)
        ty_free(m->cycles);
    ty_free(m);
    return status;
}
