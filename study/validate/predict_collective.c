/* nccl-tests: what the collective library is modelled to choose, over all NICs
 * (docs/design/collectives.md).
 */
#include "asked.h"
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

static ty_collective_kind kind_of(const ty_record *r)
{
    int kind = 0;

    while (kind < TY_COLLECTIVE_COUNT &&
           strcmp(ty_collective_name((ty_collective_kind)kind), r->operation) != 0)
        kind++;
    return (ty_collective_kind)kind;
}

/* With the algorithm that the record says was set, or the library's own choice. */
static const char *algorithm_of(const ty_record *r)
{
    static const ty_nccl_algorithm forced[] = {TY_NCCL_RING, TY_NCCL_TREE, TY_NCCL_NVLS};

    for (size_t i = 0; i < sizeof forced / sizeof forced[0]; i++)
        if (strcasecmp(r->algorithm, ty_nccl_algorithm_name(forced[i])) == 0)
            return ty_nccl_algorithm_name(forced[i]);
    return NULL;
}

static ty_status predict(const ty_record *r, const char *line,
                         const ty_collective_question *question, ty_verdict *out, ty_error *error)
{
    const uint64_t size = (uint64_t)r->collective_bytes;
    const bool is_time = strcmp(r->unit, "us") == 0;
    char sizes[32], ranks[16];
    ty_collective_answer answer;
    ty_cluster *cluster = NULL;
    ty_status status = TY_OK;

    snprintf(sizes, sizeof sizes, "%llu", (unsigned long long)size);
    snprintf(ranks, sizeof ranks, "%u", question->ranks);
    TY_CHECK(ty_cluster_open(line, NULL, &cluster, error), status, cleanup);
    TY_CHECK(ty_collective_ask(cluster, question, &size, 1, &answer, error), status, cleanup);
    TY_CHECK(
        ty_verdict_command((const char *const[]){"cluster", "collective", line, "--collective",
                                                 ty_collective_name(question->kind), "--ranks",
                                                 ranks, "--size", sizes, "--json",
                                                 question->algorithm != NULL ? "--algorithm" : NULL,
                                                 question->algorithm, NULL},
                           &out->command, error),
        status, cleanup);
    out->is_predicted = true;
    out->is_fitted = is_fitted(r);
    out->answer = is_time ? answer.seconds : answer.bus_bandwidth_bytes_per_s;
    out->answer_at = is_time ? "/rows/0/time_s" : "/rows/0/bus_bandwidth_bytes_per_s";
    out->value = is_time ? answer.seconds * 1e6 : answer.bus_bandwidth_bytes_per_s / 1e9;

cleanup:
    ty_cluster_free(cluster);
    return status;
}

ty_status ty_predict_collective(const ty_records *records, uint32_t index, ty_verdict *out,
                                ty_error *error)
{
    const ty_record *r = &records->items[index];
    const ty_collective_question question = {
        .kind = kind_of(r), .ranks = (uint32_t)r->gpus, .algorithm = algorithm_of(r)};
    char *line = NULL;
    ty_status status;

    if (question.kind == TY_COLLECTIVE_COUNT || !(r->gpus >= 2) || !(r->collective_bytes >= 1)) {
        snprintf(out->reason, sizeof out->reason, "collective not known, or without a size");
        return TY_OK;
    }
    status = ty_published_cluster_line(r, &line, out->reason, error);
    if (status == TY_OK && line != NULL)
        status = predict(r, line, &question, out, error);
    ty_free(line);
    return status;
}
