/* trainyard cluster collective: how long one collective takes by itself. */
#include "cli.h"

#include <string.h>

#define MOST_SIZES 64

/* "64MiB,1GB"; by default 1 KiB to 1 GiB, each four times the last. */
static ty_status read_sizes(const char *list, uint64_t sizes[MOST_SIZES], uint32_t *count,
                            ty_error *error)
{
    ty_text word = {0};
    ty_error detail = {0};
    ty_status status = TY_OK;

    *count = 0;
    if (list == NULL) {
        for (uint64_t size = 1u << 10; size <= 1u << 30; size *= 4)
            sizes[(*count)++] = size;
        return TY_OK;
    }
    do {
        const size_t length = strcspn(list, ",");
        if (*count == MOST_SIZES)
            return ty_fail(error, TY_EINVAL, "--size: expected at most %d sizes", MOST_SIZES);
        ty_text_append(&word, list, length);
        status = ty_text_check(&word, error);
        if (status == TY_OK &&
            ty_parse_bytes(length > 0 ? word.data : "", &sizes[*count], &detail) != TY_OK)
            status = ty_fail(error, TY_EINVAL, "--size: %s", detail.message);
        ty_text_clear(&word);
        *count += 1;
        list += length;
    } while (status == TY_OK && *list++ == ',');
    return status;
}

static void write_json(const ty_cluster *cluster, const ty_collective_question *question,
                       const ty_collective_answer *rows, uint32_t count, ty_text *text)
{
    ty_json_writer w = document_open("trainyard.collective/1", text);
    const uint32_t hosts = question->per_host > 0
                               ? (question->ranks + question->per_host - 1) / question->per_host
                               : ty_cluster_device_host(cluster, question->ranks - 1) + 1;

    ty_json_put_string(&w, "cluster", ty_cluster_name(cluster));
    ty_json_put_string(&w, "collective", ty_collective_name(question->kind));
    ty_json_put_string(&w, "calls", ty_collective_calls_name(question->calls));
    ty_json_put_uint(&w, "ranks", question->ranks);
    ty_json_put_uint(&w, "hosts", hosts);
    ty_json_open(&w, "rows", '[');
    for (uint32_t i = 0; i < count; i++) {
        ty_json_open_flat(&w, NULL, '{');
        ty_json_put_uint(&w, "size_bytes", rows[i].size);
        ty_json_put_string(&w, "algorithm", rows[i].algorithm);
        if (rows[i].protocol[0] != '\0')
            ty_json_put_string(&w, "protocol", rows[i].protocol);
        ty_json_put_number(&w, "time_s", rows[i].seconds);
        ty_json_put_number(&w, "latency_s", rows[i].latency_s);
        ty_json_put_number(&w, "alg_bandwidth_bytes_per_s", rows[i].alg_bandwidth_bytes_per_s);
        ty_json_put_number(&w, "bus_bandwidth_bytes_per_s", rows[i].bus_bandwidth_bytes_per_s);
        ty_json_close(&w, '}');
    }
    list_close(true, &w);
}

static void write_table(const ty_cluster *cluster, const ty_collective_question *question,
                        const ty_collective_answer *rows, uint32_t count, ty_text *text)
{
    char each[32] = "";

    if (question->per_host > 0)
        snprintf(each, sizeof each, ", %u per host", question->per_host);
    ty_text_addf(text, "%s among %u devices of %s%s, nothing else on the links%s\n",
                 ty_collective_name(question->kind), question->ranks, ty_cluster_name(cluster),
                 each, question->calls == TY_CALLS_QUEUED ? ", queued" : "");
    ty_text_addf(text, "%12s %12s %14s %14s  %s\n", "size", "time", "alg bandwidth",
                 "bus bandwidth", "algorithm");
    for (uint32_t i = 0; i < count; i++) {
        char size[32], seconds[32], alg[32], bus[32];
        ty_format_memory((double)rows[i].size, size);
        ty_format_seconds(rows[i].seconds, seconds);
        ty_format_bandwidth(rows[i].alg_bandwidth_bytes_per_s, alg);
        ty_format_bandwidth(rows[i].bus_bandwidth_bytes_per_s, bus);
        ty_text_addf(text, "%12s %12s %14s %14s  %s%s%s\n", size, seconds, alg, bus,
                     rows[i].algorithm, rows[i].protocol[0] != '\0' ? " " : "", rows[i].protocol);
    }
}

exit_code cluster_collective(const cli_options *options, const char *name)
{
    ty_collective_question question = {.algorithm = options->algorithm,
                                       .ranks = (uint32_t)options->ranks,
                                       .per_host = (uint32_t)options->per_host,
                                       .calls =
                                           options->queued ? TY_CALLS_QUEUED : TY_CALLS_LAUNCHED};
    ty_collective_answer rows[MOST_SIZES];
    uint64_t sizes[MOST_SIZES];
    uint32_t count;
    ty_cluster *cluster = NULL;
    ty_text text = {0};
    ty_error error = {0};
    ty_status status = TY_OK;

    TY_CHECK(collective_from(options, &question.kind, &error), status, done);
    if (question.kind == TY_COLLECTIVE_COUNT)
        question.kind = TY_ALL_REDUCE;
    TY_CHECK(read_sizes(options->sizes, sizes, &count, &error), status, done);
    TY_CHECK(ty_cluster_open(name, NULL, &cluster, &error), status, done);
    if (question.ranks == 0)
        question.ranks = ty_collective_devices(cluster, &question, NULL);
    TY_CHECK(ty_collective_ask(cluster, &question, sizes, count, rows, &error), status, done);
    if (options->json)
        write_json(cluster, &question, rows, count, &text);
    else
        write_table(cluster, &question, rows, count, &text);
done:
    ty_cluster_free(cluster);
    return status == TY_OK ? deliver_text(options->output, &text) : report_bad_input(&error);
}
