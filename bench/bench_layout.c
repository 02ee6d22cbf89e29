/* How long the search for a layout takes: GPT-3 175B on 4,096 A100 80 GB, as JSON on stdout. With
 * "--exhaustive" every configuration is estimated one by one as well, and the answers compared.
 * Run from the source tree or with TRAINYARD_DATA set. */
#include "ty_planner.h"

#include "timing.h"
#include "ty_memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define ESTIMATES 200000

static ty_status open_question(ty_layout_question *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;

    TY_CHECK(ty_workload_open("gpt3-175b", &workload, error), status, cleanup);
    TY_CHECK(
        ty_cluster_open("host:512 gpu:8 @a100-sxm4-80gb nvlink3 hdr200", NULL, &cluster, error),
        status, cleanup);
    TY_CHECK(ty_layout_question_of(workload, cluster, 4096, out, error), status, cleanup);

cleanup:
    ty_cluster_free(cluster);
    ty_workload_free(workload);
    return status;
}

static bool is_same(const ty_layout_result *a, const ty_layout_result *b)
{
    return ty_layout_compare(&a->layout, &b->layout) == 0 &&
           a->estimate.step_time_s == b->estimate.step_time_s &&
           a->estimate.memory.total == b->estimate.memory.total;
}

static bool are_equal(const ty_layout_answer *a, const ty_layout_answer *b)
{
    bool is_equal = a->best_count == b->best_count && a->front_count == b->front_count &&
                    a->configurations == b->configurations;
    for (uint32_t i = 0; is_equal && i < a->best_count; i++)
        is_equal = is_same(&a->best[i], &b->best[i]);
    for (uint32_t i = 0; is_equal && i < a->front_count; i++)
        is_equal = is_same(&a->front[i], &b->front[i]);
    return is_equal;
}

static void put_answer(ty_json_writer *w, const char *key, const ty_layout_answer *a,
                       double seconds)
{
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    ty_json_open(w, key, '{');
    ty_json_put_uint(w, "configurations", a->configurations);
    ty_json_put_uint(w, "estimated", a->estimated);
    ty_json_put_uint(w, "unfit", a->unfit);
    ty_json_put_uint(w, "pruned", a->pruned);
    ty_json_put_number(w, "cpu_s", seconds);
    ty_json_put_uint(w, "peak_memory_kib", (uint64_t)usage.ru_maxrss);
    ty_json_put_uint(w, "front", a->front_count);
    ty_json_close(w, '}');
}

/* Nanoseconds of one whole estimate: nothing kept from one to the next. */
static ty_status time_estimates(const ty_layout_question *q, ty_layout layout, const char *key,
                                ty_json_writer *w, ty_error *error)
{
    const double start_s = cpu_s();
    ty_layout_estimate estimate;
    double sum = 0;

    for (int i = 0; i < ESTIMATES; i++) {
        ty_status status = ty_layout_estimate_of(q, &layout, &estimate, error);
        if (status != TY_OK)
            return status;
        sum += estimate.step_time_s;
    }
    ty_json_put_number(w, key, (cpu_s() - start_s) / ESTIMATES * 1e9);
    return sum > 0 ? TY_OK : ty_fail(error, TY_EINVAL, "a step that takes no time");
}

static void time_memory(const ty_layout_question *q, const ty_layout *layout, ty_json_writer *w)
{
    const double start_s = cpu_s();
    ty_layout_memory memory = {0};
    double sum = 0;

    for (int i = 0; i < ESTIMATES; i++) {
        ty_layout_memory_of(q, layout, &memory);
        sum += memory.total;
    }
    ty_json_put_number(w, "ns_per_feasibility", (cpu_s() - start_s) / ESTIMATES * 1e9);
    ty_json_put_number(w, "feasibility_bytes", sum / ESTIMATES);
}

static ty_status run(bool is_exhaustive, ty_json_writer *w, ty_error *error)
{
    ty_layout_options options = ty_layout_options_default();
    ty_layout_answer *answer = NULL, *oracle = NULL;
    ty_layout_question q;
    ty_status status = TY_OK;
    char text[TY_LAYOUT_TEXT_SIZE];
    double start_s, found_s;

    TY_CHECK(open_question(&q, error), status, cleanup);
    start_s = cpu_s();
    TY_CHECK(ty_layout_search(&q, &options, &answer, error), status, cleanup);
    found_s = cpu_s() - start_s;
    ty_layout_text(&answer->best[0].layout, text);
    put_answer(w, "search", answer, found_s);
    ty_json_put_string(w, "best", text);
    ty_json_put_number(w, "step_time_s", answer->best[0].estimate.step_time_s);
    ty_json_put_number(w, "memory_bytes", answer->best[0].estimate.memory.total);
    TY_CHECK(time_estimates(&q, answer->best[0].layout, "ns_per_estimate", w, error), status,
             cleanup);
    time_memory(&q, &answer->best[0].layout, w);
    if (is_exhaustive) {
        start_s = cpu_s();
        TY_CHECK(ty_layout_search_exhaustive(&q, &options, &oracle, error), status, cleanup);
        put_answer(w, "exhaustive", oracle, cpu_s() - start_s);
        ty_json_put_bool(w, "is_equal", are_equal(answer, oracle));
        if (!are_equal(answer, oracle))
            status = ty_fail(error, TY_EINVAL, "the search and its oracle differ");
    }

cleanup:
    ty_layout_answer_free(oracle);
    ty_layout_answer_free(answer);
    return status;
}

int main(int count, char **arguments)
{
    bool is_exhaustive = count > 1 && strcmp(arguments[1], "--exhaustive") == 0;
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *json = NULL;
    ty_status status = TY_OK;

    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", "trainyard.benchmark/1");
    ty_json_put_string(&writer, "name", "layout");
    ty_json_put_string(&writer, "workload", "gpt3-175b");
    ty_json_put_uint(&writer, "devices", 4096);
    TY_CHECK(run(is_exhaustive, &writer, &error), status, cleanup);
    ty_json_close(&writer, '}');
    TY_CHECK(ty_text_take(&text, &json, &error), status, cleanup);
    puts(json);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "bench_layout: %s\n", error.message);
    ty_free(json);
    ty_text_clear(&text);
    return status == TY_OK ? 0 : 1;
}
