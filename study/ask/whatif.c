/* What-if: the best plan for every combination of values; the order of rows does not depend on the
 * number of processes. */
#include "question.h"
#include "sweep.h"
#include "ty_json.h"
#include "vary.h"

#include <string.h>
#include <unistd.h>

#define WHATIF_SCHEMA "trainyard.whatif/1"
#define MOST_ROWS 100000

struct ty_whatif {
    const ty_question *question;
    const ty_whatif_axis *axes;
    uint32_t axis_count, row_count, done_count;
    ty_cluster *cluster;    /* while it runs: the question's, if rows do not change it */
    char **rows;            /* [row_count]: an object of JSON in one line; NULL: not done yet */
    const ty_watch *watch;  /* while it runs */
    ty_whatif_taken *taken; /* likewise */
    void *context;
};

void ty_whatif_free(ty_whatif *w)
{
    for (uint32_t r = 0; w != NULL && w->rows != NULL && r < w->row_count; r++)
        ty_free(w->rows[r]);
    if (w != NULL)
        ty_free(w->rows);
    ty_free(w);
}

/* ---- The question -------------------------------------------------------------------------- */

/* The value of an axis in a row: the last axis changes fastest. */
const char *ty_whatif_value(const ty_whatif *w, uint32_t row, uint32_t axis_index)
{
    for (uint32_t a = w->axis_count; a-- > axis_index + 1;)
        row /= w->axes[a].count;
    return w->axes[axis_index].values[row % w->axes[axis_index].count];
}

static ty_status set_point(const ty_whatif *w, uint32_t row, ty_vary_point *point, ty_error *error)
{
    ty_status status = ty_vary_point_new(w->question, point, error);

    if (w->cluster != NULL)
        point->question.open_cluster = w->cluster;
    for (uint32_t i = 0; i < 2 * w->axis_count && status == TY_OK; i++) {
        const uint32_t a = i % w->axis_count;
        const bool is_whole =
            strcmp(w->axes[a].key, "cluster") == 0 || strcmp(w->axes[a].key, "workload") == 0;
        ty_error detail = {0};
        /* These go first, whatever their order: other keys change them. */
        if (is_whole != (i < w->axis_count))
            continue;
        status = ty_vary_set(point, w->axes[a].key, ty_whatif_value(w, row, a), &detail);
        if (status != TY_OK)
            status = ty_fail(error, status, "--vary %s=%s: %s", w->axes[a].key,
                             ty_whatif_value(w, row, a), detail.message);
    }
    return status;
}

static ty_status check_axes(const ty_whatif *w, uint32_t *row_count, ty_error *error)
{
    uint64_t rows = 1;

    if (w->axis_count == 0)
        return ty_fail(error, TY_EINVAL, "--vary KEY=V,... is needed, as in --vary hosts=1,2,4");
    for (uint32_t a = 0; a < w->axis_count; a++) {
        if (w->axes[a].count == 0)
            return ty_fail(error, TY_EINVAL, "--vary %s: no values", w->axes[a].key);
        for (uint32_t i = 0; i < a; i++)
            if (strcmp(w->axes[i].key, w->axes[a].key) == 0)
                return ty_fail(error, TY_EINVAL, "--vary: key '%s' is given twice", w->axes[a].key);
        rows *= w->axes[a].count;
        if (rows > MOST_ROWS)
            return ty_fail(error, TY_EINVAL, "--vary: more than %d combinations", MOST_ROWS);
    }
    *row_count = (uint32_t)rows;
    return TY_OK;
}

ty_status ty_whatif_new(const ty_question *question, const ty_whatif_axis *axes,
                        uint32_t axis_count, ty_whatif **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_whatif *w = ty_alloc(1, sizeof *w);

    TY_TRY(ty_check_memory(w != NULL, error));
    *w = (ty_whatif){.question = question, .axes = axes, .axis_count = axis_count};
    TY_CHECK(ty_question_check_inputs(question, error), status, done);
    TY_CHECK(check_axes(w, &w->row_count, error), status, done);
    w->rows = ty_alloc(w->row_count, sizeof *w->rows);
    TY_CHECK(ty_check_memory(w->rows != NULL, error), status, done);
    for (uint32_t r = 0; r < w->row_count && status == TY_OK; r++) {
        ty_vary_point point = {0};
        status = set_point(w, r, &point, error);
        ty_vary_point_clear(&point);
    }
    if (status == TY_OK) {
        *out = w;
        w = NULL; /* ownership moved */
    }
done:
    ty_whatif_free(w);
    return status;
}

uint32_t ty_whatif_row_count(const ty_whatif *w)
{
    return w->row_count;
}

uint32_t ty_whatif_done_count(const ty_whatif *w)
{
    return w->done_count;
}

const char *ty_whatif_row(const ty_whatif *w, uint32_t row)
{
    return w->rows[row];
}

/* ---- One row ------------------------------------------------------------------------------- */

static void put_values(const ty_whatif *w, uint32_t row, ty_json_writer *out)
{
    ty_json_open(out, "values", '{');
    for (uint32_t a = 0; a < w->axis_count; a++)
        ty_json_put_string(out, w->axes[a].key, ty_whatif_value(w, row, a));
    ty_json_close(out, '}');
}

/* Dollars per hour of all devices, including idle ones; 0: unknown. */
static ty_status price_of(const ty_cluster *cluster, const ty_cost_question *question, double *out,
                          ty_error *error)
{
    const ty_cost_rates asked = {.price = question->price};
    ty_cluster_rates rates;
    ty_status status = ty_cluster_rates_of(cluster, 1, &asked, &rates, error);

    *out = status == TY_OK && rates.has_price
               ? rates.price_usd_per_device_hour * ty_cluster_device_count(cluster)
               : 0;
    return status;
}

static void put_answer(const ty_plan *plan, const ty_cluster *cluster, double price,
                       ty_json_writer *w)
{
    const ty_step_summary *s = ty_plan_summary(plan);
    uint64_t capacity = UINT64_MAX;

    for (uint32_t d = 0; d < ty_cluster_device_count(cluster); d++)
        if (ty_cluster_device_type(cluster, d)->memory_bytes < capacity)
            capacity = ty_cluster_device_type(cluster, d)->memory_bytes;
    ty_json_put_uint(w, "devices", ty_cluster_device_count(cluster));
    if (plan->idle_devices > 0)
        ty_json_put_uint(w, "idle_devices", plan->idle_devices);
    ty_json_put_uint(w, "global_batch", plan->global_batch);
    ty_json_put_number(w, "step_time_s", s->step_time_s);
    ty_json_put_number(w, "estimated_step_time_s", plan->prediction.step_time_s);
    ty_json_put_bool(w, "is_simulated", s == &plan->simulation);
    ty_json_put_number(w, "samples_per_s", s->samples_per_s);
    ty_json_put_number(w, "tokens_per_s", s->tokens_per_s);
    ty_plan_rates_to_json(plan, s, w);
    ty_json_put_uint(w, "memory_bytes", capacity);
    if (price > 0)
        ty_json_put_number(w, "price_usd_per_hour", price);
    if (plan->cost.steps > 0)
        ty_record_put(&ty_training_cost_record, &plan->cost, NULL, w);
    ty_json_put_string(w, "limited_by", s->limited_by);
    ty_json_put_string(w, "strategy", plan->strategy);
    ty_json_put_string(w, "plan",
                       plan->candidate_count > 0 ? plan->candidates[0].name : plan->strategy);
    ty_json_put_string(w, "stack", plan->stack->name);
    if (plan->stack->why != NULL)
        ty_json_put_string(w, "stack_reason", plan->stack->why);
    ty_json_put_string(w, "provenance", ty_provenance_name(plan->provenance));
}

/* Reason for no plan. A lost row may succeed later with more free memory. */
static void put_reason(const ty_whatif *w, uint32_t row, const char *reason, ty_status status,
                       ty_json_writer *out)
{
    ty_json_open_flat(out, NULL, '{');
    put_values(w, row, out);
    ty_json_put_string(out, "reason", reason);
    if (status == TY_EINVAL)
        ty_json_put_bool(out, "is_refused", true);
    if (status == TY_ENOMEM || status == TY_EBACKEND)
        ty_json_put_bool(out, "is_lost", true);
    ty_json_close(out, '}');
}

/* In a child. "Nothing fits", "invalid" and "out of memory" are answers; an unreadable file is a
 * failure. */
static ty_status do_row(void *context, uint32_t row, ty_text *result, ty_error *error)
{
    const ty_whatif *w = context;
    ty_status status;
    ty_json_writer out = ty_json_writer_on(result);
    ty_vary_point point = {0};
    ty_question_inputs q = {0};
    ty_plan *plan = NULL;
    double price = 0;

    TY_CHECK(set_point(w, row, &point, error), status, done);
    status = ty_vary_open(&point, w->watch, &q, error);
    if (status == TY_OK)
        status = ty_question_plan(&point.question, &q, w->watch, &plan, error);
    if (status == TY_OK)
        status = price_of(q.cluster, &point.question.cost, &price, error);
    if (status != TY_OK && status != TY_EINFEASIBLE && status != TY_EINVAL && status != TY_ENOMEM)
        goto done;
    if (status == TY_OK) {
        ty_json_open_flat(&out, NULL, '{');
        put_values(w, row, &out);
        put_answer(plan, q.cluster, price, &out);
        ty_json_close(&out, '}');
    } else {
        put_reason(w, row, error->message, status, &out);
    }
    status = TY_OK;
done:
    ty_plan_free(plan);
    ty_question_inputs_clear(&q);
    ty_vary_point_clear(&point);
    return status;
}

/* ---- The document -------------------------------------------------------------------------- */

/* Inputs of rows other than their values: a document is only reusable if they are the same. */
static const json_field question_fields[] = {
    {"workload", JSON_TEXT, JSON_AT(ty_question, workload)},
    {"cluster", JSON_TEXT, JSON_AT(ty_question, cluster)},
    {"global_batch", JSON_UINT32, JSON_AT(ty_question, global_batch), 1, .is_optional = true},
    {"profile", JSON_TEXT, JSON_AT(ty_question, profile), .is_optional = true},
    {"fix", JSON_TEXT, JSON_AT(ty_question, fix), .is_optional = true},
    {"input", JSON_TEXT, JSON_AT(ty_question, input), .is_optional = true},
    {"memory_reserve", JSON_TEXT, JSON_AT(ty_question, memory_reserve), .is_optional = true},
    {"stack", JSON_TEXT, JSON_AT(ty_question, stack), .is_optional = true},
    {"sequence", JSON_UINT64, JSON_AT(ty_question, sequence), 1, .is_optional = true},
    {"precision", JSON_TEXT, JSON_AT(ty_question, precision), .is_optional = true},
    {"optimizer", JSON_TEXT, JSON_AT(ty_question, optimizer), .is_optional = true},
    {"system", JSON_TEXT, JSON_AT(ty_question, system), .is_optional = true},
    {"objective", JSON_TEXT, JSON_AT(ty_question, objective), .is_optional = true},
    {"task", JSON_TEXT, JSON_AT(ty_question, task), .is_optional = true},
    {"tokens", JSON_NUMBER, JSON_AT(ty_question, cost.tokens), .is_optional = true},
    {"epochs", JSON_NUMBER, JSON_AT(ty_question, cost.epochs), .is_optional = true},
    {"steps", JSON_NUMBER, JSON_AT(ty_question, cost.steps), .is_optional = true},
    {"price", JSON_TEXT, JSON_AT(ty_question, cost.price), .is_optional = true},
    {"is_lossy_allowed", JSON_BOOL, JSON_AT(ty_question, allow_lossy), .is_optional = true},
    {"is_fastest", JSON_BOOL, JSON_AT(ty_question, is_fastest), .is_optional = true},
    {"seed", JSON_UINT64, JSON_AT(ty_question, seed)},
    {"simulated_finalists", JSON_UINT32, JSON_AT(ty_question, top)},
};
static const json_record question_record = JSON_RECORD(ty_question, question_fields);

void ty_whatif_to_json(const ty_whatif *w, ty_json_writer *out)
{
    ty_json_open(out, NULL, '{');
    ty_json_put_string(out, "schema", WHATIF_SCHEMA);
    ty_json_put_string(out, "version", TY_VERSION);
    ty_record_write(&question_record, w->question, NULL, out, "question");
    ty_json_open(out, "vary", '[');
    for (uint32_t a = 0; a < w->axis_count; a++) {
        ty_json_open_flat(out, NULL, '{');
        ty_json_put_string(out, "key", w->axes[a].key);
        ty_json_open(out, "values", '[');
        for (uint32_t i = 0; i < w->axes[a].count; i++)
            ty_json_put_string(out, NULL, w->axes[a].values[i]);
        ty_json_close(out, ']');
        ty_json_close(out, '}');
    }
    ty_json_close(out, ']');
    ty_json_put_bool(out, "is_complete", w->done_count == w->row_count);
    ty_json_open(out, "rows", '[');
    for (uint32_t r = 0; r < w->row_count; r++)
        if (w->rows[r] != NULL)
            ty_json_put_raw(out, NULL, w->rows[r]);
    ty_json_close(out, ']');
    ty_json_close(out, '}');
}

/* ---- Resuming ------------------------------------------------------------------------------ */

static ty_status check_question(const ty_whatif *w, const char *path, const ty_json *root,
                                ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *theirs;
    ty_text ours = {0};
    ty_json_writer out = ty_json_writer_on(&ours);
    ty_json_document *document = NULL;
    char *own_text = NULL, *their_text = NULL;

    ty_record_write(&question_record, w->question, NULL, &out, NULL);
    TY_CHECK(ty_text_check(&ours, error), status, done);
    TY_CHECK(ty_json_parse(ours.data, ours.length, "question", &document, error), status, done);
    TY_CHECK(ty_json_text(ty_json_root(document), &own_text, error), status, done);
    TY_CHECK(ty_json_object(root, "question", &theirs, error), status, done);
    TY_CHECK(ty_json_text(theirs, &their_text, error), status, done);
    if (strcmp(own_text, their_text) != 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s:/question: found %.160s, expected %.160s: rows of another question",
                         path, their_text, own_text);
done:
    ty_free(own_text);
    ty_free(their_text);
    ty_json_free(document);
    ty_text_clear(&ours);
    return status;
}

/* The row with a set of values; row_count: none. */
static ty_status find_row(const ty_whatif *w, const ty_json *row, uint32_t *out, ty_error *error)
{
    const ty_json *values;
    uint32_t index = 0;

    *out = w->row_count;
    TY_TRY(ty_json_object(row, "values", &values, error));
    if (ty_json_size(values) != w->axis_count)
        return TY_OK;
    for (uint32_t a = 0; a < w->axis_count; a++) {
        const char *text;
        uint32_t i = 0;
        if (!ty_json_has(values, w->axes[a].key))
            return TY_OK;
        TY_TRY(ty_json_string(values, w->axes[a].key, &text, error));
        while (i < w->axes[a].count && strcmp(w->axes[a].values[i], text) != 0)
            i++;
        if (i == w->axes[a].count)
            return TY_OK;
        index = index * w->axes[a].count + i;
    }
    *out = index;
    return TY_OK;
}

ty_status ty_whatif_resume(ty_whatif *w, const char *path, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    const ty_json *root, *rows;

    TY_CHECK(ty_json_load(path, &document, error), status, done);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, WHATIF_SCHEMA, error), status, done);
    TY_CHECK(check_question(w, path, root, error), status, done);
    TY_CHECK(ty_json_array(root, "rows", 0, MOST_ROWS, &rows, error), status, done);
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        uint32_t index;
        TY_CHECK(find_row(w, ty_json_at(rows, i), &index, error), status, done);
        if (index == w->row_count || w->rows[index] != NULL ||
            ty_json_has(ty_json_at(rows, i), "is_lost"))
            continue;
        TY_CHECK(ty_json_text(ty_json_at(rows, i), &w->rows[index], error), status, done);
        w->done_count++;
    }
done:
    ty_json_free(document);
    return status;
}

/* ---- All rows ------------------------------------------------------------------------------ */

static bool is_wanted(void *context, uint32_t row)
{
    return ((const ty_whatif *)context)->rows[row] == NULL;
}

static ty_status take_row(void *context, uint32_t row, const char *result, ty_error *error)
{
    ty_whatif *w = context;

    w->rows[row] = ty_strdup(result);
    TY_TRY(ty_check_memory(w->rows[row] != NULL, error));
    w->done_count++;
    return w->taken != NULL ? w->taken(w->context, w, error) : TY_OK;
}

/* The other rows continue. */
static ty_status lose_row(void *context, uint32_t row, const char *how, ty_error *error)
{
    ty_text reason = {0}, result = {0};
    ty_json_writer out = ty_json_writer_on(&result);
    ty_status status;

    ty_text_addf(&reason, "the process of this combination %s", how);
    TY_CHECK(ty_text_check(&reason, error), status, done);
    put_reason(context, row, reason.data, TY_EBACKEND, &out);
    TY_CHECK(ty_text_check(&result, error), status, done);
    status = take_row(context, row, result.data, error);
done:
    ty_text_clear(&reason);
    ty_text_clear(&result);
    return status;
}

static bool is_measured_here(const ty_whatif *w)
{
    uint32_t ranks;

    for (uint32_t a = 0; a < w->axis_count; a++)
        for (uint32_t i = 0; strcmp(w->axes[a].key, "cluster") == 0 && i < w->axes[a].count; i++)
            if (ty_cluster_is_local(w->axes[a].values[i], &ranks))
                return true;
    return ty_cluster_is_local(w->question->cluster, &ranks);
}

/* Opens the cluster once for all rows to share, unless a row changes it. The rows report it if it
 * cannot be opened. */
static ty_status open_cluster(ty_whatif *w, ty_error *error)
{
    ty_vary_point point = {0};
    ty_status status = set_point(w, 0, &point, error);

    if (status == TY_OK && w->row_count > 1 && point.question.cluster == w->question->cluster &&
        w->question->open_cluster == NULL && !is_measured_here(w) &&
        ty_cluster_open(w->question->cluster, NULL, &w->cluster, NULL) != TY_OK)
        w->cluster = NULL;
    ty_vary_point_clear(&point);
    return status;
}

ty_status ty_whatif_run(ty_whatif *w, const ty_watch *watch, ty_whatif_taken *taken, void *context,
                        ty_error *error)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    ty_sweep work = {.count = w->row_count,
                     .watch = watch,
                     .context = w,
                     .is_wanted = is_wanted,
                     .work = do_row,
                     .take = take_row,
                     .lose = lose_row};
    ty_status status;

    w->watch = watch;
    w->taken = taken;
    w->context = context;
    TY_CHECK(open_cluster(w, error), status, done);
    work.parallel = cores < 1 || is_measured_here(w) ? 1 : (uint32_t)cores;
    status = ty_sweep_run(&work, error);
done:
    ty_cluster_free(w->cluster);
    w->cluster = NULL;
    return status;
}
