/* Times one collective among the first devices of a cluster: its cost in a plan without the stack,
 * as validation compares it with logs of nccl-tests. */
#include "group_network.h"

#include <string.h>
#include <strings.h>

/* Names of algorithms: NCCL's, as in NCCL_ALGO, and those of frameworks. */
typedef struct algorithm_words {
    bool is_library;
    ty_nccl_algorithm library;
    ty_algorithm framework;
} algorithm_words;

static ty_status read_algorithm(const char *word, algorithm_words *out, ty_error *error)
{
    const char *names[TY_NCCL_ALGORITHM_COUNT + TY_ALGORITHM_COUNT], *close;
    size_t count = 0;

    *out = (algorithm_words){.framework = TY_AUTOMATIC};
    if (word == NULL)
        return TY_OK;
    for (int a = 0; a < TY_ALGORITHM_COUNT; a++) {
        names[count] = ty_algorithm_name((ty_algorithm)a);
        if (strcmp(names[count++], word) == 0) {
            out->framework = (ty_algorithm)a;
            return TY_OK;
        }
    }
    for (int a = 0; a < TY_NCCL_ALGORITHM_COUNT; a++) {
        names[count] = ty_nccl_algorithm_name((ty_nccl_algorithm)a);
        if (strcasecmp(names[count++], word) == 0) {
            *out = (algorithm_words){.is_library = true, .library = (ty_nccl_algorithm)a};
            return TY_OK;
        }
    }
    close = ty_suggest(word, names, count, sizeof names[0]);
    return ty_fail(error, TY_EINVAL,
                   "algorithm: found '%.40s', expected one of NCCL's (Ring, Tree, NVLS, ...) or of "
                   "frameworks (hierarchical, parameter-server, block-manager)%s%s%s",
                   word, close != NULL ? "; did you mean '" : "", close != NULL ? close : "",
                   close != NULL ? "'?" : "");
}

static ty_status ask_one(const ty_group_network *network, const ty_collective_question *question,
                         const algorithm_words *algorithm, uint64_t size, ty_collective_answer *out,
                         ty_error *error)
{
    const ty_collective_kind kind = question->kind;
    const uint64_t bytes = kind == TY_ALL_GATHER ? size / network->members : size;
    ty_instruction_cost cost;
    ty_status status = TY_OK;

    *out = (ty_collective_answer){
        .size = size, .algorithm = ty_algorithm_name(algorithm->framework), .protocol = ""};
    if (network->table != NULL && (algorithm->is_library || algorithm->framework == TY_AUTOMATIC)) {
        const ty_collective_choice choice =
            algorithm->is_library
                ? ty_collective_choose_by(network->table, kind, algorithm->library, bytes)
                : ty_collective_choose(network->table, kind, bytes);
        out->algorithm = ty_nccl_algorithm_name(choice.algorithm);
        out->protocol = ty_nccl_protocol_name(choice.protocol);
        if (algorithm->is_library && choice.algorithm != algorithm->library)
            return ty_fail(error, TY_EINVAL,
                           "algorithm: found %s, which these devices have no %s with; it would be "
                           "%s",
                           ty_nccl_algorithm_name(algorithm->library), ty_collective_name(kind),
                           out->algorithm);
        ty_group_library_cost(network, kind, bytes, &choice, &cost);
    } else if (algorithm->is_library) {
        return ty_fail(error, TY_EINVAL,
                       "algorithm: found %s, but no collective library is modelled for these "
                       "devices",
                       ty_nccl_algorithm_name(algorithm->library));
    } else {
        status = ty_group_exchange_cost(network, kind, algorithm->framework, bytes, &cost, error);
        if (status == TY_OK)
            ty_exchange_add_sums(network, kind, algorithm->framework, bytes, &cost);
    }
    if (status != TY_OK)
        return status;
    out->seconds = cost.seconds;
    out->latency_s = cost.latency_s;
    out->alg_bandwidth_bytes_per_s = (double)size / cost.seconds;
    out->bus_bandwidth_bytes_per_s =
        out->alg_bandwidth_bytes_per_s * ty_collective_bus_factor(kind, network->members);
    return TY_OK;
}

uint32_t ty_collective_devices(const ty_cluster *cluster, const ty_collective_question *question,
                               uint32_t *devices)
{
    const uint32_t all = ty_cluster_device_count(cluster);
    uint32_t count = 0, of_host = 0;

    for (uint32_t d = 0; d < all; d++) {
        const bool is_new =
            d == 0 || ty_cluster_device_host(cluster, d) != ty_cluster_device_host(cluster, d - 1);
        of_host = is_new ? 1 : of_host + 1;
        if ((question->per_host > 0 && of_host > question->per_host) ||
            (question->ranks > 0 && count == question->ranks))
            continue;
        if (devices != NULL)
            devices[count] = d;
        count++;
    }
    return count;
}

ty_status ty_collective_ask(const ty_cluster *cluster, const ty_collective_question *question,
                            const uint64_t *sizes, uint32_t count, ty_collective_answer *out,
                            ty_error *error)
{
    const uint32_t ranks = ty_collective_devices(cluster, question, NULL);
    ty_group_network network = {0};
    algorithm_words algorithm;
    uint32_t *devices = NULL;
    ty_status status = read_algorithm(question->algorithm, &algorithm, error);

    if (status != TY_OK)
        return status;
    if (ranks < 2 || ranks < question->ranks)
        return ty_fail(error, TY_EINVAL, "found %u ranks, expected 2 to the %u devices of \"%s\"%s",
                       question->ranks > 0 ? question->ranks : ranks, ranks,
                       ty_cluster_name(cluster), question->per_host > 0 ? ", of each host" : "");
    if (question->kind != TY_ALL_REDUCE && !algorithm.is_library &&
        algorithm.framework > TY_AUTOMATIC)
        return ty_fail(error, TY_EINVAL, "algorithm: found %s, which is of all_reduce alone",
                       ty_algorithm_name(algorithm.framework));
    TY_TRY(ty_check_memory((devices = ty_alloc(ranks, sizeof *devices)) != NULL, error));
    ty_collective_devices(cluster, question, devices);
    TY_CHECK(ty_group_network_find(cluster, devices, ranks, &network, error), status, cleanup);
    if (question->calls != TY_CALLS_LAUNCHED && network.table != NULL) {
        const ty_collective_calibration calibration = ty_collective_calibrated(question->calls);
        TY_CHECK(ty_collective_table_make(&network.library, &calibration, network.table, error),
                 status, cleanup);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] < (question->kind == TY_ALL_GATHER ? ranks : 1)) {
            status = ty_fail(error, TY_EINVAL,
                             "found a size of %llu bytes, expected one byte of each rank",
                             (unsigned long long)sizes[i]);
            goto cleanup;
        }
        TY_CHECK(ask_one(&network, question, &algorithm, sizes[i], &out[i], error), status,
                 cleanup);
    }
cleanup:
    ty_group_network_clear(&network);
    ty_free(devices);
    return status;
}
