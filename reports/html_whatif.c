/* What-if documents as curves: throughput over one varied key, a line for each combination of the
 * others, and scaling where devices are varied. */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_AXES 16
#define MOST_LINES 8
#define MOST_ROWS 100000
#define MOST_TABLE_ROWS 400

typedef struct axis {
    const char *key;
    const ty_json *values;
    uint32_t count;
    bool is_ordered; /* its values are quantities: what lies between two of them has a meaning */
} axis;

typedef struct answer {
    const ty_json *row; /* NULL: not in the document */
    double samples_per_s, low, high, devices;
} answer;

typedef struct whatif {
    const ty_report_document *document;
    uint32_t index; /* of the what-if documents */
    axis axes[MOST_AXES];
    uint32_t axis_count, x; /* the axis drawn along the abscissa */
    uint32_t answer_count;
    answer *answers; /* row-major, the last axis fastest */
} whatif;

/* ---- Reading ------------------------------------------------------------------------------- */

/* "8", "x0.5", "100Gb/s": a number, perhaps with a unit. Names of clusters are none. */
static bool is_quantity(const char *text)
{
    static const char digits[] = "0123456789.";
    size_t length;

    text += text[0] == 'x';
    length = strspn(text, digits);
    return length > 0 && strpbrk(text + length, " -:@0123456789") == NULL;
}

static bool has_quantities(const axis *a)
{
    const char *text;

    for (uint32_t i = 0; i < a->count; i++)
        if (ty_json_as_string(ty_json_at(a->values, i), &text, NULL) != TY_OK || !is_quantity(text))
            return false;
    return true;
}

static ty_status read_axes(whatif *w, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *vary;
    uint64_t count = 1;

    TY_CHECK(ty_json_array(w->document->root, "vary", 1, MOST_AXES, &vary, error), status, done);
    for (size_t a = 0; a < ty_json_size(vary); a++) {
        const ty_json *entry = ty_json_at(vary, a);
        axis *own = &w->axes[w->axis_count++];
        TY_CHECK(ty_json_string(entry, "key", &own->key, error), status, done);
        TY_CHECK(ty_json_array(entry, "values", 1, MOST_ROWS, &own->values, error), status, done);
        own->count = (uint32_t)ty_json_size(own->values);
        own->is_ordered = has_quantities(own);
        count *= own->count;
        if (count > MOST_ROWS)
            return ty_json_fail(vary, error, "at most %d combinations", MOST_ROWS);
    }
    w->answer_count = (uint32_t)count;
done:
    return status;
}

static ty_status value_text(const axis *a, uint32_t i, const char **out, ty_error *error)
{
    return ty_json_as_string(ty_json_at(a->values, i), out, error);
}

static ty_status row_index(const whatif *w, const ty_json *row, uint32_t *out, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *values;

    *out = 0;
    TY_CHECK(ty_json_object(row, "values", &values, error), status, done);
    for (uint32_t a = 0; a < w->axis_count; a++) {
        const char *text, *known;
        uint32_t i = 0;
        TY_CHECK(ty_json_string(values, w->axes[a].key, &text, error), status, done);
        for (; i < w->axes[a].count; i++) {
            TY_CHECK(value_text(&w->axes[a], i, &known, error), status, done);
            if (strcmp(known, text) == 0)
                break;
        }
        if (i == w->axes[a].count)
            return ty_json_fail(values, error, "a value that vary lists of %s", w->axes[a].key);
        *out = *out * w->axes[a].count + i;
    }
done:
    return status;
}

/* The band reaches from the estimate to the simulation, or is what the row says itself. */
static ty_status read_answer(const ty_json *row, answer *out, ty_error *error)
{
    ty_status status = TY_OK;
    double step_s, other_s = 0;

    *out = (answer){.row = row, .samples_per_s = NAN, .low = NAN, .high = NAN, .devices = NAN};
    if (ty_json_has(row, "reason"))
        return TY_OK;
    TY_CHECK(ty_json_number(row, "step_time_s", 0, 1e300, &step_s, error), status, done);
    TY_CHECK(ty_json_number(row, "samples_per_s", 0, 1e300, &out->samples_per_s, error), status,
             done);
    if (ty_json_has(row, "devices"))
        TY_CHECK(ty_json_number(row, "devices", 1, 1e9, &out->devices, error), status, done);
    if (ty_json_has(row, "estimated_step_time_s"))
        TY_CHECK(ty_json_number(row, "estimated_step_time_s", 0, 1e300, &other_s, error), status,
                 done);
    if (!(other_s > 0))
        other_s = step_s;
    out->low = out->samples_per_s * fmin(1, step_s / other_s);
    out->high = out->samples_per_s * fmax(1, step_s / other_s);
done:
    return status;
}

/* Quantities come before names along the abscissa, more values before fewer. */
static bool is_better_abscissa(const axis *a, const axis *than)
{
    return a->is_ordered != than->is_ordered ? a->is_ordered : a->count > than->count;
}

static ty_status whatif_read(whatif *w, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *rows;

    TY_CHECK(read_axes(w, error), status, done);
    for (uint32_t a = 1; a < w->axis_count; a++)
        if (is_better_abscissa(&w->axes[a], &w->axes[w->x]))
            w->x = a;
    w->answers = ty_alloc(w->answer_count, sizeof *w->answers);
    if (w->answers == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < w->answer_count; i++)
        w->answers[i] = (answer){.samples_per_s = NAN, .low = NAN, .high = NAN, .devices = NAN};
    TY_CHECK(ty_json_array(w->document->root, "rows", 0, MOST_ROWS, &rows, error), status, done);
    for (size_t r = 0; r < ty_json_size(rows); r++) {
        uint32_t index;
        TY_CHECK(row_index(w, ty_json_at(rows, r), &index, error), status, done);
        TY_CHECK(read_answer(ty_json_at(rows, r), &w->answers[index], error), status, done);
    }
done:
    return status;
}

/* ---- Lines --------------------------------------------------------------------------------- */

typedef struct lines {
    uint32_t count, points;
    page_series series[MOST_LINES + 1];
    char names[MOST_LINES][96];
    double *values; /* [MOST_LINES + 1][4][points]: rate, low, high, devices */
    const char **categories;
} lines;

static void lines_clear(lines *l)
{
    ty_free(l->values);
    ty_free(l->categories);
}

static double *line_of(const lines *l, uint32_t line, uint32_t which)
{
    return &l->values[((size_t)line * 4 + which) * l->points];
}

/* Splits a row-major index into the point on the abscissa and the line. */
static void place_of(const whatif *w, uint32_t index, uint32_t *point, uint32_t *line)
{
    uint32_t factor = 1;

    *line = 0;
    for (uint32_t a = w->axis_count; a-- > 0;) {
        const uint32_t i = index % w->axes[a].count;
        index /= w->axes[a].count;
        if (a == w->x) {
            *point = i;
        } else {
            *line += i * factor;
            factor *= w->axes[a].count;
        }
    }
}

static void name_line(const whatif *w, uint32_t index, char out[96])
{
    size_t length = 0;

    out[0] = '\0';
    for (uint32_t a = w->axis_count; a-- > 0;) {
        const uint32_t i = index % w->axes[a].count;
        const char *text = "";
        char item[96];
        index /= w->axes[a].count;
        if (a == w->x || value_text(&w->axes[a], i, &text, NULL) != TY_OK)
            continue;
        snprintf(item, sizeof item, "%.30s=%.40s%s", w->axes[a].key, text, length > 0 ? ", " : "");
        if (length + strlen(item) < 96) {
            memmove(out + strlen(item), out, length + 1);
            memcpy(out, item, strlen(item));
            length += strlen(item);
        }
    }
    if (length == 0)
        snprintf(out, 96, "samples/s");
}

static ty_status lines_fill(const whatif *w, lines *l, ty_error *error)
{
    ty_status status = TY_OK;
    const uint32_t all = w->answer_count / w->axes[w->x].count;

    *l = (lines){.points = w->axes[w->x].count, .count = all < MOST_LINES ? all : MOST_LINES};
    l->values = ty_alloc((size_t)(MOST_LINES + 1) * 4 * l->points, sizeof *l->values);
    l->categories = ty_alloc(l->points, sizeof *l->categories);
    if (l->values == NULL || l->categories == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < l->points; i++)
        TY_CHECK(value_text(&w->axes[w->x], i, &l->categories[i], error), status, done);
    for (uint32_t i = 0; i < w->answer_count; i++) {
        uint32_t point = 0, line;
        place_of(w, i, &point, &line);
        if (line >= l->count)
            continue;
        line_of(l, line, 0)[point] = w->answers[i].samples_per_s;
        line_of(l, line, 1)[point] = w->answers[i].low;
        line_of(l, line, 2)[point] = w->answers[i].high;
        line_of(l, line, 3)[point] = w->answers[i].devices;
        if (point == 0)
            name_line(w, i, l->names[line]);
    }
    for (uint32_t k = 0; k < l->count; k++)
        l->series[k] = (page_series){.name = l->names[k],
                                     .values = line_of(l, k, 0),
                                     .low = line_of(l, k, 1),
                                     .high = line_of(l, k, 2)};
done:
    return status;
}

static void put_rate(page *p, const whatif *w, const lines *l)
{
    char id[32], caption[160];

    snprintf(id, sizeof id, "whatif-%u", w->index);
    snprintf(caption, sizeof caption, "Throughput of the best plan over %.60s", w->axes[w->x].key);
    ty_page_plot(p, &(page_plot){.id = id,
                                 .caption = caption,
                                 .alternative = w->axes[w->x].is_ordered
                                                    ? "Lines of samples a second over the varied "
                                                      "value, with bands from the estimate to the "
                                                      "simulation"
                                                    : "Bars of samples a second, one for each "
                                                      "value",
                                 .x_name = w->axes[w->x].key,
                                 .categories = l->categories,
                                 .unit = PAGE_COUNT,
                                 .y_name = "samples/s",
                                 .count = l->points,
                                 .series = l->series,
                                 .series_count = l->count,
                                 .is_line = w->axes[w->x].is_ordered});
}

/* ---- Scaling ------------------------------------------------------------------------------- */

/* Whether the number of devices grows along the abscissa. */
static bool is_scaling(const lines *l)
{
    double first = NAN, last = NAN;

    for (uint32_t i = 0; i < l->points; i++)
        if (isfinite(line_of(l, 0, 3)[i])) {
            if (!isfinite(first))
                first = line_of(l, 0, 3)[i];
            last = line_of(l, 0, 3)[i];
        }
    return isfinite(first) && last != first;
}

/* Samples a second and device, over those of the first point that has a plan. */
static void make_efficiency(lines *l)
{
    for (uint32_t k = 0; k < l->count; k++) {
        double *rate = line_of(l, k, 0), *devices = line_of(l, k, 3), base = NAN;
        for (uint32_t i = 0; i < l->points; i++) {
            const double each = rate[i] / devices[i];
            if (!isfinite(base) && isfinite(each))
                base = each;
            line_of(l, k, 1)[i] = each / base;
        }
        l->series[k] = (page_series){.name = l->names[k], .values = line_of(l, k, 1)};
    }
    for (uint32_t i = 0; i < l->points; i++)
        line_of(l, l->count, 0)[i] = 1;
    l->series[l->count] = (page_series){
        .name = "ideal", .values = line_of(l, l->count, 0), .colour = "#8c8c8c", .is_dashed = true};
}

static void put_scaling(page *p, const whatif *w, lines *l)
{
    char id[32];

    snprintf(id, sizeof id, "scaling-%u", w->index);
    make_efficiency(l);
    ty_page_plot(p, &(page_plot){.id = id,
                                 .caption = "Scaling: throughput a device against the first point",
                                 .alternative = "Lines of efficiency over the number of devices, "
                                                "with the ideal at 100 %",
                                 .x_name = w->axes[w->x].key,
                                 .categories = l->categories,
                                 .unit = PAGE_SHARE,
                                 .y_name = "efficiency",
                                 .count = l->points,
                                 .series = l->series,
                                 .series_count = l->count + 1,
                                 .is_line = true});
}

/* ---- The table ----------------------------------------------------------------------------- */

static void put_text_of(page *p, const ty_json *row, const char *key)
{
    const char *text = "–";

    if (row != NULL && ty_json_has(row, key) && ty_json_string(row, key, &text, NULL) != TY_OK)
        text = "–";
    ty_page_text(p, text);
}

static void put_number_of(page *p, const ty_json *row, const char *key, page_unit unit)
{
    double number = NAN;
    char cell[40];

    if (row != NULL && ty_json_has(row, key) &&
        ty_json_number(row, key, -1e300, 1e300, &number, NULL) != TY_OK)
        number = NAN;
    ty_page_format(unit, number, cell);
    ty_page_number(p, cell);
}

/* Figures of the table; those of a cost only where a length of training was asked for. */
static const struct {
    const char *heading, *key;
    page_unit unit;
    bool is_of_cost;
} figures[] = {
    {"devices", "devices", PAGE_COUNT, false},
    {"step", "step_time_s", PAGE_SECONDS, false},
    {"samples/s", "samples_per_s", PAGE_COUNT, false},
    {"tokens/s", "tokens_per_s", PAGE_COUNT, false},
    {"MFU", "mfu", PAGE_SHARE, false},
    {"memory", "peak_memory_bytes", PAGE_MEMORY, false},
    {"days", "days", PAGE_COUNT, true},
    {"cost", "cost_usd", PAGE_USD, true},
};
#define FIGURE_COUNT (sizeof figures / sizeof figures[0])

static bool has_cost(const whatif *w)
{
    for (uint32_t i = 0; i < w->answer_count; i++)
        if (w->answers[i].row != NULL && ty_json_has(w->answers[i].row, "days"))
            return true;
    return false;
}

static void put_rows(page *p, const whatif *w)
{
    const bool is_costed = has_cost(w);
    ty_text headings = {0};

    for (uint32_t a = 0; a < w->axis_count; a++)
        ty_text_addf(&headings, "<%s|", w->axes[a].key);
    for (size_t f = 0; f < FIGURE_COUNT; f++)
        if (is_costed || !figures[f].is_of_cost)
            ty_text_addf(&headings, "%s|", figures[f].heading);
    ty_text_add(&headings, "<bottleneck|<plan, or why not");
    if (headings.failed != TY_OK)
        p->html->failed = headings.failed;
    else
        ty_page_table(p, headings.data);
    ty_text_clear(&headings);
    for (uint32_t i = 0; i < w->answer_count && i < MOST_TABLE_ROWS; i++) {
        const ty_json *row = w->answers[i].row, *values = NULL;
        if (row == NULL || ty_json_object(row, "values", &values, NULL) != TY_OK)
            continue;
        ty_page_row(p);
        for (uint32_t a = 0; a < w->axis_count; a++)
            put_text_of(p, values, w->axes[a].key);
        for (size_t f = 0; f < FIGURE_COUNT; f++)
            if (is_costed || !figures[f].is_of_cost)
                put_number_of(p, row, figures[f].key, figures[f].unit);
        put_text_of(p, row, "limited_by");
        put_text_of(p, row, ty_json_has(row, "reason") ? "reason" : "plan");
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
    if (w->answer_count > MOST_TABLE_ROWS)
        ty_text_addf(p->html, "<p class=\"faint\">The first %d combinations.</p>\n",
                     MOST_TABLE_ROWS);
}

static void put_question(page *p, const whatif *w)
{
    const ty_json *question;
    const char *workload, *cluster;

    if (ty_json_object(w->document->root, "question", &question, NULL) != TY_OK ||
        ty_json_string(question, "workload", &workload, NULL) != TY_OK ||
        ty_json_string(question, "cluster", &cluster, NULL) != TY_OK)
        return;
    ty_text_add(p->html, "<p class=\"faint\">");
    ty_html_escape(p->html, workload);
    ty_text_add(p->html, " on ");
    ty_html_escape(p->html, cluster);
    ty_text_add(p->html, ", each combination with the best plan for it. Bands reach from the "
                         "estimate to the simulation. From ");
    ty_html_escape(p->html, w->document->path);
    ty_text_add(p->html, ".</p>\n");
}

/* ---- The answer ---------------------------------------------------------------------------- */

/* "hosts=4, cluster=2x dgx-a100" */
static void put_values(page *p, const whatif *w, uint32_t index)
{
    uint32_t i[MOST_AXES];

    for (uint32_t a = w->axis_count; a-- > 0; index /= w->axes[a].count)
        i[a] = index % w->axes[a].count;
    for (uint32_t a = 0; a < w->axis_count; a++) {
        const char *text = "";
        if (value_text(&w->axes[a], i[a], &text, NULL) != TY_OK)
            continue;
        ty_text_add(p->html, a > 0 ? ", " : "");
        ty_html_escape(p->html, w->axes[a].key);
        ty_text_add(p->html, "=");
        ty_html_escape(p->html, text);
    }
}

static bool has_failed(const answer *a)
{
    return a->row != NULL && !isfinite(a->samples_per_s);
}

/* The fastest combination and the slowest, and how many there are. */
static void put_answer(page *p, const whatif *w)
{
    uint32_t best = UINT32_MAX, worst = UINT32_MAX, planned = 0, failed = 0;
    char rate[32];

    for (uint32_t i = 0; i < w->answer_count; i++) {
        failed += has_failed(&w->answers[i]);
        if (!isfinite(w->answers[i].samples_per_s))
            continue;
        planned++;
        if (best == UINT32_MAX || w->answers[i].samples_per_s > w->answers[best].samples_per_s)
            best = i;
        if (worst == UINT32_MAX || w->answers[i].samples_per_s < w->answers[worst].samples_per_s)
            worst = i;
    }
    ty_text_addf(p->html, "<p class=\"verdict\">Of %u combination%s %u ha%s a plan",
                 w->answer_count, w->answer_count > 1 ? "s" : "", planned,
                 planned == 1 ? "s" : "ve");
    if (failed > 0)
        ty_text_addf(p->html, ", %u ha%s none", failed, failed == 1 ? "s" : "ve");
    if (planned + failed < w->answer_count)
        ty_text_addf(p->html, ", %u %s not done", w->answer_count - planned - failed,
                     w->answer_count - planned - failed == 1 ? "is" : "are");
    ty_text_add(p->html, ".");
    if (best != UINT32_MAX) {
        ty_format_count(w->answers[best].samples_per_s, rate);
        ty_text_addf(p->html, " Fastest: <strong>%s samples/s</strong> with <strong>", rate);
        put_values(p, w, best);
        ty_text_add(p->html, "</strong>");
        if (worst != best) {
            ty_text_addf(p->html, ", %.3g times as fast as the slowest, ",
                         w->answers[best].samples_per_s / w->answers[worst].samples_per_s);
            put_values(p, w, worst);
        }
        ty_text_add(p->html, ".");
    }
    ty_text_add(p->html, "</p>\n");
}

#define MOST_FAILED 100

static void put_failed(page *p, const whatif *w)
{
    uint32_t failed = 0;

    for (uint32_t i = 0; i < w->answer_count; i++) {
        if (!has_failed(&w->answers[i]) || failed++ >= MOST_FAILED)
            continue;
        if (failed == 1)
            ty_page_table(p, "<no plan for|<because");
        ty_page_row(p);
        ty_text_add(p->html, "<td class=\"why\">");
        put_values(p, w, i);
        ty_text_add(p->html, "</td>");
        put_text_of(p, w->answers[i].row, "reason");
        ty_page_end_row(p);
    }
    if (failed > 0)
        ty_page_end_table(p);
    if (failed > MOST_FAILED)
        ty_text_addf(p->html, "<p class=\"faint\">And %u more.</p>\n", failed - MOST_FAILED);
}

static ty_status put_whatif(page *p, whatif *w, bool *has_scaling, ty_error *error)
{
    lines l = {0};
    ty_status status = TY_OK;

    TY_CHECK(whatif_read(w, error), status, done);
    TY_CHECK(lines_fill(w, &l, error), status, done);
    put_question(p, w);
    if (p->in->plan != NULL || w->index > 0) /* else it is at the top of the page */
        put_answer(p, w);
    put_rate(p, w, &l);
    put_failed(p, w);
    if (w->axes[w->x].is_ordered && is_scaling(&l)) {
        put_scaling(p, w, &l);
        *has_scaling = true;
    }
    ty_text_add(p->html, "<details><summary>Every combination</summary>");
    put_rows(p, w);
    ty_text_add(p->html, "</details>\n");
done:
    lines_clear(&l);
    ty_free(w->answers);
    return status;
}

void ty_page_whatif_answer(page *p, const ty_report_document *document)
{
    whatif w = {.document = document};

    if (whatif_read(&w, NULL) == TY_OK)
        put_answer(p, &w);
    ty_free(w.answers);
}

ty_status ty_page_whatif(page *p, ty_error *error)
{
    ty_status status = TY_OK;
    bool has_scaling = false;
    uint32_t index = 0;

    for (uint32_t i = 0; i < p->in->document_count && status == TY_OK; i++) {
        whatif w = {.document = &p->in->documents[i], .index = index};
        if (strcmp(w.document->schema, "trainyard.whatif/1") != 0)
            continue;
        if (index++ == 0)
            ty_page_section(p, "whatif", "What if");
        status = put_whatif(p, &w, &has_scaling, error);
    }
    if (index == 0)
        ty_page_missing(
            p, "What if",
            "trainyard whatif ... --vary hosts=1,2,4 -o FILE, and FILE beside the plan");
    if (!has_scaling)
        ty_page_missing(p, "Scaling", "a what-if over hosts or devices");
    return status;
}
