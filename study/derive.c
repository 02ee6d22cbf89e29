/* What a report shows of a plan beside itself, as the documents that other commands print: its
 * score, where compression pays, its launch files. */
#include "cli.h"

#include <math.h>
#include <string.h>

/* ---- Where compression pays ---------------------------------------------------------------- */

const char *const shown_compressions[] = {"fp16",       "int8",       "one-bit",
                                          "top-k:0.01", "powersgd-4", NULL};

/* From an edge device's uplink to several NVLinks; as many points in each tenfold. */
#define SLOWEST_BYTES_PER_S 1e7
#define FASTEST_BYTES_PER_S 1e12
#define POINTS_IN_TENFOLD 8
#define POINT_COUNT (5 * POINTS_IN_TENFOLD + 1)

static double bandwidth_at(uint32_t point)
{
    const double tenfolds = log10(FASTEST_BYTES_PER_S / SLOWEST_BYTES_PER_S);
    return SLOWEST_BYTES_PER_S * pow(10, tenfolds * point / (POINT_COUNT - 1));
}

static void put_curve(const char *name, ty_exchange_terms terms, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "compression", name);
    ty_json_open_flat(w, "seconds", '[');
    for (uint32_t i = 0; i < POINT_COUNT; i++)
        ty_json_put_number(w, NULL, terms.fixed_s + terms.edge_bytes / bandwidth_at(i));
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

static ty_status put_curves(const plan_inputs *in, double *ring, ty_json_writer *w, ty_error *error)
{
    ty_status status = TY_OK;

    ty_json_open(w, "curves", '[');
    for (size_t i = 0; shown_compressions[i] != NULL; i++) {
        ty_compression c = {0};
        ty_exchange_terms plain, compressed;
        TY_CHECK(ty_compression_parse(shown_compressions[i], &c, error), status, done);
        TY_CHECK(
            ty_plan_exchange_terms(in->plan, in->cluster, &c, &plain, &compressed, ring, error),
            status, done);
        if (i == 0)
            put_curve("none", plain, w);
        put_curve(shown_compressions[i], compressed, w);
    }
    ty_json_close(w, ']');
done:
    return status;
}

/* Empty where nothing is exchanged. */
static ty_status derive_compression(const cli_options *options, const char *plan_path,
                                    plan_inputs *in, ty_text *text, ty_error *error)
{
    ty_json_writer w = ty_json_writer_on(text);
    double ring = HUGE_VAL;
    ty_status status = TY_OK;

    (void)options, (void)plan_path;
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.compression/1");
    ty_json_open_flat(&w, "bandwidths_bytes_per_s", '[');
    for (uint32_t i = 0; i < POINT_COUNT; i++)
        ty_json_put_number(&w, NULL, bandwidth_at(i));
    ty_json_close(&w, ']');
    TY_CHECK(put_curves(in, &ring, &w, error), status, done);
    if (isfinite(ring))
        ty_json_put_number(&w, "ring_bandwidth_bytes_per_s", ring);
    ty_json_close(&w, '}');
    if (!isfinite(ring))
        ty_text_clear(text);
done:
    return status;
}

/* ---- Score --------------------------------------------------------------------------------- */

static ty_status derive_score(const cli_options *options, const char *plan_path, plan_inputs *in,
                              ty_text *text, ty_error *error)
{
    ty_json_writer w = ty_json_writer_on(text);
    ty_score score = {0};
    ty_status status = TY_OK;

    (void)plan_path;
    if (!(in->plan->prediction.step_time_s > 0))
        return TY_OK;
    status = score_open(in->plan, in->cluster, options->task, &score, error);
    if (status == TY_OK)
        ty_score_to_json(&score, &w, NULL);
    ty_score_clear(&score);
    return status;
}

/* ---- Launch files -------------------------------------------------------------------------- */

/* Of a larger file a report shows this much of its beginning and end; `export` writes the whole. */
#define SHOWN_END_BYTES 4096
#define JOB_FILE "job.json" /* the worker's, nothing to read */

/* Whole lines from the beginning and from the end. */
static void add_ends(const ty_launch_file *file, ty_text *text)
{
    size_t head = SHOWN_END_BYTES, tail = file->length - SHOWN_END_BYTES;

    while (head > 0 && file->bytes[head - 1] != '\n')
        head--;
    while (tail < file->length && file->bytes[tail - 1] != '\n')
        tail++;
    ty_text_append(text, file->bytes, head);
    ty_text_addf(text, "[... %zu bytes are left out here ...]\n", tail - head);
    ty_text_add(text, &file->bytes[tail]);
}

static ty_status put_file(const ty_launch_file *file, ty_json_writer *w, ty_error *error)
{
    const bool is_shown = !file->is_binary && strcmp(file->name, JOB_FILE) != 0;
    ty_text text = {0};
    ty_status status;

    if (file->length > 3 * SHOWN_END_BYTES)
        add_ends(file, &text);
    else
        ty_text_add(&text, file->bytes);
    status = ty_text_check(&text, error);
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "name", file->name);
    ty_json_put_uint(w, "bytes", file->length);
    if (status == TY_OK && is_shown)
        ty_json_put_string(w, "text", text.data);
    ty_json_close(w, '}');
    ty_text_clear(&text);
    return status;
}

static ty_status put_target(const cli_options *options, const char *plan_path, plan_inputs *in,
                            const char *target, const char *title, ty_json_writer *w,
                            ty_error *error)
{
    ty_launch_files *files = NULL;
    ty_error refusal = {0};
    ty_status status = launch_open(options, plan_path, in, target, &files, &refusal);

    if (status != TY_OK && status != TY_EUNSUPPORTED && status != TY_EINVAL)
        return ty_fail(error, status, "%s", refusal.message);
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "target", target);
    ty_json_put_string(w, "title", title);
    if (status == TY_OK) {
        ty_json_open(w, "files", '[');
        for (uint32_t i = 0; i < files->count && status == TY_OK; i++)
            status = put_file(&files->files[i], w, error);
        ty_json_close(w, ']');
        ty_json_put_string(w, "next", files->next);
    } else {
        ty_json_put_string(w, "reason", refusal.message);
        status = TY_OK;
    }
    ty_json_close(w, '}');
    ty_launch_free(files);
    return status;
}

static ty_status derive_launch(const cli_options *options, const char *plan_path, plan_inputs *in,
                               ty_text *text, ty_error *error)
{
    ty_json_writer w = ty_json_writer_on(text);
    const char *target, *title;
    ty_status status = TY_OK;

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.launch/1");
    ty_json_put_string(&w, "plan", plan_path);
    ty_json_open(&w, "targets", '[');
    for (uint32_t i = 0; (target = ty_launch_target(i, &title)) != NULL; i++)
        if (!ty_launch_is_traces(target))
            TY_CHECK(put_target(options, plan_path, in, target, title, &w, error), status, done);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
done:
    return status;
}

/* ---- Memory over time ---------------------------------------------------------------------- */

static ty_status put_memory(const plan_inputs *in, const ty_timeline *timeline, uint32_t rank,
                            ty_json_writer *w, ty_error *error)
{
    ty_memory_point *points = NULL;
    uint32_t count;
    ty_status status =
        ty_memory_curve(in->plan, in->program, timeline, rank, &points, &count, error);

    if (status != TY_OK)
        return status;
    ty_json_open(w, NULL, '{');
    ty_json_put_uint(w, "rank", rank);
    ty_json_open_flat(w, "time_s", '[');
    for (uint32_t i = 0; i < count; i++)
        ty_json_put_number(w, NULL, points[i].time_s);
    ty_json_close(w, ']');
    ty_json_open_flat(w, "bytes", '[');
    for (uint32_t i = 0; i < count; i++)
        ty_json_put_uint(w, NULL, points[i].bytes);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
    ty_free(points);
    return status;
}

ty_status derived_memory(const plan_inputs *in, const ty_timeline *timeline, ty_json_document **out,
                         ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_status status = TY_OK;
    uint32_t rank = 0;

    *out = NULL;
    if (in->plan->memory == NULL)
        return TY_OK;
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.simulation/1");
    ty_json_open(&w, "memory_over_time", '[');
    for (uint32_t s = 0; s < in->plan->stage_count; s++) {
        const bool is_first = rank == 0 || in->plan->interleave <= 1;
        if (is_first && rank < ty_plan_rank_count(in->plan))
            TY_CHECK(put_memory(in, timeline, rank, &w, error), status, done);
        rank += in->plan->stages[s].replicas;
    }
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    TY_CHECK(ty_text_check(&text, error), status, done);
    status = ty_json_parse(text.data, text.length, "memory over time", out, error);
done:
    ty_text_clear(&text);
    return status;
}

/* ---- All of them --------------------------------------------------------------------------- */

ty_status derived_document(const char *schema, const cli_options *options, const char *plan_path,
                           plan_inputs *in, ty_json_document **out, ty_error *error)
{
    static const struct {
        const char *schema;
        ty_status (*derive)(const cli_options *options, const char *plan_path, plan_inputs *in,
                            ty_text *text, ty_error *error);
    } makers[] = {{"trainyard.score/1", derive_score},
                  {"trainyard.compression/1", derive_compression},
                  {"trainyard.launch/1", derive_launch}};
    ty_status status = TY_OK;
    ty_text text = {0};

    *out = NULL;
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++)
        if (strcmp(makers[i].schema, schema) == 0)
            TY_CHECK(makers[i].derive(options, plan_path, in, &text, error), status, done);
    TY_CHECK(ty_text_check(&text, error), status, done);
    if (text.length > 0)
        status = ty_json_parse(text.data, text.length, schema, out, error);
done:
    ty_text_clear(&text);
    return status;
}
