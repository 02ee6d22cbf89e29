/* nccl-tests: what the collective library is modelled to choose, over all NICs
 * (docs/collectives.md).
 */
#include "predictors.h"
#include "published.h"
#include "ty_planner.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Below this launching is most of the time, and programs differ in it. */
#define LARGE_BYTES 1048576.0

/* The constants of planner/nccl/nccl.json were fitted to rows whose ids start so. */
static const char *const fitted_prefixes[] = {"collectives/nebius-h100-2n",
                                              "collectives/vtrain-v100-g3"};

static bool is_fitted(const ty_record *r)
{
    for (size_t i = 0; i < sizeof fitted_prefixes / sizeof fitted_prefixes[0]; i++)
        if (strncmp(r->id, fitted_prefixes[i], strlen(fitted_prefixes[i])) == 0)
            return true;
    return false;
}

static const struct {
    const char *operation;
    ty_collective_kind kind;
    double bus_factor; /* of (n-1)/n: what nccl-tests multiplies size over time with */
    bool is_whole;     /* the size column is what all members end with, not what one brings */
} operations[] = {
    {"all_reduce", TY_ALL_REDUCE, 2, false},
    {"all_gather", TY_ALL_GATHER, 1, true},
    {"reduce_scatter", TY_REDUCE_SCATTER, 1, false},
};

bool ty_takes_large_collective(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return strcmp(r->kind, "collective") == 0 && r->collective_bytes >= LARGE_BYTES;
}

bool ty_takes_small_collective(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return strcmp(r->kind, "collective") == 0 && !(r->collective_bytes >= LARGE_BYTES);
}

/* With the algorithm that the record says was set, or the library's own choice. */
static double seconds_of(const ty_collective_table *table, const ty_record *r,
                         ty_collective_kind kind, uint64_t bytes)
{
    static const ty_nccl_algorithm forced[] = {TY_NCCL_RING, TY_NCCL_TREE, TY_NCCL_NVLS};

    for (size_t i = 0; i < sizeof forced / sizeof forced[0]; i++)
        if (strcasecmp(r->algorithm, ty_nccl_algorithm_name(forced[i])) == 0)
            return ty_collective_choose_by(table, kind, forced[i], bytes).seconds;
    return ty_collective_seconds(table, kind, bytes);
}

static ty_status time_collective(const ty_record *r, const ty_cluster *cluster, size_t op,
                                 double *seconds, ty_error *error)
{
    uint32_t members = (uint32_t)r->gpus;
    uint32_t *devices = ty_alloc(members, sizeof *devices);
    double bytes = operations[op].is_whole ? r->collective_bytes / members : r->collective_bytes;
    ty_communicator communicator;
    ty_collective_table table;
    ty_status status = TY_OK;

    if (devices == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < members; i++)
        devices[i] = i;
    TY_CHECK(ty_communicator_of(cluster, devices, members, &communicator, error), status, cleanup);
    TY_CHECK(ty_collective_table_make(&communicator, NULL, &table, error), status, cleanup);
    *seconds = seconds_of(&table, r, operations[op].kind, (uint64_t)bytes);

cleanup:
    ty_free(devices);
    return status;
}

ty_status ty_predict_collective(const ty_records *records, uint32_t index, ty_verdict *out,
                                ty_error *error)
{
    const ty_record *r = &records->items[index];
    const size_t count = sizeof operations / sizeof operations[0];
    ty_cluster *cluster = NULL;
    size_t op = 0;
    double seconds;
    ty_status status = TY_OK;

    while (op < count && strcmp(operations[op].operation, r->operation) != 0)
        op++;
    if (op == count || !(r->gpus >= 2) || !(r->collective_bytes >= 1)) {
        snprintf(out->reason, sizeof out->reason, "collective not known, or without a size");
        return TY_OK;
    }
    TY_CHECK(ty_published_cluster(r, &cluster, out->reason, error), status, cleanup);
    if (cluster == NULL)
        goto cleanup;
    TY_CHECK(time_collective(r, cluster, op, &seconds, error), status, cleanup);
    out->is_predicted = true;
    out->is_fitted = is_fitted(r);
    out->value = strcmp(r->unit, "us") == 0 ? seconds * 1e6
                                            : operations[op].bus_factor * (r->gpus - 1) / r->gpus *
                                                  r->collective_bytes / seconds / 1e9;

cleanup:
    ty_cluster_free(cluster);
    return status;
}
