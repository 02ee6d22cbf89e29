/* Layouts in the order of their bounds: first families, which share a cell and the DP, TP, CP, EP
 * and PP sizes, then every member of the first ones. */
#include "layout_space.h"

#include "ty_base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All layouts with the same parallel sizes, micro-batches and recomputation. */
typedef struct family {
    layout first; /* without the fields in which members differ */
    uint32_t cell, grid, group;
    double bound_s; /* of all members */
} family;

/* Micro-batch sizes that fit, for one sharding and recomputation: memory grows with them. */
typedef struct memory_group {
    uint32_t fitting;     /* the largest that is known to fit, with everything sharded */
    uint32_t refusing;    /* the smallest that is known not to; UINT32_MAX: none */
    uint32_t smallest;    /* of its families */
    uint64_t least_bytes; /* of the smallest, with everything sharded; 0: not known yet */
} memory_group;

typedef struct member {
    layout layout;
    double bound_s;
    uint32_t family;
} member;

struct ty_layouts {
    layout_space space;
    layout_cell *cells;
    layout_grid_costs *grids;
    memory_group *groups;
    family *families;
    member *members; /* a heap by member_is_before */
    uint32_t cell_count, grid_count, group_count, family_count, member_count;
    uint32_t cell_room, grid_room, group_room, family_room, member_room;
    uint32_t next_family; /* those before it are open */
};

/* Makes room for one more. */
static bool reserve(void **items, uint32_t count, uint32_t *room, size_t size)
{
    const uint32_t more = *room > 0 ? 2 * *room : 64;
    void *grown;

    if (count < *room)
        return true;
    if ((grown = ty_resize(*items, more, size)) == NULL)
        return false;
    *items = grown;
    *room = more;
    return true;
}

/* ---- Families ------------------------------------------------------------------------------ */

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Ties: the simpler first, so that the same question gives the same answer. */
static int compare_layouts(const layout *a, const layout *b)
{
    const ty_plan_dimensions *x = &a->dimensions, *y = &b->dimensions;
    const int orders[] = {compare(x->expert_parallel, y->expert_parallel),
                          compare(x->context_parallel, y->context_parallel),
                          compare(x->tensor_parallel, y->tensor_parallel),
                          compare((uint64_t)x->recompute, (uint64_t)y->recompute),
                          compare(x->zero, y->zero),
                          compare(x->virtual_stages, y->virtual_stages),
                          compare(a->pipeline_size, b->pipeline_size),
                          compare(b->micro_batch_size, a->micro_batch_size),
                          compare((uint64_t)a->compression, (uint64_t)b->compression),
                          compare(b->bucket_bytes, a->bucket_bytes),
                          compare((uint64_t)b->schedule, (uint64_t)a->schedule),
                          compare(x->sequence_parallel, y->sequence_parallel)};

    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (orders[i] != 0)
            return orders[i];
    return 0;
}

static int by_bound(const void *left, const void *right)
{
    const family *a = left, *b = right;

    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s ? -1 : 1;
    return compare_layouts(&a->first, &b->first);
}

/* Of a replica. */
static uint32_t local_micro_batches(const ty_layouts *s, const layout *l)
{
    return s->space.q->global_batch / l->micro_batch_size / l->replicas;
}

/* The schedule of the family's lower bound: all collectives overlap, and no warm-up. */
static double family_bound_s(const ty_layouts *s, const family *f)
{
    layout least = f->first;
    const uint32_t local = local_micro_batches(s, &least);
    double bound_s = HUGE_VAL;

    least.bucket_bytes = 1; /* maximum overlap */
    least.compression = TY_COMPRESSION_NONE;
    for (int k = 0; k < TY_SCHEDULE_COUNT; k++) {
        least.schedule = (ty_schedule)k;
        for (uint32_t virtual_stages = 1;
             virtual_stages <= s->space.block_count / least.pipeline_size; virtual_stages++) {
            least.dimensions.virtual_stages = virtual_stages > 1 ? virtual_stages : 0;
            if (ty_layout_allows_schedule(&s->space, &least, local))
                bound_s = fmin(
                    bound_s, ty_layout_bound_s(
                                 &s->space, &least, &s->cells[f->cell],
                                 &(layout_grid_costs){.latency_s = s->grids[f->grid].latency_s,
                                                      .s_per_byte = s->grids[f->grid].s_per_byte}));
            if (!ty_schedule_at((ty_schedule)k)->is_interleaved)
                break;
        }
    }
    return bound_s;
}

static ty_status add_family(ty_layouts *s, const layout *l, uint32_t cell, uint32_t grid,
                            uint32_t group, ty_error *error)
{
    family f = {.first = *l, .cell = cell, .grid = grid, .group = group};

    f.bound_s = family_bound_s(s, &f);
    if (!isfinite(f.bound_s)) /* no schedule is allowed */
        return TY_OK;
    if (!reserve((void **)&s->families, s->family_count, &s->family_room, sizeof *s->families))
        return out_of_memory(error);
    s->families[s->family_count++] = f;
    if (l->micro_batch_size < s->groups[group].smallest)
        s->groups[group].smallest = l->micro_batch_size;
    return TY_OK;
}

/* For current TP, CP, EP, micro-batch size and recomputation: every combination of DP and PP. */
static ty_status add_grids(ty_layouts *s, layout *l, const uint32_t *grids, const uint32_t *groups,
                           ty_error *error)
{
    const uint32_t ranks = ty_dimensions_width(&l->dimensions);
    const uint32_t stage_replicas = s->space.q->device_count / ranks;
    bool has_cell = false;

    for (uint32_t p = 1; p <= stage_replicas && p <= s->space.block_count; p++) {
        if (!ty_layout_allows_grid(&s->space, ranks, p) ||
            !ty_layout_allows_batch(&s->space, l->dimensions.expert_parallel, stage_replicas / p,
                                    l->micro_batch_size))
            continue;
        if (!has_cell) {
            if (!reserve((void **)&s->cells, s->cell_count, &s->cell_room, sizeof *s->cells)) {
                return out_of_memory(error);
            }
            TY_TRY(ty_layout_cell_make(&s->space, &l->dimensions, l->micro_batch_size,
                                       &s->cells[s->cell_count], error));
            s->cell_count++;
            has_cell = true;
        }
        l->pipeline_size = p;
        l->replicas = stage_replicas / p;
        TY_TRY(add_family(s, l, s->cell_count - 1, grids[p], groups[p], error));
    }
    return TY_OK;
}

/* For current TP, CP and EP: costs of collectives and sends, then all sizes and recomputations. */
static ty_status add_parallel(ty_layouts *s, const ty_plan_dimensions *d, ty_error *error)
{
    const layout_space *space = &s->space;
    const search_question *q = space->q;
    const ty_pins *o = q->pins;
    const uint32_t ranks = ty_dimensions_width(d), stage_replicas = q->device_count / ranks;
    uint32_t *grids = ty_alloc((size_t)stage_replicas + 1, sizeof *grids);
    uint32_t *groups = ty_alloc((size_t)stage_replicas + 1, sizeof *groups);
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(grids != NULL && groups != NULL, error), status, done);
    if (ty_search_must_stop(q)) {
        status = ty_fail(error, TY_EINTERRUPTED, "stopped before a plan that fits was found");
        goto done;
    }
    for (uint32_t p = 1; p <= stage_replicas && p <= space->block_count; p++) {
        if (!ty_layout_allows_grid(space, ranks, p))
            continue;
        if (!reserve((void **)&s->grids, s->grid_count, &s->grid_room, sizeof *s->grids)) {
            status = out_of_memory(error);
            goto done;
        }
        TY_CHECK(ty_layout_grid_make(space, d, p, &s->grids[s->grid_count], error), status, done);
        grids[p] = s->grid_count++;
    }
    for (int r = 0; r < TY_RECOMPUTE_COUNT; r++) {
        layout l = {.dimensions = *d, .bucket_bytes = UINT64_MAX};
        const bool is_pinned = ty_is_pinned(o, TY_AXIS(RECOMPUTE));
        l.dimensions.recompute = (ty_recompute)r;
        l.dimensions.recompute_blocks =
            is_pinned ? o->dimensions.recompute_blocks : r == TY_RECOMPUTE_FULL;
        if (!ty_layout_allows_recompute(space, l.dimensions.recompute,
                                        l.dimensions.recompute_blocks))
            continue;
        for (uint32_t p = 1; p <= stage_replicas && p <= space->block_count; p++) {
            if (!reserve((void **)&s->groups, s->group_count, &s->group_room, sizeof *s->groups)) {
                status = out_of_memory(error);
                goto done;
            }
            s->groups[s->group_count] =
                (memory_group){.refusing = UINT32_MAX, .smallest = UINT32_MAX};
            groups[p] = s->group_count++;
        }
        while ((l.micro_batch_size = ty_next_divisor(q->global_batch, l.micro_batch_size)) > 0)
            TY_CHECK(add_grids(s, &l, grids, groups, error), status, done);
    }
done:
    ty_free(grids);
    ty_free(groups);
    return status;
}

static ty_status find_families(ty_layouts *s, ty_error *error)
{
    const uint32_t devices = s->space.q->device_count;
    ty_plan_dimensions d = {0};

    for (uint32_t t = 1; t <= devices && t <= TY_MAX_PARALLEL_SIZE; t++)
        for (uint32_t c = 1; c <= devices / t && c <= TY_MAX_PARALLEL_SIZE && devices % t == 0; c++)
            for (uint32_t e = 1;
                 e <= devices / t / c && e <= TY_MAX_PARALLEL_SIZE && devices / t % c == 0; e++)
                for (int along = 0; along < 2; along++) {
                    d.tensor_parallel = t;
                    d.context_parallel = c;
                    d.expert_parallel = e;
                    d.sequence_parallel = along == 1;
                    if (devices / t / c % e == 0 && ty_layout_allows_parallelism(&s->space, &d))
                        TY_TRY(add_parallel(s, &d, error));
                }
    if (s->family_count > 0)
        qsort(s->families, s->family_count, sizeof *s->families, by_bound);
    return TY_OK;
}

/* ---- Opening ------------------------------------------------------------------------------- */

static bool are_equal_accelerators(const search_question *q)
{
    const ty_device_type *first = ty_cluster_device_type(q->cluster, q->set->devices[0]);

    for (uint32_t d = 1; d < q->device_count; d++)
        if (ty_cluster_device_type(q->cluster, q->set->devices[d]) != first)
            return false;
    return first->core_share <= 0;
}

void ty_layouts_close(ty_layouts *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->cell_count; i++)
        ty_layout_cell_clear(&s->cells[i]);
    ty_layout_space_clear(&s->space);
    ty_free(s->cells);
    ty_free(s->grids);
    ty_free(s->groups);
    ty_free(s->families);
    ty_free(s->members);
    ty_free(s);
}

ty_status ty_layouts_open(const search_question *q, ty_layouts **out, ty_error *error)
{
    bool has_blocks = false;
    ty_status status = TY_OK;
    ty_layouts *s;

    *out = NULL;
    if (ty_workload_whole_reason(q->workload) != NULL || ty_is_pinned(q->pins, TY_AXIS(REPLICAS)) ||
        q->has_fixed_layers ||
        ty_is_pinned(q->pins,
                     TY_AXIS(CYCLE)) || /* buckets depend on backward, which bounds do not model */
        !are_equal_accelerators(q))
        return TY_OK;
    TY_TRY(ty_check_memory((s = ty_alloc(1, sizeof *s)) != NULL, error));
    TY_CHECK(ty_layout_space_open(q, &s->space, &has_blocks, error), status, failed);
    if (!has_blocks)
        goto failed;
    TY_CHECK(find_families(s, error), status, failed);
    *out = s;
    return TY_OK;

failed:
    ty_layouts_close(s);
    return status;
}

/* ---- In order of bounds -------------------------------------------------------------------- */

static bool is_before(const member *a, const member *b)
{
    if (a->bound_s != b->bound_s)
        return a->bound_s < b->bound_s;
    return compare_layouts(&a->layout, &b->layout) < 0;
}

static bool push(ty_layouts *s, const member *m)
{
    uint32_t at = s->member_count;

    if (!reserve((void **)&s->members, at, &s->member_room, sizeof *s->members))
        return false;
    s->member_count++;
    for (; at > 0 && is_before(m, &s->members[(at - 1) / 2]); at = (at - 1) / 2)
        s->members[at] = s->members[(at - 1) / 2];
    s->members[at] = *m;
    return true;
}

static member pop(ty_layouts *s)
{
    const member first = s->members[0], last = s->members[--s->member_count];
    uint32_t at = 0, child;

    while ((child = 2 * at + 1) < s->member_count) {
        child +=
            child + 1 < s->member_count && is_before(&s->members[child + 1], &s->members[child]);
        if (!is_before(&s->members[child], &last))
            break;
        s->members[at] = s->members[child];
        at = child;
    }
    if (s->member_count > 0)
        s->members[at] = last;
    return first;
}

/* The allowed schedule with the least activations, with all sharding that is allowed. */
static layout smallest_of(const ty_layouts *s, const family *f)
{
    const ty_pins *o = s->space.q->pins;
    layout least = f->first;

    least.bucket_bytes = 1; /* the smallest buffers */
    least.schedule = ty_is_pinned(o, TY_AXIS(SCHEDULE)) ? o->schedule : ty_schedule_default(false);
    if (ty_is_pinned(o, TY_AXIS(VPP)) && o->dimensions.virtual_stages > 1)
        least.schedule = ty_schedule_default(true);
    if (ty_schedule_at(least.schedule)->is_interleaved)
        least.dimensions.virtual_stages =
            ty_is_pinned(o, TY_AXIS(VPP)) ? o->dimensions.virtual_stages : 2;
    for (uint32_t zero = 0; zero <= 3; zero++)
        if (ty_layout_allows_zero(&s->space, &least, zero))
            least.dimensions.zero = zero;
    return least;
}

static ty_status fits_device(ty_layouts *s, const layout *l, bool *fits, ty_error *error)
{
    uint64_t bytes = 0;
    const ty_status status = ty_layout_memory(&s->space, l, &bytes, error);

    *fits = bytes <= s->space.q->largest_memory_bytes;
    return status;
}

/* Computes the memory of a group's smallest micro-batches, once. */
static ty_status ask_least(ty_layouts *s, const family *f, ty_error *error)
{
    memory_group *group = &s->groups[f->group];
    layout least = smallest_of(s, f);

    if (group->least_bytes > 0)
        return TY_OK;
    least.micro_batch_size = group->smallest;
    TY_TRY(ty_layout_memory(&s->space, &least, &group->least_bytes, error));
    if (group->least_bytes > s->space.q->largest_memory_bytes)
        group->refusing = 0;
    else
        group->fitting = group->smallest;
    return TY_OK;
}

/* Whether any member may fit. A layout that fits with larger
 * micro-batches fits with smaller ones. */
static ty_status may_fit(ty_layouts *s, const family *f, bool *fits, ty_error *error)
{
    memory_group *group = &s->groups[f->group];
    const layout least = smallest_of(s, f);

    TY_TRY(ask_least(s, f, error));
    *fits = least.micro_batch_size <= group->fitting;
    if (*fits || least.micro_batch_size >= group->refusing)
        return TY_OK;
    TY_TRY(fits_device(s, &least, fits, error));
    if (*fits)
        group->fitting = least.micro_batch_size;
    else
        group->refusing = least.micro_batch_size;
    return TY_OK;
}

/* Stores each member of a family with its bound. @param count not NULL: only counts them */
static ty_status each_member(ty_layouts *s, uint32_t index, const bool allowed_zeros[4],
                             uint64_t *count, ty_error *error)
{
    const family *f = &s->families[index];
    const layout_grid_costs *grid = &s->grids[f->grid];
    const uint32_t local = local_micro_batches(s, &f->first);
    member m = {.layout = f->first, .family = index};
    layout *const l = &m.layout;
    const bool has_buckets = ty_dimensions_exchange(&l->dimensions, l->replicas);

    for (int k = 0; k < TY_SCHEDULE_COUNT; k++) {
        const bool is_interleaved = ty_schedule_at((ty_schedule)k)->is_interleaved;
        const uint32_t most = is_interleaved ? s->space.block_count / l->pipeline_size : 1;
        l->schedule = (ty_schedule)k;
        for (uint32_t virtual_stages = is_interleaved ? 2 : 1; virtual_stages <= most;
             virtual_stages++) {
            l->dimensions.virtual_stages = virtual_stages > 1 ? virtual_stages : 0;
            if (!ty_layout_allows_schedule(&s->space, l, local))
                continue;
            for (uint32_t zero = 0; zero <= 3; zero++) {
                uint64_t buckets[LAYOUT_MOST_BUCKETS];
                const uint32_t bucket_count = ty_layout_buckets(
                    &s->space, grid->gradient_bytes / virtual_stages, zero, buckets);
                for (int c = 0; c < TY_COMPRESSION_COUNT; c++) {
                    l->dimensions.zero = zero;
                    l->compression = (ty_compression_kind)c;
                    if (!allowed_zeros[zero] || !ty_layout_allows_zero(&s->space, l, zero) ||
                        !ty_layout_allows_compression(&s->space, l, l->compression,
                                                      grid->is_exchanged))
                        continue;
                    for (uint32_t b = 0; b < (has_buckets ? bucket_count : 1); b++) {
                        l->bucket_bytes = has_buckets ? buckets[b] : UINT64_MAX;
                        if (count != NULL) {
                            ++*count;
                            continue;
                        }
                        m.bound_s = fmax(f->bound_s,
                                         ty_layout_bound_s(&s->space, l, &s->cells[f->cell], grid));
                        if (!push(s, &m))
                            return out_of_memory(error);
                    }
                }
            }
        }
    }
    return TY_OK;
}

/* The members of the next family that may fit, by its sharding. */
static ty_status open_family(ty_layouts *s, ty_error *error)
{
    const uint32_t index = s->next_family++;
    bool fits = false, allowed_zeros[4] = {false};
    layout l = smallest_of(s, &s->families[index]);

    TY_TRY(may_fit(s, &s->families[index], &fits, error));
    if (!fits)
        return TY_OK;
    fits = false; /* a layout that fits with less sharding fits with more */
    for (l.dimensions.zero = 0; l.dimensions.zero <= 3; l.dimensions.zero++) {
        if (!fits && ty_layout_allows_zero(&s->space, &l, l.dimensions.zero))
            TY_TRY(fits_device(s, &l, &fits, error));
        allowed_zeros[l.dimensions.zero] = fits;
    }
    return each_member(s, index, allowed_zeros, NULL, error);
}

ty_status ty_layouts_next(ty_layouts *s, layout *out, double *bound_s, bool *found, ty_error *error)
{
    *found = false;
    while (!*found) {
        member m;
        while (
            s->next_family < s->family_count &&
            (s->member_count == 0 || s->families[s->next_family].bound_s <= s->members[0].bound_s))
            TY_TRY(open_family(s, error));
        if (s->member_count == 0)
            break;
        m = pop(s);
        TY_TRY(fits_device(s, &m.layout, found, error));
        *out = m.layout;
        *bound_s = m.bound_s;
    }
    return TY_OK;
}

uint64_t ty_layouts_count(ty_layouts *s)
{
    static const bool all_zeros[4] = {true, true, true, true};
    uint64_t count = 0;

    for (uint32_t f = 0; f < s->family_count; f++)
        (void)each_member(s, f, all_zeros, &count, NULL);
    return count;
}

ty_status ty_layouts_smallest(ty_layouts *s, layout *out, bool *found, ty_error *error)
{
    uint64_t least = UINT64_MAX;

    *found = false;
    for (uint32_t f = 0; f < s->family_count; f++) {
        const memory_group *group = &s->groups[s->families[f].group];
        const layout l = smallest_of(s, &s->families[f]);
        if (l.micro_batch_size > group->smallest ||
            !ty_layout_allows_schedule(&s->space, &l, local_micro_batches(s, &l)))
            continue;
        TY_TRY(ask_least(s, &s->families[f], error));
        if (group->least_bytes >= least)
            continue;
        least = group->least_bytes;
        *out = l;
        out->bucket_bytes = UINT64_MAX;
        *found = true;
    }
    return TY_OK;
}

void ty_layout_divide(const ty_layouts *s, const layout *l, uint32_t *first_layers)
{
    const uint32_t virtual_stages = at_least_one(l->dimensions.virtual_stages);
    const uint32_t stages = l->pipeline_size * virtual_stages;
    const layout_cuts cuts = ty_layout_cuts_of(&s->space, stages);

    for (uint32_t k = 0; k < stages; k++)
        first_layers[k] = s->space.blocks[ty_layout_cut(&cuts, k)];
}
